"""Who may do what in the console, and that nobody sees another organization: generated from what there is."""
