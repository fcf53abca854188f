"""Who may see and do what in the console: the matrix as data, and the access that a person has by it."""
