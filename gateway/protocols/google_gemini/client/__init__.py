"""What makes a chat body of a client's: its contents, its tools, and how its fields are read."""
