"""Prices that come from outside: lists that were fetched, and what of a list a second person has to approve."""
