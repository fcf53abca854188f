"""How forms write and read dates and times, by language."""
