"""billing knows how much they may use and what it cost."""
