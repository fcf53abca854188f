"""gateway is the door, and the story of one request."""
