"""What Meterline costs, measured beside what else could stand in its place, on this machine: `make bench`.

Every contender answers the same requests from the same simulated provider, one contender after another, alone on
one core; the load generator, the simulated provider and the database share the other cores. What counts is CPU time
of the contender's processes, user and system, read from /proc: wall time on a busy machine says little.

Nothing here is asserted against a clock in a test: a target that is missed is printed as missed.
"""
