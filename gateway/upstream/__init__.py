"""Everything that dials: the client and its connections, where it may go, and how it shows its secret."""
