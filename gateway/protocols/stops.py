"""Stop sequences that the gateway looks for itself, where an upstream takes fewer than the client sent.

Fed the text of one choice as it comes, without I/O. An answer ends at the first character with which some sequence is
whole, as it would have had the model's server looked; of several that are whole there, the longest counts. The sequence
is not part of the answer.
"""

from collections.abc import Iterable


class Stopper:
    """Cuts the text of one choice before the first stop sequence, whatever the chunks it comes in.

    `matched` is the sequence that was found: then the choice has ended, with the finish reason `stop`.
    """

    __slots__ = ("_held", "_sequences", "matched")

    def __init__(self, sequences: Iterable[str]) -> None:
        """`sequences` are at least one, none of them empty."""
        self._sequences = tuple(dict.fromkeys(sequences))
        if not all(self._sequences):
            raise ValueError("a stop sequence is empty")
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """The next piece of text; gives what may be shown by now, which is all but what may begin a sequence.

        At most the longest sequence's length less one character is held back. After a match nothing is shown.
        """
        if self.matched is not None:
            return ""
        text = self._held + text
        end = len(text) + 1
        for sequence in self._sequences:
            at = text.find(sequence)
            if at >= 0 and (at + len(sequence), -len(sequence)) < (end, -len(self.matched or "")):
                end = at + len(sequence)
                self.matched = sequence
        if self.matched is not None:
            self._held = ""
            return text[: end - len(self.matched)]
        start = self._first_beginning(text)
        self._held = text[start:]
        return text[:start]

    def end(self) -> str:
        """The text has ended; gives what was held back, since nothing came of it."""
        held, self._held = self._held, ""
        return held

    def _first_beginning(self, text: str) -> int:
        """The first place from which on the text is the beginning of a sequence; its length if there is none."""
        first = len(text)
        for sequence in self._sequences:
            at = max(0, len(text) - len(sequence) + 1)
            while (at := text.find(sequence[0], at, first)) >= 0:
                if sequence.startswith(text[at:]):
                    first = at
                    break
                at += 1
        return first
