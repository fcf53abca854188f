"""What a process remembers of its conversations and rotations, so that the next request of one is planned well.

Both are hints, bounded, and gone with the process: without them a request is planned as a first one.
"""

import random
from collections.abc import Hashable, Mapping, Sequence
from typing import Any
from uuid import UUID

SEAT_SECONDS = 300.0  # as long as providers keep a prompt in their caches, unless they are paid for more
HOUR = 3_600.0
RETAINED = {"24h": 24 * HOUR}  # by `prompt_cache_retention`
MOST_SEATS = 20_000
MOST_ROTATIONS = 10_000
LOOKED_AT = 256  # characters of each message
OPENING = 4  # messages at most


class Seats:
    """Which offer answered a conversation lately, by its opening: its provider may have the prompt in its cache."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, float]] = {}  # the offer, and until when it has the seat

    def offer(self, conversation: int, now: float) -> int | None:
        """The id of the offer that answered lately. `now` is in monotonic seconds."""
        found = self._found.get(conversation)
        return found[0] if found is not None and now < found[1] else None

    def take(self, conversation: int, offer: int, now: float, seconds: float = SEAT_SECONDS) -> None:
        """Notes who answered, and for how long that matters."""
        self._found.pop(conversation, None)
        self._found[conversation] = (offer, now + seconds)
        if len(self._found) > MOST_SEATS:
            del self._found[next(iter(self._found))]


def kept_seconds(body: Mapping[str, Any], breakpoints: bool) -> float:
    """For how long the provider is asked to keep the prompt of a request in its cache; `breakpoints`: the request has
    some, and their `ttl` counts.
    """
    retention = body.get("prompt_cache_retention")
    seconds = RETAINED.get(retention, SEAT_SECONDS) if type(retention) is str else SEAT_SECONDS
    return max(seconds, HOUR) if breakpoints and _for_an_hour(body) else seconds


def _for_an_hour(body: Mapping[str, Any]) -> bool:
    parts = list(body.get("tools") or ())
    for message in body["messages"]:
        content = message.get("content")
        parts += content if type(content) is list else ()
    return any((part.get("cache_control") or {}).get("ttl") == "1h" for part in parts)


def conversation(project: UUID, model: int, messages: Sequence[dict[str, Any]]) -> int:
    """What the requests of one conversation have in common: all up to the first thing its user said.

    A number that means nothing outside this process. Two conversations that open alike share one, as they share the
    prompt in a cache.
    """
    opening: list[Any] = [project, model]
    for message in messages[:OPENING]:
        role = message.get("role")
        opening += (role, _beginning(message.get("content")))
        if role == "user":
            break
    return hash(tuple(opening))


def _beginning(content: Any) -> tuple[int, str]:
    if type(content) is list:
        content = next((part["text"] for part in content if type(part.get("text")) is str), "")
    return (len(content), content[:LOOKED_AT]) if type(content) is str else (0, "")


class Rotations:
    """Whose turn it is, by whoever takes turns. Each begins somewhere, so that processes do not go in step."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()  # noqa: S311, no secret is drawn
        self._turns: dict[int, int] = {}  # by a number for who it is, however long a list of providers that names

    def coming(self, who: Hashable) -> int:
        """The number of the turn that is next, for whoever only looks."""
        turn = self._turns.get(hash(who))
        if turn is None:
            turn = self.turn(who) - 1
            self._turns[hash(who)] = turn
        return turn + 1

    def turn(self, who: Hashable) -> int:
        """The number of this turn, one more than that of the last."""
        place = hash(who)
        turn = self._turns.pop(place, None)
        turn = self._rng.randrange(1 << 16) if turn is None else turn + 1
        self._turns[place] = turn
        if len(self._turns) > MOST_ROTATIONS:
            del self._turns[next(iter(self._turns))]
        return turn
