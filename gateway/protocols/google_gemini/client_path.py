"""What a client's path says: the method, and the names that its model may have.

    /v1beta/models/{model}:generateContent                        the Gemini API; SDKs say v1, v1beta or v1alpha
    /v1beta1/publishers/{publisher}/models/{model}:...            Vertex, with a key; a name with a slash becomes this
    /v1/projects/{p}/locations/{l}/publishers/{publisher}/models/{model}:...   Vertex, with a project

A model's own name may hold slashes and colons, so the method stands behind the last colon.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote

METHODS = frozenset({"generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents"})
_path = re.compile(
    r"/?(?:v[0-9][a-z0-9]{0,9}/)?(?:projects/[^/]+/locations/[^/]+/)?(?:publishers/(?P<publisher>[^/]+)/)?"
    r"models/(?P<model>[^?]+):(?P<method>[a-zA-Z]+)"
).fullmatch


class Called(NamedTuple):
    """A method of `METHODS` and the names to look for a model by, in this order."""

    method: str
    models: tuple[str, ...]


def read_path(path: str) -> Called | None:
    """What is called by a path, without the mount it lies under and without its query; None: nothing of ours.

    An SDK in its Vertex mode puts a publisher before a bare name, so the name alone is the second to try.
    """
    match = _path(path)
    if match is None or match["method"] not in METHODS:
        return None
    model, publisher = unquote(match["model"]), match["publisher"]
    return Called(match["method"], (model,) if publisher is None else (f"{unquote(publisher)}/{model}", model))
