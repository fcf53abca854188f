"""What is asked and where it may go: from a checked request to the `Call` that `gateway.relay` tells the story of."""
