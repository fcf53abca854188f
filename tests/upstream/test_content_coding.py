"""A compressed body is undone piece by piece, under a cap; and the same over the wire."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.content_coding import FREE, MAX_MEMBERS, MAX_RATIO, PIECE, Inflater, Undecodable
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault
from tests.upstream.raw_upstream import CHUNKED, Peer, RawUpstream, answer, call, chunk, client, on_both_loops, says

BODY = b'{"choices":[{"message":{"content":"' + bytes(range(32, 127)) * 40 + b'"}}]}'


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def stored_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(level=0, wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


ENCODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", bare_deflate),
    "stored deflate": ("deflate", stored_deflate),
    "gzip in members": (
        "gzip",
        lambda data: b"".join(gzip.compress(data[i : i + 999]) for i in range(0, len(data), 999)),
    ),
}
encoders = pytest.mark.parametrize("encoder", ENCODERS)


@cache
def bomb(packed_kilobytes: int) -> bytes:
    """gzip of zeros, about 1000 times as long as this, but for its end, which nobody may come to."""
    packer = zlib.compressobj(level=9, wbits=zlib.MAX_WBITS | 16)
    # A full flush forgets what was before: each megabyte after the first is packed alike.
    first, next = (packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + next * (packed_kilobytes - 1)


def inflate(inflater: Inflater, *pieces: bytes) -> bytes:
    made = []
    for piece in pieces:
        inflater.push(piece)
        while out := inflater.pull():
            assert len(out) <= PIECE
            made.append(out)
    inflater.finish()
    return b"".join(made)


@encoders
@settings(deadline=None)
@given(st.data())
def test_it_works_however_the_bytes_are_cut(encoder: str, data: st.DataObject) -> None:
    coding, encode = ENCODERS[encoder]
    packed = encode(BODY)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(packed)), max_size=8)))
    pieces = [packed[start:end] for start, end in zip([0, *cuts], [*cuts, len(packed)], strict=True)]
    assert inflate(Inflater(coding), *pieces) == BODY


@encoders
def test_a_body_of_many_pieces_is_whole(encoder: str) -> None:
    coding, encode = ENCODERS[encoder]
    body = b"".join(b"%07d" % number for number in range(9000))
    assert inflate(Inflater(coding), encode(body)) == body


@encoders
def test_every_cut_off_end_is_noticed(encoder: str) -> None:
    coding, encode = ENCODERS[encoder]
    packed = encode(b"hello")
    for length in range(1, len(packed)):
        with pytest.raises(Undecodable):
            inflate(Inflater(coding), packed[:length])


def test_an_empty_body_is_empty() -> None:
    assert inflate(Inflater("gzip")) == b""
    assert inflate(Inflater("gzip"), gzip.compress(b"")) == b""


@pytest.mark.parametrize("packed", [b"{}", b"\x1f\x8b\x08junkjunkjunk", gzip.compress(BODY) + b"junk", b"\0" * 20])
def test_what_is_not_gzip_is_refused(packed: bytes) -> None:
    with pytest.raises(Undecodable):
        inflate(Inflater("gzip"), packed)


def test_a_flipped_bit_is_noticed() -> None:
    packed = bytearray(gzip.compress(BODY))
    packed[-6] ^= 1  # in the checksum
    with pytest.raises(Undecodable):
        inflate(Inflater("gzip"), bytes(packed))


def test_nothing_follows_a_deflated_body() -> None:
    with pytest.raises(Undecodable):
        inflate(Inflater("deflate"), zlib.compress(BODY) + zlib.compress(BODY))


def test_members_are_counted() -> None:
    member = gzip.compress(b"x")
    assert inflate(Inflater("gzip"), member * MAX_MEMBERS) == b"x" * MAX_MEMBERS
    with pytest.raises(Undecodable):
        inflate(Inflater("gzip"), member * (MAX_MEMBERS + 1))


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip", "gzip, br", "GZIP", "", "identity", "*"])
def test_a_coding_that_was_not_asked_for_is_refused(coding: str) -> None:
    with pytest.raises(Undecodable):
        Inflater(coding)


def test_a_bomb_goes_off_in_a_teacup() -> None:
    inflater = Inflater("gzip")
    inflater.push(bomb(64))
    made = 0
    tracemalloc.start()
    with pytest.raises(Undecodable):
        while piece := inflater.pull():
            made += len(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made <= FREE
    assert peak < 2_000_000


def test_a_large_body_of_usual_text_is_no_bomb() -> None:
    event = b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"delta":{"content":"%d"}}]}\n\n'
    body = b"".join(event % number for number in range(50_000))
    packed = gzip.compress(body)
    assert len(body) > 3 * FREE and 10 < len(body) / len(packed) < MAX_RATIO
    assert inflate(Inflater("gzip"), packed) == body


@encoders
@on_both_loops
async def test_a_compressed_answer_arrives_plain(encoder: str) -> None:
    coding, encode = ENCODERS[encoder]
    said = answer(encode(BODY), f"Content-Encoding: {coding.upper()}", status="429 Too Many Requests")
    async with RawUpstream(says(said)) as server, client(server) as upstream:
        for _ in range(2):
            reply = await upstream.dial(call(server))
            assert (reply.status, await reply.read_all()) == (429, BODY)
        assert server.connections == 1


@pytest.mark.parametrize("wbits", [zlib.MAX_WBITS | 16, zlib.MAX_WBITS, -zlib.MAX_WBITS])
@on_both_loops
async def test_the_first_event_of_a_compressed_stream_comes_before_the_second_exists(wbits: int) -> None:
    more = asyncio.Event()
    head = CHUNKED[:-2] + b"Content-Encoding: %b\r\n\r\n" % (b"gzip" if wbits > 15 else b"deflate")

    async def script(peer: Peer) -> None:
        await peer.request()
        packer = zlib.compressobj(wbits=wbits)
        await peer.send(head + chunk(packer.compress(b"data: 1\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)))
        await more.wait()
        await peer.send(chunk(packer.compress(b"data: 2\n\n") + packer.flush()) + chunk(b""))
        await peer.left()

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        assert await reply.read() == b"data: 1\n\n"
        more.set()
        assert await reply.read() == b"data: 2\n\n"
        assert await reply.read() == b""


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(BODY)[:-9]),
        ("gzip", b"not gzip"),
        ("br", b"\x0b\x00\x80hello\x03"),
        ("zstd", b"\x28\xb5\x2f\xfd"),
        ("gzip, br", gzip.compress(BODY)),
    ],
    ids=["cut short", "corrupt", "br", "zstd", "two codings"],
)
@on_both_loops
async def test_a_body_that_cannot_be_decoded_is_an_invalid_response(coding: str, body: bytes) -> None:
    said = answer(body, f"Content-Encoding: {coding}", status="503 Busy")
    async with RawUpstream(says(said)) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        assert reply.status == 503  # The status is known all the same.
        with pytest.raises(UpstreamFault) as caught:
            await reply.read_all()
        assert (caught.value.kind, caught.value.upstream_status) == (Fault.INVALID_RESPONSE, 503)


@on_both_loops
async def test_a_bomb_over_the_wire_costs_no_memory() -> None:
    packed = bomb(1024)  # 1 MB, for 1 GB
    said = answer(packed, "Content-Encoding: gzip")
    assert len(packed) < 1_100_000
    async with RawUpstream(says(said)) as server, client(server) as upstream:
        tracemalloc.start()
        reply = await upstream.dial(call(server))
        read = 0
        with pytest.raises(UpstreamFault) as caught:
            while piece := await reply.read():
                read += len(piece)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert caught.value.kind is Fault.INVALID_RESPONSE
        assert read <= FREE
        assert peak < 16 * 1024 * 1024


@on_both_loops
async def test_the_limit_of_a_whole_body_counts_plain_bytes() -> None:
    said = answer(gzip.compress(BODY), "Content-Encoding: gzip")
    async with RawUpstream(says(said)) as server, client(server) as upstream:
        assert await (await upstream.dial(call(server))).read_all(limit=len(BODY)) == BODY
        with pytest.raises(UpstreamFault) as caught:
            await (await upstream.dial(call(server))).read_all(limit=len(BODY) - 1)
        assert caught.value.kind is Fault.INVALID_RESPONSE
