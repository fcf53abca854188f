"""The API described, for machines and people, from the code."""
