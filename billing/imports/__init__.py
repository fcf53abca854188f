"""Prices that come from outside: what of a list has to be approved by somebody else."""
