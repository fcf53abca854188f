"""What a client asks for (`read`), and the body an upstream of the same protocol gets (`upstream_body`)."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.protocols.openai_chat.request.checks import Check, integer, label, one_of
from gateway.protocols.openai_chat.request.request import ChatRequest
from gateway.protocols.openai_embeddings.vectors import MOST_NUMBERS
from gateway.protocols.prompts import chat_form, opened, told
from gateway.protocols.prompts import upstream_body as body_of
from gateway.protocols.sides import Asking, Spoken
from gateway.wire.dialects import STANDARD, Dialect

NAME = "openai_embeddings"
READS = "input"
VECTORS = frozenset({"embeddings"})
_CHECKS: Mapping[str, Check] = {
    "dimensions": integer("dimensions", 1, MOST_NUMBERS),
    "encoding_format": one_of("encoding_format", ("float", "base64")),
    "user": label("user"),
    "safety_identifier": label("safety_identifier"),
}


class Embeddings(Struct, frozen=True):
    """What of a request its answer must fit.

    - `inputs`: how many vectors are asked for; `dimensions`: of how many numbers each, if that was said
    - `base64`: they are wanted as base64 of little-endian 32-bit floats, else as numbers
    """

    inputs: int
    dimensions: int | None
    base64: bool


def read(value: Any, dialect: Dialect = STANDARD) -> ChatRequest:
    """A client's parsed body, checked. Fields nobody knows pass. Raises `InvalidRequest`, for the model first."""
    found = opened(value, dialect, reads=READS, checks=_CHECKS, also=())
    body = found.body
    spoken = Spoken(
        protocol=NAME,
        body=body,
        form=Embeddings(found.prompts.number, body.get("dimensions"), body.get("encoding_format") == "base64"),
        told=lambda param: told(param, READS),
        only_native=(READS,),
        makes=VECTORS,
    )
    return chat_form(found, spoken, dialect, reads=READS, changes={}, output_cap=0)


def upstream_body(asked: ChatRequest, asking: Asking) -> bytes:
    """The body for an offer: the client's but for the model's name. What comes is put into the encoding asked for."""
    return body_of(asked, {"model": asking.model}, asking.fit.withheld)
