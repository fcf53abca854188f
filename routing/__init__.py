"""routing knows where a call can go."""
