"""Tokens that an upstream counts: an object of them, all of an answer, and how a client is shown them."""
