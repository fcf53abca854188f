"""What an upstream's usage objects come to over a whole answer, wherever they stand and however often they come.

Most stand in the chunk or the body itself, some in a choice, some in an object of the vendor's. They are taken out
there, since a client sees usage in one place. Where several places are filled the most complete one counts.
"""

from typing import Any

from msgspec.structs import asdict, astuple, replace

from billing.tokens import Tokens
from gateway.protocols.openai_chat.usage.claim import claimed
from gateway.protocols.openai_chat.usage.counts import BadUsage, Counts, add, read
from gateway.protocols.openai_chat.usage.counts import tokens as tokens_of

MAX_PLACES = 16
_NONE = object()
_NAME = b'"usage"'

_Found = tuple[Tokens, dict[str, Any], bool]  # Counts, the object they came in, and whether they do not add up.


class _Place:
    """The objects of one place, one after the other; the last lie or truth stands."""

    __slots__ = ("counts", "lie", "lied", "sent")

    def __init__(self) -> None:
        self.counts: Counts = {}
        self.sent: dict[str, Any] = {}
        self.lied = False
        self.lie: Any = None  # what was not believed

    def take(self, sent: Any) -> bool:
        """Whether it says that nothing was read and nothing written."""
        try:
            counts = read(sent)
        except BadUsage:
            self.counts, self.lied, self.lie = {}, True, sent
            return False
        if any(counts.values()):
            add(self.counts, counts)
            self.sent, self.lied = sent, False
            return False
        return "prompt" in counts and "completion" in counts

    def found(self) -> _Found | None:
        """Marks a lie that only shows when all is there."""
        if self.counts.keys() - {"total", "shown"}:
            try:
                tokens, odd = tokens_of(self.counts)
                return tokens, self.sent, odd
            except BadUsage:
                self.lied, self.lie = True, self.sent
        return None


class Reported:
    """The counts of one answer.

    - `tokens`: None if none came that can be believed
    - `suspect`: some came that cannot be, or do not add up
    - `sent`: the object they came in, for the fields that nobody here knows
    - `nothing`: the last word is that nothing was read and nothing written, and none said otherwise. Before more of the
      answer such zeros are placeholders
    """

    __slots__ = ("_changed", "_disbelieved", "_places", "_sent", "_suspect", "_tokens", "_zero")

    def __init__(self) -> None:
        self._places: dict[str | int, _Place] = {}
        self._changed = self._zero = False
        self._tokens: Tokens | None = None
        self._sent: dict[str, Any] = {}
        self._suspect = False
        self._disbelieved: Tokens | None = None

    def take(self, answer: dict[str, Any], raw: bytes | None) -> bool:
        """Takes every usage object out of a chunk or a whole body, which was read from `raw`; None: it was translated
        from another protocol, and has one place for it.

        Whether the answer's own place was filled.
        """
        if self._zero and answer.get("choices"):
            self._zero = False
        named = "usage" in answer if raw is None else raw.count(_NAME)
        if not named:
            return False
        own = answer.pop("usage", _NONE)
        if named > 1 or own is _NONE:
            self._take_elsewhere(answer)
        if own is None or own is _NONE:
            return False
        self._note("", own)
        return True

    def _take_elsewhere(self, answer: dict[str, Any]) -> None:
        for name, value in list(answer.items()):
            if name == "choices":
                for at, choice in enumerate(value if type(value) is list else ()):
                    self._take_of_choice(at, choice)
            elif type(value) is dict and "usage" in value:
                self._note(name, value.pop("usage"))
                if not value:
                    del answer[name]

    def _take_of_choice(self, at: int, choice: Any) -> None:
        if type(choice) is dict:
            index = choice.get("index")
            for holder in (choice, choice.get("delta"), choice.get("message")):
                if type(holder) is dict and "usage" in holder:
                    self._note(index if type(index) is int else at, holder.pop("usage"))

    def _note(self, where: str | int, sent: Any) -> None:
        """Beside the answer's own, what is no object is nothing."""
        place = self._places.get(where)
        if place is None:
            if len(self._places) >= MAX_PLACES or (where != "" and type(sent) is not dict):
                return
            place = self._places[where] = _Place()
        self._zero = place.take(sent)
        self._changed = True

    @property
    def tokens(self) -> Tokens | None:
        if self._changed:
            self._read()
        return self._tokens

    @property
    def suspect(self) -> bool:
        if self._changed:
            self._read()
        return self._suspect

    @property
    def sent(self) -> dict[str, Any]:
        if self._changed:
            self._read()
        return self._sent

    @property
    def claim(self) -> dict[str, Any] | None:
        """What was not believed, for an operator to judge: see `claim.claimed`. None: all was."""
        if not self.suspect:
            return None
        if self._disbelieved is not None:
            return claimed(self._sent, asdict(self._disbelieved))
        lies = [place for place in self._places.values() if place.lied]
        return claimed(lies[-1].lie, lies[-1].counts) if lies else claimed(self._sent, {})

    def disbelieve(self) -> None:
        """Its counts cannot be, for a reason that is not in them: there are none, whatever comes after."""
        self._disbelieved = self.tokens
        self._tokens, self._suspect = None, True

    @property
    def nothing(self) -> bool:
        return self._zero and self.tokens is None and not self.suspect

    def _read(self) -> None:
        self._changed = False
        if self._disbelieved is not None:
            return
        self._suspect = False
        found: dict[str | int, _Found] = {}
        for where, place in self._places.items():
            if read := place.found():
                found[where] = read
            if place.lied:
                self._suspect = True
        if not found:
            self._tokens, self._sent = None, {}
            return
        best = next(iter(found))
        if len(found) > 1:
            best = max(found, key=lambda where: (_filled(found[where][0]), where == ""))
        self._tokens, self._sent, odd = found[best]
        if odd:
            self._suspect = True
        if type(best) is int and len(found) > 1:
            self._tokens = _of_choices([read[0] for where, read in found.items() if type(where) is int])


def _filled(tokens: Tokens) -> tuple[bool, int]:
    """How complete counts are."""
    return bool(tokens.prompt and tokens.completion), sum(map(bool, astuple(tokens)))


def _of_choices(reported: list[Tokens]) -> Tokens:
    """What the choices report together: the prompt was read once, each wrote its own. Some repeat the whole in each."""
    first, *others = reported
    if all(tokens == first for tokens in others):
        return first
    written = ("completion", "reasoning", "audio_output", "image_output")
    return replace(first, **{name: sum(getattr(tokens, name) for tokens in reported) for name in written})
