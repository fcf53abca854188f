"""kill -9 of everything that a deployment is made of, under load."""
