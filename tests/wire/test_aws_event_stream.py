"""Frames of AWS's event streams, read as AWS's own library reads them, however cut; what was changed is refused."""

from struct import pack
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.aws_event_stream import MAX_HEADERS, MAX_PAYLOAD, BadFrame, Frame, FrameReader
from tests.wire.frames import Header, frame, sealed, sized, text

CHUNK = frame(b'{"bytes":"e30="}', (text(":message-type", "event"), text(":event-type", "chunk")))
ALL_TYPES: tuple[Header, ...] = (
    ("yes", 0, b""),
    ("no", 1, b""),
    ("byte", 2, b"\xff"),
    ("short", 3, pack(">h", -2)),
    ("int", 4, pack(">i", 70_000)),
    ("long", 5, pack(">q", -(2**40))),
    ("bytes", 6, sized(b"\x00\x01")),
    text("text", "wörld"),
    ("time", 8, pack(">q", 1_700_000_000_000)),
    ("id", 9, UUID(int=7).bytes),
)


def test_a_frame_has_headers_of_every_type_and_a_payload() -> None:
    assert FrameReader().feed(frame(b"pay", ALL_TYPES)) == [
        Frame(
            {
                "yes": True,
                "no": False,
                "byte": -1,
                "short": -2,
                "int": 70_000,
                "long": -(2**40),
                "bytes": b"\x00\x01",
                "text": "wörld",
                "time": 1_700_000_000_000,
                "id": UUID(int=7).bytes,
            },
            b"pay",
        )
    ]


def test_however_a_stream_is_cut_it_gives_the_same_frames() -> None:
    stream = CHUNK + frame() + frame(b"pay", ALL_TYPES)
    whole = FrameReader().feed(stream)
    assert len(whole) == 3
    for at in range(len(stream) + 1):
        reader = FrameReader()
        assert [*reader.feed(stream[:at]), *reader.feed(stream[at:])] == whole
        reader.close()
    single = FrameReader()
    assert [made for at in range(len(stream)) for made in single.feed(stream[at : at + 1])] == whole


def test_a_frame_whose_bytes_were_changed_is_refused() -> None:
    for at in range(len(CHUNK)):
        for bit in (1, 0x80):
            changed = bytearray(CHUNK)
            changed[at] ^= bit
            with pytest.raises(BadFrame):
                FrameReader().feed(bytes(changed))


def test_a_frame_is_given_before_the_next_one_is_refused_only_by_itself() -> None:
    reader = FrameReader()
    assert len(reader.feed(CHUNK)) == 1
    with pytest.raises(BadFrame):
        reader.feed(CHUNK[:-1] + b"\x00")


def test_however_a_stream_is_cut_what_is_no_frame_is_told_behind_those_before_it() -> None:
    broken = bytearray(CHUNK)
    broken[-1] ^= 1
    stream = CHUNK + CHUNK + bytes(broken) + CHUNK
    for at in range(len(stream) + 1):
        reader, found = FrameReader(), 0
        with pytest.raises(BadFrame, match="the sum of a frame is wrong"):
            for part in (stream[:at], stream[at:], b""):
                found += len(reader.feed(part))
        assert (found, reader.pending) == (2, 0)
        for _ in range(2):  # nothing is given any more
            with pytest.raises(BadFrame):
                reader.feed(CHUNK)
        with pytest.raises(BadFrame):
            reader.close()


@pytest.mark.parametrize(
    "stream",
    [
        sealed(15, 0, b""),
        sealed(16, 1, b""),
        sealed(2**32 - 1, 0, b""),
        sealed(16 + MAX_PAYLOAD + 1, 0, b""),
        sealed(16 + MAX_HEADERS + 1, MAX_HEADERS + 1, b""),
        frame(headers=(("a", 10, b""),)),
        frame(headers=(("a", 7, b"\x00\x05ab"),)),
        frame(headers=(("a", 5, b"\x00"),)),
        frame(headers=(("a", 7, sized(b"\xff")),)),
        frame(headers=(text("a", "1"), text("a", "1"))),
        frame(headers=(("a", 0, b""), ("a", 0, b""))),
    ],
)
def test_what_is_no_frame_is_refused_before_it_is_waited_for(stream: bytes) -> None:
    with pytest.raises(BadFrame):
        FrameReader().feed(stream)


def test_a_stream_that_ends_inside_a_frame_is_told() -> None:
    reader = FrameReader()
    reader.feed(CHUNK + CHUNK[:20])
    assert reader.pending == 20
    with pytest.raises(BadFrame):
        reader.close()


names = st.text("abcdefghijklmnop:-", min_size=1, max_size=20)
header = st.one_of(
    st.tuples(names, st.just(7), st.text(max_size=20).map(lambda value: sized(value.encode("utf-8", "replace")))),
    st.tuples(names, st.just(6), st.binary(max_size=20).map(sized)),
    st.tuples(names, st.just(4), st.integers(-(2**31), 2**31 - 1).map(lambda value: pack(">i", value))),
    st.tuples(names, st.sampled_from([0, 1]), st.just(b"")),
)
frames = st.builds(frame, st.binary(max_size=60), st.lists(header, max_size=4, unique_by=lambda one: one[0]).map(tuple))


@given(st.lists(frames, max_size=4), st.lists(st.integers(1, 40), min_size=1, max_size=10))
def test_aws_s_own_library_reads_the_same(made: list[bytes], cuts: list[int]) -> None:
    eventstream: Any = pytest.importorskip("botocore.eventstream")
    stream, reader, theirs = b"".join(made), FrameReader(), eventstream.EventStreamBuffer()
    ours: list[Frame] = []
    at = 0
    while at < len(stream):
        size = cuts[at % len(cuts)]
        ours += reader.feed(stream[at : at + size])
        at += size
    theirs.add_data(stream)
    assert ours == [Frame(one.headers, one.payload) for one in theirs]
    assert len(ours) == len(made)
