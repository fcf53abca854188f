"""Recorded traffic under another policy: what it would have cost, and where it would have gone."""
