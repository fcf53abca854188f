"""Upstream bytes of the OpenAI chat protocol, and what a client makes of the gateway's answer to them."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gateway.protocols.openai_chat import AnswerReader, parse
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import UpstreamFault

WHOLE = os.environ.get("PROPERTIES") == "whole"
DONE = b"data: [DONE]\n\n"
OURS = {"id": "gen-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "acme/m-1"}


def chunk(delta: Any = None, finish: Any = None, *, index: int = 0, choice: Any = None, **top: Any) -> bytes:
    """One event as an upstream sends it; `choice` and `top` are further fields of the choice and the chunk."""
    body = {"id": "x1", "object": "chat.completion.chunk", "created": 1, "model": "up-1"}
    made = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}
    return event(body | {"choices": [made | (choice or {})]} | top)


def usage(prompt: int, completion: int, **more: Any) -> bytes:
    """The event after the last choice."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return chunk(choices=[], usage=counts | more)


def event(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def whole(message: Any, finish: Any = "stop", *, logprobs: Any = None, **top: Any) -> bytes:
    """A body of an upstream that does not stream."""
    body = {"id": "x1", "object": "chat.completion", "created": 1, "model": "up-1"}
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}
    return json.dumps(body | {"choices": [choice]} | top, ensure_ascii=False).encode()


def shown(prompt: int, completion: int, **buckets: int) -> dict[str, Any]:
    """The usage object a client sees for these counts: every bucket, zero where `buckets` does not name it."""
    reading = [*("cached_tokens", "audio_tokens", "image_tokens", "text_tokens", "cache_creation_input_tokens")]
    reading += ("cache_write_tokens", "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens", "web_search")
    writing = ("reasoning_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens")
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {name: buckets.get(name, 0) for name in reading}
        | {"text_tokens": prompt - buckets.get("audio_tokens", 0) - buckets.get("image_tokens", 0)},
        "completion_tokens_details": {name: buckets.get(name, 0) for name in writing}
        | {"audio_tokens": buckets.get("audio_output", 0)}
        | {"text_tokens": completion - buckets.get("audio_output", 0) - buckets.get("reasoning_tokens", 0)},
        "input_tokens": prompt,
        "output_tokens": completion,
    }


def reader(
    *,
    stream: bool = True,
    include_usage: bool = False,
    dialect: Dialect = STANDARD,
    output_cap: int | None = None,
    stops: tuple[str, ...] = (),
    **asked: Any,
) -> AnswerReader:
    """A reader for a client that `asked` for these further fields."""
    body: dict[str, Any] = {"model": "m-1", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    if include_usage:
        body["stream_options"] = {"include_usage": True}
    return AnswerReader(
        parse(body | asked, 80, dialect),
        id="gen-1",
        created=1700000000,
        model="acme/m-1",
        dialect=dialect,
        output_cap=output_cap,
        stops=stops,
    )


@dataclass(frozen=True)
class Seen:
    """What came of an answer: bytes sent before the end and at it, the fault, and what the reader knows."""

    early: bytes
    final: bytes
    fault: str | None
    known: dict[str, Any]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The client's chunks; each must carry the gateway's envelope, and `[DONE]` comes last and once."""
        frames = (self.early + self.final).decode().split("\n\n")
        assert frames.pop() == ""
        if self.fault is None:
            assert frames.pop() == "data: [DONE]"
        chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames]
        for made in chunks:
            assert {name: made[name] for name in OURS} == OURS
        return chunks

    @property
    def deltas(self) -> list[tuple[dict[str, Any], str | None]]:
        """Delta and finish reason of every choice of every chunk."""
        choices = [choice for made in self.chunks for choice in made["choices"]]
        return [(choice["delta"], choice["finish_reason"]) for choice in choices]

    @property
    def body(self) -> Any:
        """The body of a client that does not stream, without the envelope, which must be the gateway's."""
        assert self.early == b""
        body = json.loads(self.final)
        assert {name: body.pop(name) for name in OURS} == OURS | {"object": "chat.completion"}
        return body

    @property
    def message(self) -> Any:
        (choice,) = self.body["choices"]
        return choice["message"]


KNOWN = ("meaningful", "complete", "usage", "usage_suspect", "finish_reason", "native_finish_reason")


def relay(pieces: Iterable[bytes], **how: Any) -> Seen:
    """Feed an answer as the relay does; `how` is for `reader`."""
    answer = reader(**how)
    early: list[bytes] = []
    final, fault = b"", None
    try:
        for piece in pieces:
            early += answer.feed(piece)
        if answer.fault:
            raise answer.fault
        answer.end()
        final = answer.final()
    except UpstreamFault as error:
        fault = error.kind.value
    known = {name: getattr(answer, name) for name in (*KNOWN, "relayed_bytes", "skipped")}
    return Seen(b"".join(early) if known["meaningful"] else b"", final, fault, known)


def relay_at_every_cut(upstream: bytes, **how: Any) -> Seen:
    """The same whole, byte by byte, and in two pieces cut at every offset: what comes of it must not differ.

    `make test` cuts in two at every 16th offset, and about the ends of lines and inside characters.
    """
    seen = relay([upstream], **how)
    split = [[upstream[:at], upstream[at:]] for at in range(1, len(upstream)) if WHOLE or _is_telling(upstream, at)]
    for pieces in [*split, [upstream[at : at + 1] for at in range(len(upstream))]]:
        assert relay(pieces, **how) == seen
    return seen


def _is_telling(upstream: bytes, at: int) -> bool:
    return at % 16 == 0 or b"\n" in upstream[at - 1 : at + 1] or upstream[at] & 0xC0 == 0x80
