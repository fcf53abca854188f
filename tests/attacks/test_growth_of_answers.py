"""A broken or hostile provider enlarges one structure of its answer; it costs as much as its bytes, or is refused."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gateway.protocols.openai_chat.answer.held import MAX_HELD
from tests.attacks.growth import Work, check_linear
from tests.protocols.openai_chat.answers import DONE, chunk, event, relay, usage, whole

Grow = Callable[[int], bytes]
OK = chunk({"role": "assistant", "content": "ok"})
STOP = chunk({}, "stop")
READ = 1 << 16  # Bytes that come at once.


def many(size: int, make: Callable[[int], Any]) -> list[Any]:
    return [make(at) for at in range(size)]


def events(size: int, make: Callable[[int], bytes]) -> bytes:
    return b"".join(many(size, make))


def call(at: int, **fields: Any) -> dict[str, Any]:
    return {"index": at, "id": f"c{at}", "function": {"name": "f", "arguments": "{}"}} | fields


def entry(at: int, **fields: Any) -> dict[str, Any]:
    return {"type": "reasoning.text", "text": "t", "index": at} | fields


def fields(size: int, make: Callable[[int], Any]) -> Any:
    """As many fields as named arguments of anything."""
    return {f"f{at}": make(at) for at in range(size)}


def field(at: int, value: Any) -> Any:
    return {f"f{at}": value}


def logprobs(size: int) -> dict[str, Any]:
    return {"content": many(size, lambda at: {"token": "t", "logprob": -0.5, "bytes": [116], "top_logprobs": []})}


IN_ONE_EVENT: dict[str, Grow] = {
    "choices": lambda n: chunk(choices=many(n, lambda at: {"index": 0, "delta": {"content": "x"}})),
    "choices that are empty": lambda n: chunk(choices=many(n, lambda at: {})),
    "calls": lambda n: chunk({"tool_calls": many(n, call)}),
    "fragments of a call": lambda n: chunk({"tool_calls": many(n, lambda at: call(0, id="c"))}),
    "fragments with changing ids": lambda n: chunk({"tool_calls": many(n, lambda at: {"index": 0, "id": f"c{at}"})}),
    "fragments without anything": lambda n: chunk({"tool_calls": many(n, lambda at: {})}),
    "fragments without a name": lambda n: chunk(
        {"tool_calls": many(n, lambda at: {"index": 0, "function": {"arguments": "x"}})}
    ),
    "names in pieces": lambda n: chunk({"tool_calls": many(n, lambda at: {"index": 0, "function": {"name": "x"}})}),
    "annotations": lambda n: chunk({"annotations": many(n, lambda at: {"type": "url_citation"})}),
    "log probabilities": lambda n: chunk({"content": "x"}, choice={"logprobs": logprobs(n)}),
    "entries of reasoning": lambda n: chunk({"reasoning_details": many(n, entry)}),
    "pieces of one entry": lambda n: chunk({"reasoning_details": many(n, lambda at: entry(0))}),
    "parts": lambda n: chunk({"content": many(n, lambda at: {"type": "text", "text": "x"})}),
    "parts of thinking": lambda n: chunk({"content": many(n, lambda at: {"type": "thinking", "thinking": ["x"]})}),
    "parts that nobody knows": lambda n: chunk({"content": many(n, lambda at: {"type": "odd"})}),
    "fields of a delta": lambda n: chunk({f"f{at}": "x" for at in range(n)}),
    "fields of a choice": lambda n: chunk({"content": "x"}, choice={f"f{at}": 1 for at in range(n)}),
    "fields of a chunk": lambda n: chunk({"content": "x"}, **{f"f{at}": 1 for at in range(n)}),
    "fields of the usage": lambda n: usage(3, 1, **{f"f{at}": 1 for at in range(n)}),
    "details of the usage": lambda n: usage(3, 1, prompt_tokens_details={f"f{at}": 1 for at in range(n)}),
    "usages": lambda n: chunk({"content": "x"}, **fields(n, lambda at: {"usage": {"prompt_tokens": 1}})),
    "a text": lambda n: chunk({"content": "x" * 100 * n}),
    "a picture": lambda n: chunk({"images": [{"image_url": {"url": "A" * 100 * n}}]}),
    "half characters": lambda n: chunk({"content": "@" * n}).replace(b"@", b"\\ud83d"),
    "lists": lambda n: b'data: {"choices":[],"x":[' + b"[]," * n + b"0]}\n\n",
    "numbers that are none": lambda n: b'data: {"choices":[],"x":[' + b"NaN," * n + b"0]}\n\n",
    "lines": lambda n: event({"choices": []}).replace(b"data: ", b"data: \n" * n + b"data: ", 1),
    "comments": lambda n: b": x\n" * n + b"\n",
    "a comment": lambda n: b":" + b"x" * 10 * n + b"\n\n",
    "an error": lambda n: event({"error": {"message": "x" * 10 * n, "details": many(n, str)}}),
}

OVER_EVENTS: dict[str, Callable[[int], bytes]] = {
    "deltas": lambda at: chunk({"content": "x"}),
    "choices": lambda at: chunk({"content": "x"}, index=at % 128),
    "choices without end": lambda at: chunk({"content": "x"}, index=at),
    "roles": lambda at: chunk({"role": "assistant", "content": ""}),
    "calls": lambda at: chunk({"tool_calls": [call(at)]}),
    "calls at one index": lambda at: chunk({"tool_calls": [call(0, id=f"c{at}")]}),
    "fragments": lambda at: chunk(
        {"tool_calls": [{"index": 0, "function": {"arguments": "x"}} | ({} if at else call(0))]}
    ),
    "fragments with changing ids": lambda at: chunk(
        {"tool_calls": [call(0, id=f"c{at}", function={"arguments": "x"})]}
    ),
    "fragments without a name": lambda at: chunk({"tool_calls": [{"index": 0, "function": {"arguments": "xxxx"}}]}),
    "fields of a call without a name": lambda at: chunk({"tool_calls": [{"index": 0, f"f{at}": "x"}]}),
    "an old function call": lambda at: chunk({"function_call": {"name": "f", "arguments": "x"}}),
    "annotations": lambda at: chunk({"annotations": [{"type": "url_citation", "url_citation": {"url": f"u{at}"}}]}),
    "log probabilities": lambda at: chunk({"content": "x"}, choice={"logprobs": logprobs(1)}),
    "entries of reasoning": lambda at: chunk({"reasoning_details": [entry(at)]}),
    "pieces of one entry": lambda at: chunk({"reasoning_details": [entry(0)]}),
    "signed entries": lambda at: chunk({"reasoning_details": [entry(0, signature="s")]}),
    "a thought": lambda at: chunk({"reasoning_content": "x"}),
    "thinking parts": lambda at: chunk({"content": [{"type": "thinking", "thinking": [{"text": "x"}]}]}),
    "fields of a delta": lambda at: chunk({f"f{at}": "x"}),
    "objects of a delta": lambda at: chunk({"audio": {f"f{at}": "x", "data": "AAAA"}}),
    "fields of a chunk": lambda at: chunk({"content": "x"}, **{f"f{at}": 1}),
    "ends": lambda at: chunk({}, "stop"),
    "fields beside an end": lambda at: chunk({}, "stop", choice={f"f{at}": at}, **{f"g{at}": at}),
    "log probabilities beside an end": lambda at: chunk({}, "stop", choice={"logprobs": logprobs(1)}),
    "usages": lambda at: usage(3, at),
    "fields of the usage": lambda at: usage(3, 1, **{f"f{at}": at}),
    "usages of vendors": lambda at: chunk({"content": "x"}, **field(at, {"usage": {"prompt_tokens": 1}})),
    "fields beside the usage": lambda at: chunk(choices=[], usage={"prompt_tokens": 1}, **{f"f{at}": at}),
    "pings": lambda at: b"event: ping\ndata: {}\n\n",
    "foreign events": lambda at: b'event: trace\ndata: {"a":1}\n\n',
    "comments": lambda at: b": x\n\n",
    "bare comments": lambda at: b":\n",
    "blank lines": lambda at: b"\n",
    "blank lines of another kind": lambda at: b"\r\n",
    "events without data": lambda at: b"data\n\n",
}

IN_ONE_BODY: dict[str, Grow] = {
    "choices": lambda n: json.dumps(
        {"choices": many(n, lambda at: {"index": 0, "message": {"content": "x"}})}
    ).encode(),
    "calls": lambda n: whole({"tool_calls": many(n, call)}, "tool_calls"),
    "calls without anything": lambda n: whole({"tool_calls": many(n, lambda at: {})}, "tool_calls"),
    "annotations": lambda n: whole({"content": "x", "annotations": many(n, lambda at: {"type": "url_citation"})}),
    "log probabilities": lambda n: whole({"content": "x"}, logprobs=logprobs(n)),
    "entries of reasoning": lambda n: whole({"content": "x", "reasoning_details": many(n, entry)}),
    "parts": lambda n: whole({"content": many(n, lambda at: {"type": "text", "text": "x"})}),
    "fields of a message": lambda n: whole({"content": "x"} | {f"f{at}": "x" for at in range(n)}),
    "fields of the usage": lambda n: whole(
        {"content": "x"}, usage={"prompt_tokens": 1} | {f"f{at}": 1 for at in range(n)}
    ),
    "usages": lambda n: whole({"content": "x"}, **fields(n, lambda at: {"usage": {"prompt_tokens": 1}})),
    "a text": lambda n: whole({"content": "x" * 100 * n}),
    "half characters": lambda n: whole({"content": "@" * n}).replace(b"@", b"\\ud83d"),
    "blanks before": lambda n: b" \n" * n + whole({"content": "x"}),
    "comments before": lambda n: b": x\n" * n + whole({"content": "x"}),
}


def reading(upstream: bytes, piece: int, stream: bool) -> Work:
    pieces = [upstream[at : at + piece] for at in range(0, len(upstream), piece)]
    declared = [{"type": "function", "function": {"name": "x" * 64}}]
    return lambda: relay(pieces, stream=stream, logprobs=True, tools=declared, include_usage=stream)


def check(grow: Grow, stream: bool, piece: int = READ) -> None:
    def prepare(size: int) -> tuple[Work, int]:
        upstream = grow(size)
        return reading(upstream, piece, stream), len(upstream)

    check_linear(prepare)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", IN_ONE_EVENT)
def test_in_one_event(name: str, stream: bool) -> None:
    check(lambda n: OK + IN_ONE_EVENT[name](n) + STOP + DONE, stream)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", OVER_EVENTS)
def test_over_events(name: str, stream: bool) -> None:
    check(lambda n: events(n, OVER_EVENTS[name]) + STOP + DONE, stream)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", IN_ONE_BODY)
def test_in_one_body(name: str, stream: bool) -> None:
    check(IN_ONE_BODY[name], stream)


TINY: dict[str, Grow] = {
    "an event": lambda n: chunk({"content": "x" * n}),
    "a body": lambda n: whole({"content": "x" * n}),
    "a comment": lambda n: b":" + b"x" * n,
    "blanks": lambda n: b" " * n,
    "line ends": lambda n: b"\r" * n,
    "events": lambda n: OK + b"data\n\n" * (n // 6),
}


@pytest.mark.parametrize("name", TINY)
def test_byte_by_byte(name: str) -> None:
    check(TINY[name], stream=True, piece=1)


KEPT: dict[str, Callable[[int], bytes]] = {
    "annotations": lambda at: chunk({"annotations": [{"text": f"{at}" + "x" * 60_000}]}),
    "lists in annotations": lambda at: chunk({"annotations": [[[]] * 10_000]}),
    "arguments without a name": lambda at: chunk(
        {"tool_calls": [{"index": 0, "function": {"arguments": "x" * 60_000}}]}
    ),
    "fields beside an end": lambda at: chunk({}, "stop", choice={f"f{at}": "x" * 60_000}),
    "fields beside an end, outside": lambda at: chunk({}, "stop", **field(at, "x" * 60_000)),
    "what nobody may see yet": lambda at: chunk({"role": "assistant", "content": ""}, odd="x" * 60_000),
}


def fed(events: Iterable[bytes], stream: bool) -> tuple[str | None, int]:
    """How an answer without end ends, and after how many bytes."""
    taken = 0

    def counted() -> Iterable[bytes]:
        nonlocal taken
        for piece in events:
            taken += len(piece)
            yield piece

    return relay(counted(), stream=stream).fault, taken


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_until_the_end_is_bounded(name: str) -> None:
    fault, taken = fed((KEPT[name](at) for at in range(3000)), stream=True)
    assert fault == "invalid_response"
    assert taken <= MAX_HELD + (1 << 20)


@pytest.mark.parametrize("piece", [{"content": "x" * 60_000}, {"odd": {"k": "x" * 60_000}}, {"images": ["x" * 60_000]}])
def test_a_stream_put_together_is_bounded(piece: dict[str, Any]) -> None:
    fault, taken = fed((chunk(piece) for _ in range(3000)), stream=False)
    assert fault == "invalid_response"
    assert taken <= MAX_HELD + (1 << 20)
