"""A large answer is read in a thread: what comes of it is the same, and nobody sees it half read."""

import asyncio
from uuid import uuid4

import pytest

from gateway.generation import reading
from gateway.process.memory import Memory, NoRoom, Share
from gateway.wire.errors import UpstreamFault
from tests.protocols.openai_chat.answers import DONE, chunk, reader, whole

LARGE = "x" * (4 << 20)


def share(most: int = 64 << 20) -> Share:
    """Of a process's memory, of which nobody else has any."""
    return Share(uuid4(), uuid4(), Memory(most))


def test_a_large_event_and_a_large_body_are_read_as_small_ones() -> None:
    async def read() -> None:
        streamed, at_once = reader(), reader(stream=False)
        upstream = chunk({"content": LARGE}) + chunk({}, "stop") + DONE
        frames = await reading.feed(streamed, upstream[:100], share()) + await reading.feed(
            streamed, upstream[100:], share()
        )
        assert LARGE.encode() in b"".join(frames)
        await reading.feed(at_once, whole({"content": LARGE}), share())
        await reading.end(at_once)
        for answer in (streamed, at_once):
            assert (answer.complete, answer.relayed_bytes) == (True, len(LARGE))

    asyncio.run(read())


def test_its_fault_is_told() -> None:
    async def read() -> None:
        with pytest.raises(UpstreamFault):
            await reading.feed(reader(), b"data: {" + LARGE.encode() + b"\n\n", share())

    asyncio.run(read())


def test_who_is_cancelled_leaves_when_the_thread_is_done() -> None:
    async def read() -> None:
        answer = reader(stream=False)
        await reading.feed(answer, whole({"content": LARGE}), share())
        task = asyncio.create_task(reading.end(answer))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert answer.complete

    asyncio.run(read())


def test_what_is_kept_until_the_end_is_counted_once_it_is_much() -> None:
    async def read() -> None:
        memory = share()
        answer, body = reader(stream=False), whole({"content": LARGE})
        await reading.feed(answer, body[: reading.ORDINARY], memory)
        assert memory.held == 0
        await reading.feed(answer, body[reading.ORDINARY :], memory)
        assert memory.held == len(body)
        collected = reader(stream=False)
        for _ in range(300):
            await reading.feed(collected, chunk({"content": "x" * 1_000}), memory)
        assert memory.held == len(body)  # a share is of one answer, which this one is not larger than
        memory.free()
        for _ in range(300):
            await reading.feed(collected, chunk({"content": "x" * 1_000}), memory)
        assert 600_000 <= memory.held <= 600_000 + 600 * 200 + reading.ORDINARY

    asyncio.run(read())


def test_what_goes_out_as_it_comes_is_not_kept() -> None:
    async def read() -> None:
        memory = share(0)
        answer = reader()
        for _ in range(300):
            assert await reading.feed(answer, chunk({"content": "x" * 1_000}), memory)
        assert memory.held == 0

    asyncio.run(read())


def test_without_room_nothing_is_read() -> None:
    async def read() -> None:
        answer, memory = reader(stream=False), share(1 << 20)
        with pytest.raises(NoRoom) as refused:
            await reading.feed(answer, whole({"content": LARGE}), memory)
        assert (refused.value.status, refused.value.code, refused.value.retry_after) == (503, "out_of_memory", 2)
        assert (answer.kept, memory.held) == (0, 0)

    asyncio.run(read())
