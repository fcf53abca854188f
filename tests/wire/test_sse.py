"""The event framer: the WHATWG rules on bytes, wherever the network cut them."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import sse
from gateway.wire.sse import MAX_EVENT, MAX_LINES, Event, EventReader, EventTooLong


def read(*pieces: bytes) -> list[Event]:
    reader = EventReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.close()


def spelled_out(stream: bytes, *, ended: bool) -> list[Event]:
    """The same by the letter of the specification, over all there is; the end completes an event if it has come."""
    if stream.startswith(b"\xef\xbb\xbf"):
        stream = stream[3:]
    events: list[Event] = []
    data: list[bytes] = []
    name = b""
    lines = re.split(rb"\r\n|\r|\n", stream)
    for line in [*lines, b""] if ended else lines[:-1]:
        if not line:
            if b"\n".join(data):
                events.append(Event(name, b"\n".join(data)))
            name, data = b"", []
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"event":
            name = value
        elif field == b"data":
            data.append(value)
    return events


def test_it_reads_events_as_they_come() -> None:
    reader = EventReader()
    assert reader.feed(b'data: {"a":1}\n\ndata: [DO') == [Event(b"", b'{"a":1}')]
    assert reader.feed(b"NE]\n") == []
    assert reader.feed(b"\n") == [Event(b"", b"[DONE]")]
    assert reader.close() == []


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"", b"a"), (b"", b"b")]),
        (b"data: a\r\rdata: b\r\r", [(b"", b"a"), (b"", b"b")]),
        (b"data: a\r\n\rdata: b\n\r\ndata: c\r\n\n", [(b"", b"a"), (b"", b"b"), (b"", b"c")]),
        (b"data:a\n\ndata:  b\n\ndata\n\n", [(b"", b"a"), (b"", b" b")]),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [(b"", b"a")]),
        (b": c\n\n: c\ndata: a\n: c\n\n:\n\n", [(b"", b"a")]),
        (b"event: error\ndata: {\ndata: }\n\ndata: a\n\n", [(b"error", b"{\n}"), (b"", b"a")]),
        (b"data: a\nevent:late\n\n", [(b"late", b"a")]),
        (b"event: ping\ndata: \n\nevent: x\n\nevent: y\ndata\n\n", []),
        (b"data\ndata\n\n", [(b"", b"\n")]),
        (b"id: 1\nretry: 5\nfoo: x\n data: x\ndata: a\n\n", [(b"", b"a")]),
        (b"\n\n\n\ndata: a\n\n\n\n\n", [(b"", b"a")]),
        (b"data: a\xe2\x80\xa8b\xc2\x85c\x0b\x0c\x1c\n\n", [(b"", b"a\xe2\x80\xa8b\xc2\x85c\x0b\x0c\x1c")]),
        (b"data: a\x00\n\n", [(b"", b"a\x00")]),
        (b"data: a:b: c\n\n", [(b"", b"a:b: c")]),
        (b"data: a\n", [(b"", b"a")]),
        (b"data: a", [(b"", b"a")]),
        (b"data: a\r", [(b"", b"a")]),
        (b"event: e\ndata: a\ndata: b", [(b"e", b"a\nb")]),
        (b"", []),
        (b"\xef\xbb", []),
        (b"data", []),
    ],
)
def test_it_follows_the_rules_at_every_cut(stream: bytes, events: list[tuple[bytes, bytes]]) -> None:
    assert read(stream) == events
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == events
    for cut in range(len(stream) + 1):
        assert read(stream[:cut], b"", stream[cut:]) == events


def test_a_bare_cr_does_not_hold_an_event_back() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\r\r") == [Event(b"", b"a")]
    assert reader.feed(b"data: b\r\n\r") == [Event(b"", b"b")]
    assert reader.feed(b"\ndata: c\n\n") == [Event(b"", b"c")]


def test_it_takes_an_event_of_the_full_size() -> None:
    line = b"data: " + b"x" * (MAX_EVENT - 6)
    assert read(line + b"\n\n") == [Event(b"", line[6:])]
    assert read(line, b"\n", b"\n") == [Event(b"", line[6:])]
    assert read(line + b"\n") == [Event(b"", line[6:])]


@pytest.mark.parametrize("cut", [1, 10, MAX_EVENT // 2, MAX_EVENT + 1])
def test_it_refuses_a_longer_one(cut: int) -> None:
    stream = b"data: " + b"x" * (MAX_EVENT - 5) + b"\n\n"
    reader = EventReader()
    with pytest.raises(EventTooLong):
        for piece in (stream[:cut], stream[cut:]):
            reader.feed(piece)


def test_it_refuses_many_short_lines_without_end() -> None:
    reader = EventReader()
    with pytest.raises(EventTooLong):
        for _ in range(MAX_EVENT):
            reader.feed(b"data: x\n" * 1000)
    with pytest.raises(EventTooLong):
        read(b"data: x\n" * (MAX_LINES + 1) + b"\n")
    assert len(read(b"data: x\n" * MAX_LINES + b"\n")[0].data) == 2 * MAX_LINES - 1


def test_many_events_together_may_be_longer() -> None:
    stream = (b"data: " + b"x" * 1000 + b"\n\n") * 3000
    assert len(read(stream)) == 3000


def test_what_it_writes_it_reads() -> None:
    stream = sse.encode(b'{"a":1}') + sse.comment("keep-alive") + sse.DONE
    assert stream == b'data: {"a":1}\n\n: keep-alive\n\ndata: [DONE]\n\n'
    assert read(stream) == [Event(b"", b'{"a":1}'), Event(b"", b"[DONE]")]


fields = st.sampled_from([b"data", b"data: ", b"data:", b"event: e", b":", b" ", b"x", b"{}", b"\xef\xbb\xbf"])
ends = st.sampled_from([b"\n", b"\n\n", b"\r", b"\r\r", b"\r\n", b"\r\n\r\n", b"\n\r"])
streams = st.lists(fields | ends | st.binary(max_size=3), max_size=40).map(b"".join)


@given(streams, st.lists(st.integers(0, 200), max_size=6))
def test_cuts_make_no_difference(stream: bytes, cuts: list[int]) -> None:
    pieces = [stream[start:end] for start, end in pairwise([0, *sorted(cuts), max(200, len(stream))])]
    assert b"".join(pieces) == stream
    assert read(*pieces) == spelled_out(stream, ended=True)


@given(streams)
def test_an_event_comes_with_the_byte_that_completes_it(stream: bytes) -> None:
    reader = EventReader()
    events = []
    for at in range(len(stream)):
        events += reader.feed(stream[at : at + 1])
        assert events == spelled_out(stream[: at + 1], ended=False)
    reader = EventReader()
    cut = len(stream) // 2
    assert reader.feed(stream[:cut]) + reader.feed(stream[cut:]) == spelled_out(stream, ended=False)
