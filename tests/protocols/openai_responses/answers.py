"""Recordings of a Responses provider, what the chat form makes of them, and what a Responses client then sees."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import httpx2
from openai import OpenAI, omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from gateway.protocols.openai_chat import AnswerReader as ChatReader
from gateway.protocols.openai_chat import parse
from gateway.protocols.openai_responses.client_answer import AnswerWriter
from gateway.protocols.openai_responses.upstream_answer import AnswerReader
from gateway.wire import sse

RECORDINGS = Path(__file__).parents[2] / "recordings" / "openai_responses"
CASES = sorted(path.stem for path in RECORDINGS.glob("*.json") if not path.stem.startswith("error"))
# The SDK's types of events by the word that tells them apart; its union tries one after the other.
_EVENTS: dict[str, type[BaseModel]] = {
    get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(get_args(ResponseStreamEvent)[0])
}


def recorded(case: str) -> bytes:
    """The bytes of a stream."""
    return (RECORDINGS / f"{case}.sse").read_bytes()


def recorded_whole(case: str) -> dict[str, Any]:
    """The body of the same answer, not streamed."""
    body: dict[str, Any] = json.loads((RECORDINGS / f"{case}.json").read_bytes())
    return body


def chunks_of(pieces: Iterable[bytes]) -> list[dict[str, Any]]:
    """The chunks of the chat form that a provider's bytes say."""
    events, reader, made = sse.EventReader(), AnswerReader(), list[dict[str, Any]]()
    for piece in pieces:
        for name, data in events.feed(piece):
            made += reader.event(name.decode(), json.loads(data))
    return made


def shown(chunks: Iterable[dict[str, Any]], **asked: Any) -> list[dict[str, Any]]:
    """The chunks as the gateway's reader of chat answers shows them."""
    body = {"model": "m-1", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    body |= {"stream_options": {"include_usage": True}} | asked
    reader = ChatReader(parse(body, 99), id="g1", created=1700000000, model="acme/m-1")
    frames = b"".join(b"".join(reader.feed(sse.encode(json.dumps(chunk).encode()))) for chunk in chunks)
    reader.feed(sse.DONE)
    reader.end()
    return [json.loads(data) for _, data in sse.EventReader().feed(frames + reader.final()) if data != b"[DONE]"]


def writer(**asked: Any) -> AnswerWriter:
    return AnswerWriter({"model": "m-1"} | asked, id="g1", created=1700000000, model="acme/m-1")


def deltas(*deltas: dict[str, Any], finish: str | None = "stop", usage: Any = None) -> list[dict[str, Any]]:
    """Chunks of these deltas."""
    made: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    made.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return [*made, {"choices": [], "usage": usage}] if usage else made


def written(chunks: Iterable[dict[str, Any]], **asked: Any) -> bytes:
    """What a client is sent for chunks."""
    out = writer(**asked)
    return b"".join(out.chunk(chunk) for chunk in chunks) + out.final()


def events(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each as its type in the official SDK says, numbered from 0, its name that of its type."""
    made = []
    for at, (name, data) in enumerate(sse.EventReader().feed(stream)):
        event = json.loads(data)
        assert (event["type"], event["sequence_number"]) == (name.decode(), at)
        if event["type"] not in ("error", "response.failed"):  # whose codes are more than the SDK's types know
            _EVENTS[event["type"]].model_validate(event)
        made.append(event)
    return made


def drawn(stream: bytes) -> Response:
    """What the official SDK's state machine makes of a stream; it keeps none that is incomplete."""
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=[], text_format=omit)
    for event in sdk(stream).responses.create(model="m", input="hi", stream=True):
        state.handle_event(event)
    if event.type == "response.incomplete":
        return event.response
    assert state._completed_response is not None
    return state._completed_response


def sdk(answer: bytes, type: str = "text/event-stream", status: int = 200) -> OpenAI:
    """The official client, answered so."""
    told = httpx2.MockTransport(lambda _: httpx2.Response(status, content=answer, headers={"content-type": type}))
    return OpenAI(api_key="k", base_url="http://x", http_client=httpx2.Client(transport=told), max_retries=0)


def types(made: Iterable[dict[str, Any]]) -> list[str]:
    """The types of events, one behind the other the same once."""
    found: list[str] = []
    for event in made:
        kind = event["type"].removeprefix("response.")
        if not found or found[-1] != kind:
            found.append(kind)
    return found
