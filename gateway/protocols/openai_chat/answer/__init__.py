"""What an upstream of the chat protocol says, read as it comes; and what a client of it is shown."""
