"""How many bytes of text a token of each model stands for, learnt from the answers whose providers counted.

Only estimates are made with it. It is bounded both ways, so that nobody makes the others' estimates absurd with text
of the oddest kind, and slow: it is of the last some hundred thousand tokens.
"""

USUAL = 4.0  # bytes of UTF-8 a token, of a model that has not been seen
LEAST, MOST = 2.0, 6.0
ENOUGH = 16  # tokens of an answer: a shorter one has more of its ends than of text
MOST_AN_ANSWER = 4_000  # tokens that one answer counts for
KEPT = 200_000  # tokens, after which the older ones count for half
MOST_MODELS = 2_000


class Tokenizers:
    """By the model's slug."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}  # bytes and tokens

    def learn(self, model: str, text_bytes: int, tokens: int) -> None:
        """An answer of `text_bytes` had so many tokens of text."""
        if tokens < ENOUGH or not text_bytes:
            return
        share = 1.0 if tokens < MOST_AN_ANSWER else MOST_AN_ANSWER / tokens
        seen = self._seen.get(model)
        if seen is None:
            if len(self._seen) >= MOST_MODELS:
                del self._seen[next(iter(self._seen))]
            seen = self._seen[model] = [0.0, 0.0]
        seen[0] += text_bytes * share
        seen[1] += tokens * share
        if seen[1] > KEPT:
            seen[:] = seen[0] / 2, seen[1] / 2

    def bytes_a_token(self, model: str) -> float:
        """Bytes of text that a token of the model stands for."""
        seen = self._seen.get(model)
        return USUAL if seen is None else min(MOST, max(LEAST, seen[0] / seen[1]))
