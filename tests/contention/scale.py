"""How much is played: `make test` plays a little of everything, `make contention` all that is promised."""

import os
from typing import TypeVar

WHOLE = os.environ.get("CONTENTION") == "whole"

Size = TypeVar("Size")


def scaled(reduced: Size, whole: Size) -> Size:
    """The first in `make test`, the second in `make contention`."""
    return whole if WHOLE else reduced
