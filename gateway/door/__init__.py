"""How a request comes in and its answer goes out: the server, the lean handler, the key, the view."""
