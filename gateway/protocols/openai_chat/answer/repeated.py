"""A text that goes on from another one, and may say that one again: some servers begin anew where they should go on.

What is repeated is dropped, however it is cut into chunks. Where nobody can tell whether it is repeated, because too
little was said before, or one thing over and over, or because the beginning is the same and then another one, there is
no answer that could be shown: half of one and half of another are none.
"""

from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault

LEAST = 4  # characters: fewer may be alike by chance
MANY = 16  # alike are no chance, and so is half of what was said before


class Repeated:
    """Reads the beginning of a text that follows `before`. `open`: what comes next may still be part of that."""

    __slots__ = ("_before", "_blanks", "_held", "_told", "open")

    def __init__(self, before: str) -> None:
        self._before = before.strip()
        self._blanks = before[len(before.rstrip()) :]
        self._held = ""
        self._told = False  # whether it is known that the text goes on
        self.open = True

    def feed(self, text: str) -> str:
        """The text without what it repeats; empty while that is not known. Raises `UpstreamFault`."""
        if self._told:
            return self._without_blanks(text)
        self._held += text
        said, before = self._held.lstrip(), self._before
        same = _alike(said, before)
        if same == len(said) < len(before):
            return ""
        if same == len(before):
            if same < LEAST or _repeats_itself(before):
                raise _unclear()
            return self._tell(said[same:])
        self._check(same)
        return self._tell(self._held)

    def end(self) -> str:
        """What waits when the text is over. Raises `UpstreamFault`."""
        if self._told:
            return ""
        self._check(len(self._held.strip()))
        return self._tell(self._held)

    def _check(self, same: int) -> None:
        if same >= MANY or (same >= LEAST and 2 * same >= len(self._before)):
            raise _unclear()

    def _tell(self, text: str) -> str:
        self._told, self._held = True, ""
        return self._without_blanks(text)

    def _without_blanks(self, text: str) -> str:
        """The text without the blanks that have been said."""
        same = _alike(text, self._blanks)
        self._blanks = self._blanks[same:] if same == len(text) else ""
        self.open = bool(self._blanks)
        return text[same:]


def _alike(one: str, other: str) -> int:
    """By how many characters two texts begin alike."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    return next(at for at in range(most) if one[at] != other[at])


def _repeats_itself(text: str) -> bool:
    """Whether it is one thing over and over, which may well be said once more."""
    return any((unit + unit).find(unit, 1) < len(unit) for unit in (text, f"{text} ", f"{text}\n"))


def _unclear() -> UpstreamFault:
    return UpstreamFault(Fault.TRUNCATED, "the text that should be gone on with is begun anew")
