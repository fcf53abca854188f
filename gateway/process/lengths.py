"""How many tokens a key's requests came to lately, so that a limit of tokens holds about what they will use.

A hint, bounded, and gone with the process: of a key that is not known here the worst case is held. Money never asks
this, its holds are for the worst.
"""

from collections import deque

from msgspec import Struct

LOOKED_AT = 16  # answers
MOST_KEPT = 20_000  # keys and models


class Length(Struct):
    """What the last answers came to: tokens of a prompt for each token of its bound, and tokens of an answer."""

    prompts: deque[float]
    answers: deque[int]


class Lengths:
    """The last answers of each key and model, as the providers counted them. The longest of them is expected again.

    A key is named by its digest: a UUID would be hashed anew each time.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[bytes, int], Length] = {}

    def expected(self, key: bytes, model: int) -> tuple[float, int] | None:
        """The share of its bound that a prompt may take, and the tokens of one answer; None: not known."""
        found = self._found.get((key, model))
        return None if found is None else (max(found.prompts), max(found.answers))

    def learn(self, key: bytes, model: int, prompt_share: float, answer: int) -> None:
        """Notes what an answer came to."""
        found = self._found.pop((key, model), None)
        if found is None:
            found = Length(deque(maxlen=LOOKED_AT), deque(maxlen=LOOKED_AT))
            if len(self._found) >= MOST_KEPT:
                del self._found[next(iter(self._found))]
        self._found[key, model] = found
        found.prompts.append(min(1.0, prompt_share))
        found.answers.append(answer)
