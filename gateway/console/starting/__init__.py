"""What a new installation or organization still lacks: first steps, the test of a credential, a test request."""
