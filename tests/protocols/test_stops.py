"""Stop sequences that the gateway looks for: found wherever chunks end, stripped, and nothing held back for long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.stops import Stopper


def told(sequences: list[str], chunks: list[str]) -> tuple[str, str | None]:
    """The text shown of these chunks, and the sequence that ended it."""
    stopper = Stopper(sequences)
    shown = "".join(stopper.feed(chunk) for chunk in chunks)
    return shown + stopper.end(), stopper.matched


def whole(sequences: list[str], text: str) -> tuple[str, str | None]:
    """The rule, over a whole text: the first character with which a sequence is whole; the longest one there."""
    for end in range(len(text) + 1):
        found = [sequence for sequence in sequences if text[:end].endswith(sequence)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


@pytest.mark.row("B089")
@pytest.mark.parametrize(
    ("sequences", "chunks", "shown", "matched"),
    [
        (["END"], ["so it ENDs"], "so it ", "END"),
        (["END"], ["so it E", "N", "D", "s", " more"], "so it ", "END"),
        (["END"], ["so it E", "N", "d"], "so it ENd", None),
        (["END"], ["so it EN"], "so it EN", None),
        (["END", "\n\n"], ["one\n", "\ntwo END"], "one", "\n\n"),
        (["abcd", "bc"], ["xab", "cd"], "xa", "bc"),
        (["bc", "abc"], ["xab", "cd"], "x", "abc"),
        (["aab"], ["aa", "ab"], "a", "aab"),
        (
            ["\U0001f469\u200d\U0001f4bb"],
            ["hi \U0001f469", "\u200d", "\U0001f4bb!"],
            "hi ",
            "\U0001f469\u200d\U0001f4bb",
        ),
        (["x"], ["", "x", "y"], "", "x"),
        (["x"], [], "", None),
    ],
)
def test_an_answer_ends_before_the_first_sequence(
    sequences: list[str], chunks: list[str], shown: str, matched: str | None
) -> None:
    assert told(sequences, chunks) == (shown, matched)


@pytest.mark.row("B089")
def test_only_what_may_begin_a_sequence_is_held_back() -> None:
    stopper = Stopper(["</answer>", "STOP"])
    assert stopper.feed("a <") == "a "
    assert stopper.feed("/an") == ""
    assert stopper.feed("d more S") == "</and more "
    assert stopper.feed("T") == ""
    assert stopper.end() == "ST"
    assert stopper.end() == ""


def test_after_a_match_nothing_is_shown() -> None:
    stopper = Stopper(["."])
    assert stopper.feed("One. Two. ") == "One"
    assert stopper.matched == "."
    assert stopper.feed("Three") == ""
    assert stopper.end() == ""


@pytest.mark.parametrize("sequences", [[""], ["a", ""]])
def test_an_empty_sequence_is_a_mistake(sequences: list[str]) -> None:
    with pytest.raises(ValueError, match="empty"):
        Stopper(sequences)


few = st.text(alphabet="ab\n", max_size=12)


@given(
    st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(few, max_size=8),
)
def test_chunks_make_no_difference(sequences: list[str], chunks: list[str]) -> None:
    """Whatever they are, the text shown is that of the simple rule, and at most the longest sequence less one waits."""
    assert told(sequences, chunks) == whole(sequences, "".join(chunks))
    stopper, fed, shown = Stopper(sequences), 0, 0
    for chunk in chunks:
        fed += len(chunk)
        shown += len(stopper.feed(chunk))
        assert stopper.matched or fed - shown < max(map(len, sequences))
