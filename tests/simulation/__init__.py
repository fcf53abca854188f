"""A model's providers in virtual time: seeded, without a socket and without sleeping, driving the real health, order by
speed and retry budget; beside them two plain rules to compare with.

    python -m tests.simulation docs/images/latency-routing.svg    the day of `story`, as a picture, and its figures
"""
