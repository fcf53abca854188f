"""The OpenAI embeddings protocol, both directions, without I/O: texts or tokens in, a vector for each out."""
