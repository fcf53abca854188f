"""What a process remembers of conversations and rotations: little, and not for long."""

import random
import weakref
from typing import Any
from uuid import UUID

from gateway.process import seats
from gateway.process.seats import Rotations, Seats, conversation, kept_seconds

ONE, TWO = UUID(int=1), UUID(int=2)
SYSTEM = {"role": "system", "content": "Be brief."}
FIRST = {"role": "user", "content": "first"}
ANSWER = {"role": "assistant", "content": "ok"}


def test_the_turns_of_a_conversation_are_one() -> None:
    opening = conversation(ONE, 7, [SYSTEM, FIRST])
    assert conversation(ONE, 7, [SYSTEM, FIRST, ANSWER, {"role": "user", "content": "second"}]) == opening
    parts = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "first"}]
    assert conversation(ONE, 7, [SYSTEM, {"role": "user", "content": parts}]) == opening


def test_others_are_not() -> None:
    long = "x" * 300
    found = {
        conversation(ONE, 7, [SYSTEM, FIRST]),
        conversation(TWO, 7, [SYSTEM, FIRST]),
        conversation(ONE, 8, [SYSTEM, FIRST]),
        conversation(ONE, 7, [FIRST]),
        conversation(ONE, 7, [SYSTEM, {"role": "user", "content": "other"}]),
        conversation(ONE, 7, [SYSTEM, {"role": "user", "content": long}]),
        conversation(ONE, 7, [SYSTEM, {"role": "user", "content": long + "x"}]),
        conversation(ONE, 7, [SYSTEM, {"role": "user", "content": None}]),
    }
    assert len(found) == 8


def test_a_seat_is_kept_for_minutes() -> None:
    found = Seats()
    assert found.offer(1, 0.0) is None
    found.take(1, 40, 0.0)
    assert found.offer(1, 299.9) == 40
    assert found.offer(1, 300.0) is None
    found.take(1, 41, 300.0)
    assert found.offer(1, 301.0) == 41
    assert found.offer(2, 301.0) is None


def test_it_is_kept_for_as_long_as_the_cache_was_paid_for() -> None:
    found = Seats()
    body: dict[str, Any] = {"messages": [FIRST]}
    found.take(1, 40, 0.0, kept_seconds(body | {"prompt_cache_retention": "24h"}, False))
    assert found.offer(1, 1800.0) == found.offer(1, 86_399.0) == 40
    assert found.offer(1, 86_400.0) is None
    hour = [{"role": "system", "content": [{"type": "text", "text": "x", "cache_control": {"ttl": "1h"}}]}, FIRST]
    assert kept_seconds({"messages": hour}, True) == 3600
    assert kept_seconds({"messages": [FIRST], "tools": [{"cache_control": {"ttl": "1h"}}]}, True) == 3600
    for retention in ("in_memory", None, 24, {"24h": 1}):
        assert kept_seconds(body | {"prompt_cache_retention": retention}, True) == 300


def test_seats_are_bounded_and_the_oldest_goes() -> None:
    found = Seats()
    found.take(-1, 1, 0.0)
    found.take(-2, 2, 0.0)
    found.take(-1, 1, 0.0)
    for place in range(seats.MOST_SEATS - 1):
        found.take(place, 3, 0.0)
    assert found.offer(-2, 0.0) is None
    assert found.offer(-1, 0.0) == 1


def test_turns_follow_each_other_from_anywhere() -> None:
    found = Rotations(random.Random(1))
    turns = [found.turn("a") for _ in range(5)]
    assert turns == list(range(turns[0], turns[0] + 5))
    assert found.turn("b") != turns[0] + 5
    assert Rotations(random.Random(2)).turn("a") != turns[0]


def test_rotations_are_bounded() -> None:
    found = Rotations(random.Random(1))
    first = found.turn("a")
    for who in range(seats.MOST_ROTATIONS):
        found.turn(who)
    assert found.turn("a") != first + 1


def test_a_rotation_keeps_nothing_of_whom_it_counts_for() -> None:
    """A list of providers is as long as a client likes."""

    class Wish:
        pass

    found, wish = Rotations(random.Random(1)), Wish()
    first = found.turn(("a", wish))
    assert (found.turn(("a", wish)), found.coming(("a", wish))) == (first + 1, first + 2)
    kept = weakref.ref(wish)
    del wish
    assert kept() is None
    long = tuple(f"provider-{number}" for number in range(1000))
    assert found.turn((*long,)) + 1 == found.turn(long)
