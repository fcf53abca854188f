"""Why nothing was stored."""


class Refused(Exception):
    """The place did not take it. The message says why, and holds nothing that the other side has written but a code."""
