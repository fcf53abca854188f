"""What makes a provider's contents of chat messages."""
