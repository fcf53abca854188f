"""A pair of protocols without a gateway between them: a client's body as the provider is sent it, and the provider's
bytes as the client hears them. What needs no plan, no money and no socket is tried here.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from gateway.protocols import PROTOCOLS
from gateway.protocols.anthropic_messages import sides as messages
from gateway.protocols.google_gemini import sides as gemini
from gateway.protocols.openai_chat import AnswerReader, ChatRequest, Fit, parse
from gateway.protocols.openai_responses import sides as responses
from gateway.protocols.sides import Asking, Ours, Sent
from gateway.request.parameters import fit, supported_by
from gateway.wire.dialects import STANDARD
from gateway.wire.errors import InvalidRequest, UpstreamFault

OURS = Ours("gen-1", 1700000000, "acme/m-1")
MODEL = "m-1"
# The format of the thoughts that a provider of each protocol signs.
FORMATS = {
    "openai_chat": "",
    "openai_responses": "openai-responses-v1",
    "anthropic_messages": "anthropic-claude-v1",
    "google_gemini": "google-gemini-v1",
}
_READ: dict[str, Callable[[dict[str, Any], bool], ChatRequest]] = {
    "openai_chat": lambda body, stream: parse(body, len(json.dumps(body))),
    "openai_responses": lambda body, stream: responses.read(body, len(json.dumps(body)), pytest.fail),
    "anthropic_messages": lambda body, stream: messages.read(body, len(json.dumps(body)), {}),
    "google_gemini": lambda body, stream: gemini.read(
        body, len(json.dumps(body)), model=MODEL, stream=stream, events=True
    ),
}


class Refused(NamedTuple):
    """What a client is told of a request that goes nowhere: the path in its own words, and the code."""

    param: str | None
    code: str | None


def read(client: str, body: dict[str, Any], *, stream: bool = False) -> ChatRequest:
    """A client's body, checked. Raises `InvalidRequest`, in the client's words."""
    return _READ[client](body, stream)


def fitted(asked: ChatRequest, provider: str, *takes: str) -> Fit:
    """How a request meets an offer that lists these words."""
    most = PROTOCOLS[provider].upstream.max_stops
    return fit(asked, supported_by(takes), STANDARD, max_stops=most, thoughts=FORMATS[provider])


def send(asked: ChatRequest, provider: str, *takes: str, cap: int | None = None) -> Sent:
    """What a provider is sent whose offer lists these words. Raises `InvalidRequest`, in the client's words."""
    spoken = asked.spoken
    if spoken is not None and spoken.only_native and spoken.protocol != provider:
        raise spoken.nowhere(asked.model, spoken.only_native[0])
    asking = Asking("m-up", cap, fitted(asked, provider, *takes), "", takes, "max_completion_tokens", True, "", OURS)
    try:
        return PROTOCOLS[provider].upstream.sent(asked, asking)
    except InvalidRequest as refusal:
        if spoken is not None:
            spoken.retell(refusal)
        raise


def sent(client: str, provider: str, body: dict[str, Any], *takes: str, stream: bool = False) -> Any:
    """The body that a provider is sent for a client's, or how that is refused."""
    try:
        return json.loads(send(read(client, body, stream=stream), provider, *takes).body)
    except InvalidRequest as refusal:
        return Refused(refusal.param, refusal.code)


class Told(NamedTuple):
    """What a client was sent, how that ended if not well, and who read it."""

    text: str
    fault: str | None
    reader: AnswerReader


def told(client: str, provider: str, body: dict[str, Any], pieces: Iterable[bytes], *takes: str, stream: bool) -> Told:
    """A provider's bytes to a client, as the relay hands them on."""
    asked = read(client, body, stream=stream)
    reader = AnswerReader(
        asked,
        id=OURS.id,
        created=OURS.created,
        model=OURS.model,
        stops=fitted(asked, provider, *takes).enforced_stops,
        writer=PROTOCOLS[client].client.writer(asked, OURS),
    )
    reader.understand(send(asked, provider, *takes))
    out, fault = fed(reader, pieces)
    if fault is not None:
        out += reader.error_event(fault, "req-1") if reader.meaningful else b""
    return Told(out.decode(), None if fault is None else fault.kind.value, reader)


def fed(reader: AnswerReader, pieces: Iterable[bytes]) -> tuple[bytes, UpstreamFault | None]:
    """What a reader hands on of a provider's bytes, as the relay sends it, and what ended it otherwise than well."""
    out: list[bytes] = []
    try:
        for piece in pieces:
            out += reader.feed(piece)
        if reader.fault:
            raise reader.fault
        reader.end()
        out.append(reader.final())
    except UpstreamFault as error:
        return b"".join(out) if reader.meaningful else b"", error  # before that nothing of it is sent
    return b"".join(out), None
