"""The catalog: which models there are, what each costs the reader, and how each does."""
