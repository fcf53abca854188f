"""Ids of tool calls within what the other side takes: OpenAI's two protocols refuse longer ones.

A longer id, minted by another provider or by the client, becomes the same shorter one wherever a request names it, and
different ones stay different. Nothing maps it back, since an answer names only calls of its own.
"""

from hashlib import sha256

_PREFIX = "call_"


def within(id: str, longest: int) -> str:
    """The id, or one of `longest` characters that stands for it."""
    if len(id) <= longest:
        return id
    return _PREFIX + sha256(id.encode("utf-8", "replace")).hexdigest()[: longest - len(_PREFIX)]
