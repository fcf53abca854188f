"""How the services that speak this protocol are called: where the model's name stands, and what stands in the body.

A service is a row of a provider, and its variant a row here; nothing else knows the difference. How it is told who asks
is the row's auth style, which goes with any of them.

- `plain`: the model in the body, versions and betas in headers, as Anthropic documents it
- `invoke`: AWS Bedrock's InvokeModel: the model in the path, whether it streams too, version and betas in the body, and
  the stream framed as AWS's event streams (`gateway.wire.aws_event_stream`) with each event in base64 under `bytes`
- `raw_predict`: Google Vertex's rawPredict: the model in the path, the version in the body
"""

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.protocols.anthropic_messages.faults import exception_event
from gateway.wire import strict_json
from gateway.wire.aws_event_stream import BadFrame, Frame, FrameReader
from gateway.wire.sse import Event

_PLAIN = ":@$+=,~"  # of a segment of a path, besides letters, digits, dashes, dots and underscores
VERSION = "2023-06-01"  # of the protocol, that bodies are written in here
MAX_BETAS = 32


class _Chunk(msgspec.Struct):
    bytes: str


_chunk = msgspec.json.Decoder(_Chunk).decode
# Another context, or another speed, at another price.
_priced = re.compile(r"context-1m|fast-mode").match
_beta = re.compile(r"[a-z0-9][a-z0-9-]{0,63}").fullmatch
_version = re.compile(r"[a-z0-9][a-z0-9.-]{0,31}").fullmatch


@dataclass(frozen=True, slots=True)
class Variant:
    """- `path`, `stream_path`: behind the provider's base URL; {model} is its name for the model
    - `count_path`: where tokens are counted; None: nowhere
    - `body`: fields that every body has
    - `names_model`: the model is in the body; `says_stream`: so is `stream`
    - `betas`: where betas go: the name of a header, or of a field of the body
    - `betas_in_body`: it is a field
    - `sends_version`: the version is a header
    - `stream_type`: the media type of a stream; `framed`: it comes in AWS's frames, not as a stream of the web
    - `urls`: takes pictures and documents by their address
    """

    path: str
    stream_path: str
    count_path: str | None
    body: Mapping[str, Any] = field(default_factory=dict)
    names_model: bool = True
    says_stream: bool = True
    betas: str = "anthropic-beta"
    betas_in_body: bool = False
    sends_version: bool = True
    stream_type: str = "text/event-stream"
    framed: bool = False
    urls: bool = True


VARIANTS: Mapping[str, Variant] = {
    "plain": Variant("/messages", "/messages", "/messages/count_tokens"),
    "invoke": Variant(
        path="/model/{model}/invoke",
        stream_path="/model/{model}/invoke-with-response-stream",
        count_path=None,
        body={"anthropic_version": "bedrock-2023-05-31"},
        names_model=False,
        says_stream=False,
        betas="anthropic_beta",
        betas_in_body=True,
        sends_version=False,
        stream_type="application/vnd.amazon.eventstream",
        framed=True,
        urls=False,
    ),
    "raw_predict": Variant(
        path="/publishers/anthropic/models/{model}:rawPredict",
        stream_path="/publishers/anthropic/models/{model}:streamRawPredict",
        count_path="/publishers/anthropic/models/count-tokens:rawPredict",
        body={"anthropic_version": "vertex-2023-10-16"},
        names_model=False,
        sends_version=False,
        urls=False,
    ),
}


@dataclass(frozen=True, slots=True)
class Call:
    """What a provider is called with: the path behind its base URL, further headers, the body."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: dict[str, Any]


def call(variant: Variant, body: Mapping[str, Any], *, betas: Iterable[str] = (), version: str | None = None) -> Call:
    """A body with `model`, and `stream` if it streams, as a service of this variant takes it.

    `betas` and `version` are the client's, if it speaks this protocol.
    """
    model, streams = body["model"], body.get("stream") is True
    made = {**body, **variant.body}
    if not variant.names_model:
        del made["model"]
    if not variant.says_stream:
        made.pop("stream", None)
    headers: list[tuple[str, str]] = []
    if variant.sends_version:
        headers.append(("anthropic-version", version or VERSION))
    if listed := list(dict.fromkeys(betas)):
        if variant.betas_in_body:
            made[variant.betas] = listed
        else:
            headers.append((variant.betas, ",".join(listed)))
    path = variant.stream_path if streams else variant.path
    return Call(path.format(model=quote(model, safe=_PLAIN)), tuple(headers), made)


def count_call(variant: Variant, body: Mapping[str, Any], *, betas: Iterable[str] = ()) -> Call | None:
    """The call that counts the tokens of a body; None: this variant has none.

    The model stays in the body, whatever the variant: the path names none.
    """
    if variant.count_path is None:
        return None
    made = call(variant, {name: value for name, value in body.items() if name != "stream"}, betas=betas)
    return Call(variant.count_path, made.headers, {**made.body, "model": body["model"]})


def read_betas(header: str | None) -> tuple[str, ...]:
    """The betas of a client's header, which may name several; what is not the name of one is left out."""
    listed = (beta.strip() for beta in (header or "").split(",")[:MAX_BETAS])
    return tuple(dict.fromkeys(beta for beta in listed if _beta(beta)))


def allowed(betas: Iterable[str], takes: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The betas that an offer is sent, and those that it is not: they change its prices, and its list, which `takes`
    holds, lacks their names without the date.
    """
    listed = {beta: (found := _priced(beta)) is None or found[0] in takes for beta in betas}
    return tuple(beta for beta in listed if listed[beta]), tuple(beta for beta in listed if not listed[beta])


def read_version(header: str | None) -> str | None:
    """The version of the protocol that a client speaks; None if it names none."""
    return header if header is not None and _version(header) else None


class FramedEvents:
    """Reads events of this protocol from AWS's frames, as `sse.EventReader` reads them from a stream of the web.

    The names are empty: an event's data says itself what it is. An exception is an event `error`.
    """

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames = FrameReader()

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes, in order. Raises `BadFrame`."""
        events: list[Event] = []
        for frame in self._frames.feed(data):
            try:
                event = _unframed(frame)
            except BadFrame as error:
                if not events:
                    raise
                self._frames.refuse(str(error))  # told when those before it have been given
                break
            if event is not None:
                events.append(event)
        return events

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return self._frames.pending

    def close(self) -> list[Event]:
        """The stream ended; there is nothing in half a frame. Raises `BadFrame` for one."""
        self._frames.close()
        return []


def _unframed(frame: Frame) -> Event | None:
    """The event in a frame; None for what carries neither an event nor an exception."""
    kind = frame.headers.get(":message-type")
    if kind in ("exception", "error"):
        name = frame.headers.get(":exception-type") or frame.headers.get(":error-code")
        return Event(b"error", strict_json.dumps(exception_event(str(name or ""), frame.payload)))
    if kind != "event" or frame.headers.get(":event-type") != "chunk":
        return None
    try:
        return Event(b"", b64decode(_chunk(frame.payload).bytes, validate=True))
    except ValueError:  # of the JSON, its form or the base64
        raise BadFrame("a chunk does not hold bytes in base64") from None
