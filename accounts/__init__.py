"""accounts knows who is calling."""
