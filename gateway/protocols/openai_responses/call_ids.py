"""Ids of tool calls within what a provider of the Responses protocol takes: it refuses longer ones.

A longer id, minted by another provider or by the client, becomes the same shorter one wherever a request names it, and
different ones stay different. Nothing maps it back, since an answer names only calls of its own.
"""

from hashlib import sha256

LONGEST = 64
_PREFIX = "call_"


def within(id: str) -> str:
    """The id, or a shorter one that stands for it."""
    return id if len(id) <= LONGEST else _PREFIX + sha256(id.encode()).hexdigest()[: LONGEST - len(_PREFIX)]
