"""Ids and names that one side has and the other would refuse, as ones that it takes.

The same text always becomes the same one, and different texts different ones, so a call and its result still belong
together in the next turn without anything being remembered. What the other side takes anyway is left as it is.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b

MAX_NAME = 64  # of a tool in the chat form; this protocol's own are twice as long

_taken = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
_OTHERS = re.compile(r"[^a-zA-Z0-9_-]")
_MOST = 256
_DIGEST = 8


def fitted(text: str, most: int = _MOST) -> str:
    """`text` if it is `most` letters, digits, dashes and underscores; else its beginning and a digest of it."""
    if len(text) <= most and _taken(text):
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).hexdigest()
    return f"{_OTHERS.sub('_', text)[: most - 2 * _DIGEST - 1]}_{digest}"


def free(wanted: str, taken: Iterable[str]) -> str:
    """`wanted`, or it with underscores behind it, as none of `taken` is called."""
    known = set(taken)
    while wanted in known:
        wanted += "_"
    return wanted
