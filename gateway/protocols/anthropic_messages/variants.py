"""How the services that speak this protocol are called: where the model's name stands, and what stands in the body.

A service is a row of a provider, and its variant a row here; nothing else knows the difference.

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

from gateway.protocols.anthropic_messages.faults import exception_event
from gateway.wire import strict_json

VERSION = "2023-06-01"  # of the protocol, that bodies are written in here
MAX_BETAS = 32

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
    - `framed`: a stream comes in AWS's frames, not as an event stream of the web
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
    return Call(path.format(model=model), tuple(headers), made)


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


def read_version(header: str | None) -> str | None:
    """The version of the protocol that a client speaks; None if it names none."""
    return header if header is not None and _version(header) else None


def unframed(headers: Mapping[str, str], payload: bytes) -> tuple[str, dict[str, Any]] | None:
    """A message of an AWS event stream as an event of this protocol: its name and its data.

    None for one that carries neither an event nor an exception. Raises ValueError for one that cannot be read.
    """
    kind = headers.get(":message-type")
    if kind in ("exception", "error"):
        event = exception_event(headers.get(":exception-type") or headers.get(":error-code") or "", payload)
        return "error", event
    if kind != "event" or headers.get(":event-type") != "chunk":
        return None
    wrapped = strict_json.loads_answer(payload)
    inner = wrapped.get("bytes") if type(wrapped) is dict else None
    if type(inner) is not str:
        raise ValueError("a chunk has no bytes")
    event = strict_json.loads_answer(b64decode(inner, validate=True))
    if type(event) is not dict:
        raise ValueError("an event is not an object")
    return str(event.get("type") or ""), event
