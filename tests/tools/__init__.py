"""The tests' own tools keep their word."""
