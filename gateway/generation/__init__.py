"""One request's account: its hold, its attempts, its bill, and the one row that is left of it."""
