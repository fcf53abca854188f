"""The misbehaviours whose bytes are odd: unreadable, wrongly framed, compressed, or without end."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, count, islice, repeat
from typing import Any

import msgspec

from . import chat
from .answer import THOUGHTS
from .faults import at, fault
from .models import BadOption
from .plan import Call, Plan, Say, Step, Stop, Transfer, Wait, whole

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GARBAGE = b"\x00\xff\xfe<<< neither JSON nor text >>>\x80"
FULL_BLOCK = b" " * MIB


# --- bodies that cannot be read ---
@fault(chat=False)
def garbage(call: Call) -> Plan:
    kind = "text/event-stream; charset=utf-8" if chat.streamed(call) else "application/json"
    return whole(GARBAGE, headers=chat.headers(call, kind))


@fault(chat=False)
def empty_body(call: Call) -> Plan:
    kind = "text/event-stream; charset=utf-8" if chat.streamed(call) else "application/json"
    return whole(b"", headers=chat.headers(call, kind))


@fault(takes="count")
def half_json(call: Call) -> Plan:
    data = chat.completion(call)
    half = data[: len(data) // 2]
    if chat.streamed(call):
        return _with_event(call, b'{"id":"half","choices":[{"index":0,"del')
    return _unreadable(call, half)


@fault(takes="count")
def half_utf8(call: Call) -> Plan:
    if chat.streamed(call):
        broken = chat.chunk(call, [{"index": 0, "delta": {"content": "€"}, "finish_reason": None}], None)
        return _with_event(call, broken.replace("€".encode(), b"\xe2\x82"))
    data = chat.completion(call)
    return _unreadable(call, data.replace(b'"assistant"', b'"assistant\xe2\x82"'))


@fault()
def empty_choices(call: Call) -> Plan:
    if chat.streamed(call):
        nothing = Say(chat.event(call, chat.chunk(call, [], None)))
        return replace(chat.stream(call, [nothing, chat.done(call)]), counted=None)
    answer: dict[str, Any] = msgspec.json.decode(chat.completion(call))
    answer.pop("usage", None)
    data = msgspec.json.encode({**answer, "choices": []})
    return whole(data, headers=chat.headers(call, "application/json"))


@fault(only="stream")
def done_only(call: Call) -> Plan:
    return replace(chat.stream(call, [chat.done(call)]), counted=None)


@fault(only="stream")
def comments_only(call: Call) -> Plan:
    return replace(chat.stream(call, [Say(b": PROCESSING\n\n")] * 2), counted=None)


def _with_event(call: Call, payload: bytes) -> Plan:
    events = chat.opening(call)
    broken = Say(chat.event(call, payload))
    rest = (chat.finish(call), chat.accounting(call), (chat.done(call),))
    return chat.stream(call, chain(islice(events, at(call)), (broken,), events, *rest))


def _unreadable(call: Call, data: bytes) -> Plan:
    counted = call.answer.counted
    step = Say(data, counted.completion, counted.reasoning)
    return replace(chat.right(call), steps=(step,), length=len(data))


# --- HTTP that is not right ---
@fault(only="whole", takes="word")
def bad_length(call: Call) -> Plan:
    good = chat.right(call)
    match call.behaviour.argument:
        case "short":
            # The connection stays open: what the client leaves unread would head its next answer.
            return replace(good, length=good.length // 2)
        case "long":
            return replace(good, length=good.length + 100, steps=chain(good.steps, (Stop.CUT,)))
    raise BadOption("bad_length takes @short or @long")


@fault(only="whole")
def cl_and_te(call: Call) -> Plan:
    good = chat.right(call)
    header = ("Content-Length", str(good.length))
    return replace(good, transfer=Transfer.CHUNKED, headers=(*good.headers, header))


@fault(chat=False)
def http09(call: Call) -> Plan:
    return Plan(steps=(Say(b'{"choices":[]}'),), transfer=Transfer.RAW)


@fault(chat=False)
def bad_status_line(call: Call) -> Plan:
    return Plan(steps=(Say(b"SIMULATED/7 two hundred\r\nContent-Length: 2\r\n\r\n{}"),), transfer=Transfer.RAW)


@fault()
def flood_1xx(call: Call) -> Plan:
    return replace(chat.right(call), before=b"HTTP/1.1 102 Processing\r\n\r\n" * 1000)


@fault(takes="count")
def header_flood(call: Call) -> Plan:
    good = chat.right(call)
    flood = tuple((f"X-Flood-{number}", "1") for number in range(at(call, 100_000)))
    return replace(good, headers=(*good.headers, *flood))


@fault()
def big_header(call: Call) -> Plan:
    good = chat.right(call)
    return replace(good, headers=(*good.headers, ("X-Big", "b" * size(call, MIB))))


# --- too much ---
@fault(only="whole")
def big_body(call: Call) -> Plan:
    """Padding goes between the opening brace and the first key, so the body is still the right JSON."""
    good = chat.right(call)
    counted = call.answer.counted
    data = chat.completion(call)
    padding = size(call, 64 * MIB)
    last = Say(data[1:], counted.completion, counted.reasoning, chat.reported(call))
    return replace(good, length=len(data) + padding, steps=chain((Say(data[:1]),), _spaces(padding), (last,)))


@fault(only="stream")
def big_line(call: Call) -> Plan:
    events = chat.opening(call)
    rest = (chat.finish(call), chat.accounting(call), (chat.done(call),))
    line = chain((Say(b"data: "),), _spaces(size(call, 2 * MIB)), (Say(b"{}\n\n"),))
    return chat.stream(call, chain(islice(events, 1), line, events, *rest))


@fault(only="stream")
def infinite(call: Call) -> Plan:
    words = (THOUGHTS[place % len(THOUGHTS)] for place in count())
    deltas = ({"index": 0, "delta": {"content": f" {word}"}, "finish_reason": None} for word in words)
    events = (Say(chat.event(call, chat.chunk(call, [delta], None)), 1) for delta in deltas)
    return chat.stream(call, chain(islice(chat.opening(call), 1), events))


@fault()
def drip(call: Call) -> Plan:
    """Only the first byte of each event is the event: the tokens are counted there, the rest is its drip."""
    good = chat.right(call)
    return replace(good, steps=_dripped(good.steps, call.behaviour.every))


def size(call: Call, default: int) -> int:
    """The behaviour's `size` in bytes."""
    return default if call.behaviour.size is None else call.behaviour.size


