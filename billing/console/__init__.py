"""Console pages of generations, and their filters."""
