"""What the data of an event, or a whole body, is: an object, the end, or nothing to be read."""

from enum import Enum
from typing import Any

import msgspec

from gateway.protocols.openai_chat.faults import fault_in_answer
from gateway.wire import strict_json
from gateway.wire.errors import UpstreamFault
from gateway.wire.strict_json import MAX_DEPTH
from routing.health.faults import Fault

MAX_UPSTREAM_VALUES = 2_000_000  # With twenty log probabilities a token an answer has a lot of them.


class Odd(Enum):
    """What an event is that has no object."""

    DONE, COMMENT, BLANK = range(3)


DONE, COMMENT, BLANK = Odd.DONE, Odd.COMMENT, Odd.BLANK

_decode = msgspec.json.Decoder().decode  # Refuses NaN, numbers out of range, lone surrogates and invalid UTF-8.


def of_event(name: bytes, payload: bytes) -> dict[str, Any] | Odd:
    """The object of an event, or why it has none. Raises `UpstreamFault`."""
    try:
        if payload.count(b"[") + payload.count(b"{") <= MAX_DEPTH:
            value = _decode(payload)
        else:
            value = strict_json.loads_answer(payload)
    except ValueError:
        value = _second_look(name, payload)
        if type(value) is Odd:
            return value
    if type(value) is not dict:
        raise UpstreamFault(Fault.INVALID_RESPONSE, "an event is not an object")
    return value


def of_body(body: bytes) -> dict[str, Any]:
    """The object of a whole body. Raises `UpstreamFault`."""
    try:
        answer = strict_json.loads_answer(body, most_values=MAX_UPSTREAM_VALUES)
    except strict_json.BadJson as error:
        raise UpstreamFault(Fault.INVALID_RESPONSE, f"the body is not JSON: {error}", unreadable=True) from None
    if type(answer) is not dict:
        raise UpstreamFault(Fault.INVALID_RESPONSE, "the body is not an object")
    return answer


def _second_look(name: bytes, payload: bytes) -> Any:
    """What is not plain JSON: the end, a comment, an error in prose, a blank, or numbers that are none."""
    if payload.strip() == b"[DONE]":
        return DONE
    if payload.startswith(b":"):
        return COMMENT
    try:
        return strict_json.loads_answer(payload)
    except strict_json.BadJson as error:
        if name == b"error":
            raise fault_in_answer(payload.decode("utf-8", "replace"), payload) from None
        if payload.isspace():
            return BLANK
        raise UpstreamFault(Fault.INVALID_RESPONSE, f"an event is not JSON: {error}", unreadable=True) from None
