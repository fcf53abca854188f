"""A provider's own name for a model, put out of its words: a client knows the model by ours."""

import re
from collections.abc import Callable
from functools import lru_cache

LEAST = 2  # characters of a name; one alone is a word of any sentence


@lru_cache(maxsize=1024)
def over_model(theirs: str, ours: str) -> Callable[[str], str] | None:
    """Puts `ours` in the place of `theirs` in a text, with the folders before it and the version behind it.

    None where there is nothing to hide: ours is the same, or the same behind its author.
    """
    name = theirs.rpartition("/")[2]
    if len(name) < LEAST or ours.rpartition("/")[2] == name:
        return None
    # Both repeats are bounded: a provider's message must not be able to make a search slow.
    pattern = re.compile(
        rf"(?<![\w./-])(?:[\w.-]{{1,64}}/){{0,4}}{re.escape(name)}(?:(?:[-:@]|\.(?=\d))[\w-]{{1,64}}){{0,4}}(?!\w)",
        re.IGNORECASE,
    )
    return lambda text: pattern.sub(lambda _: ours, text)
