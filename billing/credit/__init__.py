"""Prepaid balances: what was given and taken, what each credit has left, and whether all of it agrees."""
