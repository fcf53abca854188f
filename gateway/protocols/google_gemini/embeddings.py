"""Embeddings: Google's `embedContent` and `batchEmbedContents`, and OpenAI's, which is the middle.

Google counts no tokens here; who bills them estimates.
"""

import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.protocols.google_gemini.client.fields import listed, named, text
from gateway.protocols.openai_chat.request.checks import TYPE, UNSUPPORTED, missing, wrong
from gateway.wire import strict_json
from gateway.wire.errors import InvalidRequest, UpstreamFault
from routing.health.faults import Fault

MAX_BATCH = 2048  # as OpenAI has it; Google takes 100


@dataclass(frozen=True, slots=True)
class EmbeddingsForm:
    """A client's body in OpenAI's form.

    - `body`: with its `input` as a list
    - `only_native`: paths of what only an offer of this same protocol can take
    - `single`: one embedding was asked for and not a batch
    """

    body: dict[str, Any]
    only_native: tuple[str, ...]
    single: bool


def embeddings_form(body: Any, *, model: str, batch: bool) -> EmbeddingsForm:
    """The form of an `embedContent` body, or of a `batchEmbedContents` body. Raises `InvalidRequest`."""
    if type(body) is not dict:
        raise wrong("The body must be a JSON object.", None, TYPE)
    requests = listed(named(body, "").get("requests"), "requests") if batch else [body]
    if not 0 < len(requests) <= MAX_BATCH:
        raise wrong(f"Parameter requests must hold 1 to {MAX_BATCH} requests.", "requests")
    texts: list[str] = []
    sizes: set[Any] = set()
    only_native: list[str] = []
    for at, request in enumerate(requests):
        path = f"requests[{at}]." if batch else ""
        fields = named(request, path[:-1])
        if text(fields.get("model", model), f"{path}model").removeprefix("models/") != model:
            raise wrong(f"Parameter {path}model is not the model of the path.", f"{path}model")
        texts.append(_text(fields, path))
        size = fields.get("outputDimensionality")
        if size is not None and type(size) is not int:
            raise wrong(
                f"Parameter {path}outputDimensionality must be an integer.", f"{path}outputDimensionality", TYPE
            )
        sizes.add(size)
        if fields.get("taskType") not in (None, "TASK_TYPE_UNSPECIFIED"):
            only_native.append(f"{path}taskType")
        only_native += [f"{path}{name}" for name in fields if name not in _KNOWN]
    if len(sizes) > 1:
        raise wrong("Parameter requests must ask for one outputDimensionality alone.", "requests")
    size = sizes.pop()
    made = {"model": model, "input": texts} | ({} if size is None else {"dimensions": size})
    return EmbeddingsForm(made, tuple(only_native), not batch)


def client_body(form: EmbeddingsForm, answer: Mapping[str, Any]) -> bytes:
    """OpenAI's answer, as floats or in base64, for a client of this protocol."""
    made = [{"values": _floats(entry["embedding"])} for entry in sorted(answer["data"], key=lambda one: one["index"])]
    return strict_json.dumps({"embedding": made[0]} if form.single else {"embeddings": made})


def upstream_path(model: str) -> str:
    """The path below a base URL that ends before `/models`; one or many are a batch."""
    return f"/models/{model.removeprefix('models/')}:batchEmbedContents"


def upstream_body(asked: Mapping[str, Any], *, model: str) -> dict[str, Any]:
    """What a provider is sent for OpenAI's body. Raises `InvalidRequest` for tokens instead of texts."""
    texts = asked["input"] if type(asked["input"]) is list else [asked["input"]]
    if not all(type(one) is str for one in texts):
        raise _no_text()
    named_model = f"models/{model.removeprefix('models/')}"
    more = {} if asked.get("dimensions") is None else {"outputDimensionality": asked["dimensions"]}
    return {
        "requests": [{"model": named_model, "content": {"parts": [{"text": one}]}, **more} for one in texts],
    }


def openai_answer(body: Any, *, base64: bool) -> dict[str, Any]:
    """OpenAI's answer for a provider's, without the model's name and usage. Raises `UpstreamFault`."""
    embeddings = body.get("embeddings") if type(body) is dict else None
    data = []
    for at, entry in enumerate(embeddings if type(embeddings) is list else ()):
        values = entry.get("values") if type(entry) is dict else None
        if type(values) is not list or not all(type(value) in (int, float) for value in values):
            raise UpstreamFault(Fault.INVALID_RESPONSE, "an embedding is no list of numbers", unreadable=True)
        data.append({"object": "embedding", "index": at, "embedding": _packed(values) if base64 else values})
    if not data:
        raise UpstreamFault(Fault.INVALID_RESPONSE, "it has no embeddings", unreadable=True)
    return {"object": "list", "data": data}


_KNOWN = frozenset({"model", "content", "outputDimensionality", "taskType"})


def _text(fields: Mapping[str, Any], path: str) -> str:
    if "content" not in fields:
        raise missing(f"{path}content", "what is to be embedded")
    content = fields["content"]
    if type(content) is str:
        return content
    parts = listed(named(content, f"{path}content").get("parts", []), f"{path}content.parts")
    said = []
    for at, part in enumerate(parts):
        where = f"{path}content.parts[{at}]"
        inner = named(part, where)
        if "text" not in inner:
            raise wrong(f"Parameter {where} must be a text.", where, UNSUPPORTED)
        said.append(text(inner["text"], f"{where}.text"))
    if not said:
        raise missing(f"{path}content.parts", "what is to be embedded")
    return "\n".join(said)


def _packed(values: list[float]) -> str:
    try:
        return b64encode(struct.pack(f"<{len(values)}f", *values)).decode()
    except OverflowError:
        raise UpstreamFault(Fault.INVALID_RESPONSE, "an embedding has a number too large", unreadable=True) from None


def _floats(embedding: Any) -> list[float]:
    """Numbers, as they are or in base64. Raises `UpstreamFault`."""
    if type(embedding) is list:
        return embedding
    try:
        raw = b64decode(embedding, validate=True)
        return list(struct.unpack(f"<{len(raw) // 4}f", raw))
    except (TypeError, ValueError, struct.error):
        raise UpstreamFault(Fault.INVALID_RESPONSE, "an embedding is no base64", unreadable=True) from None


def _no_text() -> InvalidRequest:
    return wrong("Parameter input must be a string or an array of strings for this model.", "input", UNSUPPORTED)
