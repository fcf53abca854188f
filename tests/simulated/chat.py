"""The wire form of an answer: a chat completion object, or server-sent events as a behaviour frames them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import msgspec

from .answer import Counted
from .plan import Call, Plan, Say, Step, Transfer
from .prompts import COMPLETIONS, EMBEDDINGS, texts, vectors

CREATED = 1_700_000_000  # constant, so that the same request gets the same bytes
BOM = "\ufeff".encode()


def right(call: Call) -> Plan:
    """The answer as it should be."""
    if streamed(call):
        return stream(call, chain(opening(call), finish(call), accounting(call), (done(call),)))
    data = completion(call)
    answer = call.answer
    return Plan(
        steps=(Say(data, answer.counted.completion, answer.counted.reasoning, reported(call)),),
        headers=headers(call, "application/json"),
        transfer=Transfer.LENGTH,
        length=len(data),
        counted=answer.counted,
        delay=call.behaviour.pace * max(0, answer.counted.completion // answer.choices - 1),
    )


def streamed(call: Call) -> bool:
    """Whether the answer is a stream: as `stream` asks, unless the behaviour says otherwise."""
    return call.stream if call.behaviour.as_ is None else call.behaviour.as_ == "sse"


def stream(call: Call, steps: Iterable[Step]) -> Plan:
    """A plan that streams `steps` as events of this answer."""
    return Plan(
        steps=_with_bom(steps) if "bom" in call.behaviour.framing else steps,
        headers=headers(call, "text/event-stream; charset=utf-8"),
        counted=call.answer.counted,
    )


def headers(call: Call, content_type: str) -> tuple[tuple[str, str], ...]:
    """Content-Type as the behaviour has it, and the provider's own request id."""
    asked = call.behaviour.content_type
    typed = () if asked == "none" else (("Content-Type", asked or content_type),)
    return (*typed, ("x-request-id", call.id))


def completion(call: Call) -> bytes:
    """The whole answer as a chat.completion object, or as what its path has instead."""
    answer = call.answer
    usage = reported(call)
    shown = {} if usage is None else {"usage": msgspec.Raw(_twice(call) + usage)}
    if call.request.path == EMBEDDINGS:
        made = {"object": "list", "data": vectors(call.body), "model": call.behaviour.model_echo or call.model}
        return msgspec.json.encode(made | shown)
    message = answer.message()
    return msgspec.json.encode(
        {
            **_identity(call, "chat.completion"),
            "choices": _shaped(
                call,
                [
                    {"index": index, "message": message, "finish_reason": answer.finish}
                    for index in range(answer.choices)
                ],
            ),
            **shown,
        }
    )


def opening(call: Call) -> Iterator[Say]:
    """The events that come before any finish_reason: the role, then a token each, choice after choice."""
    answer = call.answer
    running = Counted(prompt=answer.counted.prompt, cached=answer.counted.cached)
    for piece in answer.pieces():
        for index in range(answer.choices):
            running = replace(
                running,
                completion=running.completion + piece.tokens,
                reasoning=running.reasoning + piece.thought,
            )
            choice = {"index": index, "delta": piece.delta, "finish_reason": None}
            usage = usage_json(running) if call.behaviour.usage_at == "every" else None
            yield Say(event(call, chunk(call, [choice], usage)), piece.tokens, piece.thought, usage)


def finish(call: Call) -> Iterator[Say]:
    """The events with finish_reason, one a choice; the last may carry the usage."""
    answer = call.answer
    for index in range(answer.choices):
        last = index == answer.choices - 1
        usage = reported(call) if last and usage_place(call) in ("finish", "every") else None
        choice = {"index": index, "delta": {}, "finish_reason": answer.finish}
        yield Say(event(call, chunk(call, [choice], usage)), usage=usage)


def accounting(call: Call) -> Iterator[Say]:
    """The usage event with no choices, where it is due; a lie may send it twice, first with half of it."""
    if usage_place(call) not in ("chunk", "always"):
        return
    if call.behaviour.wrong_usage == "twice":
        half = usage_json(_half(call.answer.counted))
        yield Say(event(call, chunk(call, [], half)), usage=half)
    if (usage := reported(call)) is not None:
        yield Say(event(call, chunk(call, [], usage)), usage=usage)


def done(call: Call) -> Say:
    """The event that ends a stream."""
    return Say(event(call, b"[DONE]"))


