"""Pages whose changes may be drafted, and the sets in which drafts are approved, applied and taken back."""
