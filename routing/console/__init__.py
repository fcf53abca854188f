"""Console pages of policies and their replays."""
