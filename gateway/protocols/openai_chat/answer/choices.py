"""Which choice of an answer a piece belongs to."""

from typing import Any

from gateway.protocols.openai_chat.answer.message import merge
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault

MAX_CHOICES = 128


def listed(choices: Any) -> list[Any]:
    """The choices of a chunk or a whole answer, as they were sent. Raises `UpstreamFault`."""
    if type(choices) is not list:
        raise UpstreamFault(Fault.INVALID_RESPONSE, "choices is not an array")
    if len(choices) > MAX_CHOICES:
        raise UpstreamFault(Fault.INVALID_RESPONSE, f"more than {MAX_CHOICES} choices", unreadable=True)
    return choices


def index_of(choice: Any) -> int:
    """The index of a choice as it was sent; 0 if it has none. Raises `UpstreamFault`."""
    if type(choice) is dict:
        index = choice.get("index")
        if not index:  # As in most answers.
            return 0
        if type(index) is int and 0 < index < MAX_CHOICES:
            return index
    raise UpstreamFault(Fault.INVALID_RESPONSE, "a choice is not readable")


def one_an_index(choices: list[Any], asked: int) -> list[dict[str, Any]]:
    """The choices of a whole answer, each index once and each with its index.

    Some translators give the text and the calls of one choice as two, both of index 0. Where a client `asked` for
    several, those without an index are told apart by their place.
    """
    if len(choices) == 1:
        choices[0]["index"] = index_of(choices[0])
        return choices
    made: dict[int, dict[str, Any]] = {}
    for at, sent in enumerate(choices):
        index = index_of(sent)
        if asked > 1 and sent.get("index") is None:
            index = at
        known = made.setdefault(index, sent)
        sent["index"] = index
        if known is not sent and type(sent.get("message")) is dict and type(known.get("message")) is dict:
            merge(known["message"], sent["message"])
            if known.get("finish_reason") in (None, "", "stop"):
                known["finish_reason"] = sent.get("finish_reason") or known.get("finish_reason")
    return list(made.values())