def _spaces(total: int) -> Iterator[Say]:
    block = Say(b" " * (64 * KIB))
    yield from repeat(block, total // len(block.data))
    yield Say(b" " * (total % len(block.data)))


def _dripped(steps: Iterable[Step], every: float) -> Iterator[Step]:
    for step in steps:
        if isinstance(step, Say):
            yield replace(step, data=step.data[:1])
            for byte in step.data[1:]:
                yield Wait(every)
                yield Say(bytes([byte]))
        else:
            yield step


# --- compression ---
@fault()
def gzip(call: Call) -> Plan:
    good = chat.right(call)
    headers = (*good.headers, ("Content-Encoding", "gzip"))
    if chat.streamed(call):
        return replace(good, headers=headers, steps=_compressed(good.steps))
    step = _zipped(call)
    return replace(good, headers=headers, length=len(step.data), steps=(step,))


@fault(only="whole")
def gzip_truncated(call: Call) -> Plan:
    good = chat.right(call)
    step = _zipped(call)
    half = replace(step, data=step.data[: len(step.data) // 2], usage=None)
    headers = (*good.headers, ("Content-Encoding", "gzip"))
    return replace(good, headers=headers, length=len(half.data), steps=(half,))


@fault()
def gzip_bomb(call: Call) -> Plan:
    good = chat.right(call)
    headers = (*good.headers, ("Content-Encoding", "gzip"))
    return replace(good, headers=headers, transfer=Transfer.CHUNKED, steps=_bomb(size(call, GIB)), counted=None)


@fault()
def br(call: Call) -> Plan:
    return whole(GARBAGE, headers=(*chat.headers(call, "application/json"), ("Content-Encoding", "br")))


def _zipped(call: Call) -> Say:
    counted = call.answer.counted
    # mtime 0 in the header that zlib writes: the same answer is the same bytes.
    packer = zlib.compressobj(wbits=31)
    data = packer.compress(chat.completion(call)) + packer.flush()
    return Say(data, counted.completion, counted.reasoning, chat.reported(call))


def _compressed(steps: Iterable[Step]) -> Iterator[Step]:
    packer = zlib.compressobj(wbits=31)
    for step in steps:
        if isinstance(step, Say):
            yield replace(step, data=packer.compress(step.data) + packer.flush(zlib.Z_SYNC_FLUSH))
        else:
            yield step
    yield Say(packer.flush())


def _bomb(total: int) -> Iterator[Say]:
    """Spaces, packed a thousandfold. A fully flushed block refers to nothing before it: one is repeated."""
    packer = zlib.compressobj(9, wbits=-15)
    block = packer.compress(FULL_BLOCK) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    yield Say(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff")
    for _ in range(total // MIB):
        checksum = zlib.crc32(FULL_BLOCK, checksum)
        yield Say(block)
    rest = FULL_BLOCK[: total % MIB]
    checksum = zlib.crc32(rest, checksum)
    last = zlib.compressobj(9, wbits=-15)
    trailer = checksum.to_bytes(4, "little") + (total % (1 << 32)).to_bytes(4, "little")
    yield Say(last.compress(rest) + last.flush() + trailer)
