"""What a client asks for (`parse`), and the body an upstream of the same protocol gets (`upstream_body`)."""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from gateway.protocols.openai_chat.request.checks import TYPE, Check, checked_model, integer, label, one_of, wrong
from gateway.protocols.openai_chat.request.overrides import refuse_overrides
from gateway.protocols.openai_chat.request.request import MAX_FIELDS, OWN_FIELDS
from gateway.protocols.prompts import count
from gateway.wire import strict_json
from gateway.wire.dialects import STANDARD, Dialect

MAX_DIMENSIONS = 65_536
_CHECKS: Mapping[str, Check] = {
    "dimensions": integer("dimensions", 1, MAX_DIMENSIONS),
    "encoding_format": one_of("encoding_format", ("float", "base64")),
    "user": label("user"),
    "safety_identifier": label("safety_identifier"),
}
KNOWN_FIELDS = frozenset({"model", "input", *_CHECKS, *OWN_FIELDS})


class EmbeddingsRequest(Struct, frozen=True, kw_only=True):
    """A request, checked.

    - `body`: the client's, without the known fields that are null
    - `inputs`: how many vectors are asked for
    - `most_tokens`: what the inputs come to at most, for the hold; exact where they are tokens
    - `base64`: vectors are wanted as base64 of little-endian 32-bit floats, else as numbers
    - `end_user`: who the client acts for
    - `unknown`: fields this gateway has no meaning for; they pass
    """

    body: dict[str, Any]
    model: str
    inputs: int
    most_tokens: int
    base64: bool
    end_user: str | None
    unknown: tuple[str, ...]


def parse(body: Any, raw_length: int, dialect: Dialect = STANDARD) -> EmbeddingsRequest:
    """Check a parsed body. Fields nobody knows pass unseen. Raises `InvalidRequest`, for the model first."""
    if type(body) is not dict:
        raise wrong("The body must be a JSON object.", None, TYPE)
    if len(body) > MAX_FIELDS:
        raise wrong(f"The body has more than {MAX_FIELDS} fields. Send fewer.", None)
    body = {name: value for name, value in body.items() if value is not None or name not in KNOWN_FIELDS}
    model = checked_model(body.get("model"), dialect)
    inputs, most_tokens = count(body.get("input"), "input")
    unknown = tuple(name for name in body if name not in KNOWN_FIELDS)
    refuse_overrides(body, unknown)
    for name, check in _CHECKS.items():
        if name in body:
            check(body[name])
    return EmbeddingsRequest(
        body=body,
        model=model,
        inputs=inputs,
        most_tokens=most_tokens,
        base64=body.get("encoding_format") == "base64",
        end_user=body.get("user") or body.get("safety_identifier") or None,
        unknown=unknown,
    )


def upstream_body(request: EmbeddingsRequest, *, model: str, withheld: Collection[str] = ()) -> bytes:
    """The body for an upstream: the client's but for the model's name, the gateway's own fields and those withheld.

    The encoding may be among those: what comes is converted.
    """
    gone = {*OWN_FIELDS, *withheld}
    return strict_json.dumps_long({k: v for k, v in request.body.items() if k not in gone} | {"model": model})
