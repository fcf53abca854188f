"""A text that goes on from another one, and begins it anew: what is repeated is dropped, or it is no answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.openai_chat.answer.repeated import Repeated
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault


def shown(before: str, text: str, size: int = 1000) -> str:
    """What is shown of a text that comes in pieces of this size."""
    repeated, out = Repeated(before), ""
    for at in range(0, len(text), size):
        out += repeated.feed(text[at : at + size]) if repeated.open else text[at : at + size]
    return out + (repeated.end() if repeated.open else "")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(
    ("before", "text", "new"),
    [
        ("one two ", "one two three", "three"),
        ("one two", "one two three", " three"),
        ("one two", " three", " three"),
        ("one two\n", " one two\n\nthree", "\nthree"),
        ("one two", "\n\none two", ""),
        ("one \n", " \ntwo", "two"),
        ("one \n", "\ntwo", "\ntwo"),
        ("one \n", " two", "two"),
        ("The cat sat on the mat. ", "The dog did not.", "The dog did not."),
        ("The cat sat on the mat. ", "The", "The"),
        ("one", "two", "two"),
        ("one", "", ""),
        ("one", " \n", " \n"),
        ("a", "b", "b"),
        ("Die Stra\u00dfe \U0001f600 ist", "Die Stra\u00dfe \U0001f600 ist leer", " leer"),
    ],
)
def test_it_is_said_once_however_it_is_cut(before: str, text: str, new: str, size: int) -> None:
    assert shown(before, text, size) == new


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(
    ("before", "text"),
    [
        ("The answer is 42, because", "The answer is 41, since"),
        ("The answer is 42, because", "The answer is 42"),
        ("The cat sat", "The cat stood"),
        ("ha ha ha ", "ha ha ha ha"),
        ("10101010", "1010101010"),
        ("a", "a b"),
        ("1", "1"),
        ("one\none\n", "one\none\none\n"),
    ],
)
def test_where_it_cannot_be_told_it_is_broken(before: str, text: str, size: int) -> None:
    with pytest.raises(UpstreamFault) as caught:
        shown(before, text, size)
    assert caught.value.kind is Fault.TRUNCATED


@given(st.text(min_size=1), st.text(), st.integers(1, 9))
def test_it_is_the_same_however_it_is_cut(before: str, text: str, size: int) -> None:
    def outcome(size: int) -> str | None:
        try:
            return shown(before, text, size)
        except UpstreamFault:
            return None

    assert outcome(size) == outcome(1000)
