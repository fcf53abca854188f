"""Recorded answers of the Messages protocol, taken through its two directions as the gateway takes them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gateway.protocols.anthropic_messages.client_answer import ClientAnswer
from gateway.protocols.anthropic_messages.upstream_answer import UpstreamAnswer
from gateway.protocols.anthropic_messages.upstream_request import Reading
from gateway.protocols.openai_chat import AnswerReader, parse
from gateway.wire.sse import Event, EventReader

RECORDINGS = Path(__file__).parents[2] / "recordings" / "anthropic_messages"
WHOLE = sorted(path.stem for path in RECORDINGS.glob("*.json"))
STREAMS = sorted(path.stem for path in RECORDINGS.glob("*.sse"))

ASKED = {
    "model": "acme/m-1",
    "messages": [{"role": "user", "content": "hi"}],
    "stream_options": {"include_usage": True},
    "stream": True,
}
READINGS = {"answer_tool": Reading(answer_tool="answer_in_json")}


def recorded(case: str) -> bytes:
    return (RECORDINGS / f"{case}.sse").read_bytes()


def message(case: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((RECORDINGS / f"{case}.json").read_bytes())
    return made


def events(stream: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Events of a stream with their data read."""
    reader = EventReader()
    return [_read(event) for event in (*reader.feed(stream), *reader.close())]


def _read(event: Event) -> tuple[str, dict[str, Any]]:
    return event.name.decode(), json.loads(event.data)


def chunks(stream: bytes, reading: Reading | None = None) -> list[dict[str, Any]]:
    """What the provider's events are as chunks of the chat form."""
    answer = UpstreamAnswer(reading or Reading())
    return [chunk for name, data in events(stream) for chunk in answer.event(name, data)]


def shown(made: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What our reader of chat answers makes of chunks, for a client that streams and wants usage."""
    reader = _reader(ASKED)
    frames = b"".join(b"".join(reader.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")) for chunk in made)
    reader.feed(b"data: [DONE]\n\n")
    found = [event.data for event in EventReader().feed(frames + reader.final())]
    assert found.pop() == b"[DONE]"
    return [json.loads(data) for data in found]


def meaningful(made: Iterable[Mapping[str, Any]]) -> bool:
    """Whether our reader of chat answers finds something to show in chunks."""
    reader = _reader(ASKED)
    for chunk in made:
        reader.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    return reader.meaningful


def completion(made: dict[str, Any]) -> dict[str, Any]:
    """What our reader of chat answers makes of a whole completion."""
    reader = _reader({**ASKED, "stream": False})
    reader.feed(json.dumps(made).encode())
    reader.end()
    told: dict[str, Any] = json.loads(reader.final())
    return told


def _reader(asked: dict[str, Any]) -> AnswerReader:
    asked = {name: value for name, value in asked.items() if asked["stream"] or name != "stream_options"}
    return AnswerReader(parse(asked, 100), id="gen-1", created=1700000000, model="acme/m-1")


def told(made: Iterable[dict[str, Any]], names: dict[str, str] | None = None) -> bytes:
    """Shown chunks as a client of this protocol gets them."""
    writer = ClientAnswer(names)
    return b"".join(map(writer.chunk, made)) + writer.final()
