"""A provider's recorded answers on their way through the chat form, and what a client of this protocol is sent."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gateway.protocols.google_gemini.client_answer import ClientAnswer
from gateway.protocols.google_gemini.client_request import ChatForm, chat_form
from gateway.protocols.google_gemini.upstream_answer import UpstreamAnswer
from gateway.protocols.openai_chat import AnswerReader, parse
from gateway.wire import sse, strict_json

RECORDINGS = Path(__file__).parents[2] / "recordings" / "google_gemini"
STREAMS = sorted(path.stem for path in RECORDINGS.glob("*.sse"))
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_w",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
ASKED: dict[str, Any] = {"model": "m-1", "messages": [{"role": "user", "content": "hi"}], "tools": [WEATHER, NOW]}
GEMINI: dict[str, Any] = {
    "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    "tools": [{"functionDeclarations": [{"name": "get_w"}, {"name": "now"}]}],
    "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
}


def stream_of(case: str) -> bytes:
    """The recorded stream of a case."""
    return (RECORDINGS / f"{case}.sse").read_bytes()


def body_of(case: str) -> bytes:
    """The recorded body of a case."""
    return (RECORDINGS / f"{case}.json").read_bytes()


def chunks_of(pieces: Iterable[bytes], **asked: Any) -> list[dict[str, Any]]:
    """The chat chunks of a stream that comes in these pieces."""
    answer, reader = UpstreamAnswer(ASKED | asked, call_prefix="call_gen-1_"), sse.EventReader()
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.close()
    return [chunk for name, data in events for chunk in answer.event(name.decode(), json.loads(data))] + answer.rest()


def reader(stream: bool = True, **asked: Any) -> AnswerReader:
    """The chat's own reader, for a client that asked for these further fields."""
    body = ASKED | {"stream": stream, "stream_options": {"include_usage": True} if stream else None} | asked
    return AnswerReader(parse(body, 80), id="gen-1", created=1700000000, model="acme/m-1")


def shown(case: str, *, stream: bool = True, **asked: Any) -> tuple[AnswerReader, list[dict[str, Any]]]:
    """A recorded stream as a client of the chat protocol sees it: its chunks, or its one body."""
    read = reader(stream, **asked)
    frames: list[bytes] = []
    for chunk in chunks_of([stream_of(case)], **asked):
        frames += read.feed(sse.encode(strict_json.dumps(chunk)))
    read.end()
    if not stream:
        return read, [json.loads(read.final())]
    return read, opened(b"".join(frames) + read.final())


def whole(case: str, **asked: Any) -> Any:
    """A recorded body as a client of the chat protocol sees it."""
    answer = UpstreamAnswer(ASKED | asked, call_prefix="call_gen-1_")
    read = reader(False, **asked)
    read.feed(strict_json.dumps(answer.whole(json.loads(body_of(case)))))
    read.end()
    return json.loads(read.final())


def opened(frames: bytes) -> list[Any]:
    """The events of a stream that we wrote."""
    return [json.loads(event.data) for event in sse.EventReader().feed(frames) if event.data != b"[DONE]"]


def message_of(chunks: list[dict[str, Any]]) -> Any:
    """What a client of the chat protocol puts together of chunks: the body that the same answer makes."""
    read = reader(False)
    for chunk in chunks:
        if chunk["choices"] or chunk.get("usage"):
            read.feed(sse.encode(strict_json.dumps(chunk)))
    read.end()
    return json.loads(read.final())["choices"][0]["message"]


def form(**fields: Any) -> ChatForm:
    """The form of a client's body."""
    return chat_form(GEMINI | fields, model="m-1", stream=True)


def written(chunks: list[dict[str, Any]], asked: ChatForm | None = None, *, events: bool = True) -> bytes:
    """What a client of this protocol is sent for chat chunks; those from the finish reason on come at the end."""
    answer = ClientAnswer(asked or form(), id="gen-1", model="acme/m-1", events=events)
    ends = [at for at, chunk in enumerate(chunks) if any(choice.get("finish_reason") for choice in chunk["choices"])]
    last = min(ends, default=len(chunks))
    return b"".join(answer.chunk(chunk) for chunk in chunks[:last]) + answer.final(chunks[last:])


def parts_of(events: list[Any], index: int = 0) -> list[dict[str, Any]]:
    """All parts of one candidate."""
    return [
        part
        for event in events
        for candidate in event["candidates"]
        if candidate.get("index", 0) == index
        for part in candidate.get("content", {}).get("parts", ())
    ]
