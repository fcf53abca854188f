"""Files that clients upload: how they are read, kept sealed, and put into a request."""