def chunk(call: Call, choices: list[dict[str, Any]], usage: bytes | None) -> bytes:
    """A chat.completion.chunk. Where usage was asked for, every chunk has the key, null until it is known."""
    known: dict[str, Any] = {}
    if usage is not None:
        known["usage"] = msgspec.Raw(usage)
    elif usage_place(call) == "chunk":
        known["usage"] = None
    return msgspec.json.encode({**_identity(call, "chat.completion.chunk"), "choices": _shaped(call, choices), **known})


def event(call: Call, payload: bytes) -> bytes:
    """One server-sent event around `payload`, in the behaviour's framing."""
    kinds = call.behaviour.framing
    if not kinds:
        return b"data: %b\n\n" % payload
    ending = b"\r\n" if "crlf" in kinds else b"\r" if "cr" in kinds else b"\n"
    field = b"data:" if "nospace" in kinds else b"data: "
    lines: list[bytes] = []
    if "comments" in kinds:
        lines += [b": simulated", b""]
    if "ping" in kinds:
        lines += [field + b": keepalive", b""]
    if "named" in kinds:
        lines.append(b"event: message")
    pretty = "multiline" in kinds and payload != b"[DONE]"
    lines += [field + line for line in (msgspec.json.format(payload, indent=1) if pretty else payload).split(b"\n")]
    return ending.join([*lines, b"", b""])


def usage_place(call: Call) -> str | None:
    """Where the usage of a stream goes, None when nobody asked for it."""
    if call.behaviour.usage_at != "chunk":
        return call.behaviour.usage_at
    options = call.body.get("stream_options")
    return "chunk" if isinstance(options, dict) and options.get("include_usage") is True else None


def usage_json(counted: Counted) -> bytes:
    """The truth, as a usage object."""
    return msgspec.json.encode(_usage(counted))


def reported(call: Call) -> bytes | None:
    """The usage as it is reported: JSON text, wrong where the behaviour lies; None when it is left out."""
    counted, lie = call.answer.counted, call.behaviour.wrong_usage
    usage = _usage(counted)
    if call.request.path == EMBEDDINGS:
        usage = {name: usage[name] for name in ("prompt_tokens", "total_tokens")}
    match lie:
        case None | "twice":
            return msgspec.json.encode(usage)
        case "missing":
            return None
        case "null":
            return b"null"
        case "empty":
            return b"{}"
        case "partial":
            return msgspec.json.encode({"total_tokens": usage["total_tokens"]})
        case "total":
            return msgspec.json.encode({**usage, "total_tokens": usage["total_tokens"] + 1})
    said = counted.completion
    wrong: dict[str, Any] = {
        "negative": -5,
        "float": said + 0.5,
        "string": str(said),
        "bool": True,
        "nan": float("nan"),
        "infinite": 0,
        "huge": 10**30,
        "mismatch": said + 100,
    }
    usage["completion_tokens"] = wrong[lie]
    if lie == "mismatch":
        usage["total_tokens"] += 100
    text = json.dumps(usage, separators=(",", ":"))
    if lie == "infinite":
        text = text.replace('"completion_tokens":0', '"completion_tokens":1e999')
    return text.encode()


def _usage(counted: Counted) -> dict[str, Any]:
    return {
        "prompt_tokens": counted.prompt,
        "completion_tokens": counted.completion,
        "total_tokens": counted.prompt + counted.completion,
        "prompt_tokens_details": {"cached_tokens": counted.cached},
        "completion_tokens_details": {"reasoning_tokens": counted.reasoning},
    }


def _half(counted: Counted) -> Counted:
    return replace(counted, completion=counted.completion // 2, reasoning=counted.reasoning // 2)


def _twice(call: Call) -> bytes:
    """The first of two `usage` keys, as raw text ahead of the second one's value."""
    if call.behaviour.wrong_usage != "twice":
        return b""
    return usage_json(_half(call.answer.counted)) + b',"usage":'


def _shaped(call: Call, choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return texts(choices) if call.request.path == COMPLETIONS else choices


def _identity(call: Call, kind: str) -> dict[str, Any]:
    kind = "text_completion" if call.request.path == COMPLETIONS else kind
    named = {} if call.behaviour.id == "none" else {"id": call.behaviour.id or call.id}
    return {**named, "object": kind, "created": CREATED, "model": call.behaviour.model_echo or call.model}


def _with_bom(steps: Iterable[Step]) -> Iterator[Step]:
    marked = False
    for step in steps:
        if not marked and isinstance(step, Say):
            yield replace(step, data=BOM + step.data)
            marked = True
        else:
            yield step
