"""A large answer is read in a thread: what comes of it is the same, and nobody sees it half read."""

import asyncio

import pytest

from gateway.generation import reading
from gateway.wire.errors import UpstreamFault
from tests.protocols.openai_chat.answers import DONE, chunk, reader, whole

LARGE = "x" * (4 << 20)


def test_a_large_event_and_a_large_body_are_read_as_small_ones() -> None:
    async def read() -> None:
        streamed, at_once = reader(), reader(stream=False)
        upstream = chunk({"content": LARGE}) + chunk({}, "stop") + DONE
        frames = await reading.feed(streamed, upstream[:100]) + await reading.feed(streamed, upstream[100:])
        assert LARGE.encode() in b"".join(frames)
        await reading.feed(at_once, whole({"content": LARGE}))
        await reading.end(at_once)
        for answer in (streamed, at_once):
            assert (answer.complete, answer.relayed_bytes) == (True, len(LARGE))

    asyncio.run(read())


def test_its_fault_is_told() -> None:
    async def read() -> None:
        with pytest.raises(UpstreamFault):
            await reading.feed(reader(), b"data: {" + LARGE.encode() + b"\n\n")

    asyncio.run(read())


def test_who_is_cancelled_leaves_when_the_thread_is_done() -> None:
    async def read() -> None:
        answer = reader(stream=False)
        await reading.feed(answer, whole({"content": LARGE}))
        task = asyncio.create_task(reading.end(answer))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert answer.complete

    asyncio.run(read())
