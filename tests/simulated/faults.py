"""The misbehaviours, by the name `fault=` gives them: each makes a plan of what goes wrong on the wire.

Here is the table of names, and those that break an answer off or refuse it; `oddities.py` has those whose
bytes are odd.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import msgspec

from . import chat
from .models import BadOption, seconds
from .plan import Call, Plan, Say, Step, Stop, Transfer, whole

ERRORS = {
    400: (
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is 8192 tokens.",
    ),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    402: ("insufficient_quota", "insufficient_credit", "The account has no credit left."),
    403: ("permission_error", "permission_denied", "This key may not use this model."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist."),
    429: ("rate_limit_error", "rate_limit_exceeded", "Rate limit reached."),
    500: ("server_error", "internal_error", "The server had an error while processing the request."),
    503: ("server_error", "service_unavailable", "The engine is out of capacity."),
    529: ("overloaded_error", "overloaded", "Overloaded"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A misbehaviour: how it is played, and what it needs (see `fault`)."""

    play: Callable[[Call], Plan]
    only: str | None
    chat: bool
    takes: str | None


FAULTS: dict[str, Fault] = {}


def fault(
    *, only: str | None = None, chat: bool = True, takes: str | None = None
) -> Callable[[Callable[[Call], Plan]], Callable[[Call], Plan]]:
    """Registers the function under its own name.

    `only`: "stream" or "whole", the one form it can be played in; `chat=False`: any POST path may play it;
    `takes`: what follows the name after @, a "count" or a "word"; nothing may follow by default.
    """

    def register(play: Callable[[Call], Plan]) -> Callable[[Call], Plan]:
        FAULTS[play.__name__] = Fault(play, only, chat, takes)
        return play

    return register


def plan(call: Call, name: str) -> Plan:
    """The plan of fault `name` for this call. Raises BadOption when it is unknown or cannot apply here."""
    chosen = FAULTS.get(name)
    if chosen is None:
        raise BadOption(f"unknown fault {name!r}")
    if chosen.only is not None and chat.streamed(call) != (chosen.only == "stream"):
        raise BadOption(f"fault {name!r} needs {'a stream' if chosen.only == 'stream' else 'a whole answer'}")
    if chosen.takes is None and call.behaviour.argument is not None:
        raise BadOption(f"fault {name!r} takes nothing after @")
    if chosen.takes == "count":
        at(call)
    return chosen.play(call)


def needs_chat(name: str) -> bool:
    """Whether fault `name` needs a chat request; an unknown one does not: it is refused by name."""
    return name in FAULTS and FAULTS[name].chat


def at(call: Call, default: int = 1) -> int:
    """The K of `fault=NAME@K`; raises BadOption when it is not a count."""
    argument = call.behaviour.argument
    if argument is None:
        return default
    if not (argument.isascii() and argument.isdigit()):
        raise BadOption(f"fault {call.behaviour.fault!r} takes a count after @, not {argument!r}")
    return int(argument)


def error_object(call: Call, status: int, *, numbered: bool = False) -> bytes:
    """An OpenAI error object for `status`; `numbered`: its code is the status, as inside a 200."""
    kind, code, message = ERRORS.get(status, ERRORS[400] if status < 500 else ERRORS[500])
    behaviour = call.behaviour
    shown: Any = behaviour.code or (status if numbered else code)
    error = {"message": behaviour.message or message, "type": kind, "param": None, "code": shown}
    return msgspec.json.encode({"error": error})


# --- refusals ---
@fault(chat=False)
def status(call: Call) -> Plan:
    code = call.behaviour.status or 500
    retry = call.behaviour.retry_after
    extra = () if retry is None else (("Retry-After", retry),)
    data = error_object(call, code)
    return whole(data, status=code, headers=(*chat.headers(call, "application/json"), *extra))


@fault(chat=False)
def redirect(call: Call) -> Plan:
    target = call.behaviour.redirect
    if target is None:
        raise BadOption("fault 'redirect' needs redirect=URL")
    return whole(b"", status=call.behaviour.status or 307, headers=(("Location", target),))


@fault(chat=False)
def html_502(call: Call) -> Plan:
    page = b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1><p>SECRET-INTERNAL upstream 10.1.2.3</p>"
    page = page.ljust(50 * 1024 - 14, b"\n") + b"</body></html>"
    return whole(page, status=call.behaviour.status or 502, headers=chat.headers(call, "text/html; charset=utf-8"))


@fault(chat=False)
def error_in_200(call: Call) -> Plan:
    data = error_object(call, call.behaviour.status or 429, numbered=True)
    return whole(data, headers=chat.headers(call, "application/json"))


@fault(only="stream")
def error_first_event(call: Call) -> Plan:
    return replace(chat.stream(call, [_error_event(call)]), counted=None)


@fault(only="stream", takes="count")
def error_mid(call: Call) -> Plan:
    return chat.stream(call, chain(islice(chat.opening(call), at(call)), [_error_event(call)]))


def _error_event(call: Call) -> Say:
    return Say(chat.event(call, error_object(call, call.behaviour.status or 429, numbered=True)))


# --- silence and broken connections ---
@fault(chat=False)
def reset_before(call: Call) -> Plan:
    return Plan(steps=(Stop.RESET,), transfer=Transfer.RAW)


@fault(chat=False)
def close_before(call: Call) -> Plan:
    return Plan(steps=(Stop.CUT,), transfer=Transfer.RAW)


@fault(chat=False)
def hang(call: Call) -> Plan:
    return Plan(steps=(Stop.HANG,), transfer=Transfer.RAW)


@fault()
def reset_headers(call: Call) -> Plan:
    return replace(chat.right(call), steps=(Stop.RESET,))


@fault()
def hang_headers(call: Call) -> Plan:
    return replace(chat.right(call), steps=(Stop.HANG,))


@fault(takes="count")
def reset_mid(call: Call) -> Plan:
    return _broken_off(call, Stop.RESET)


@fault(takes="count")
def cut_mid(call: Call) -> Plan:
    return _broken_off(call, Stop.CUT)


@fault(takes="count")
def hang_mid(call: Call) -> Plan:
    return _broken_off(call, Stop.HANG)


@fault(takes="count")
def fin_mid(call: Call) -> Plan:
    if chat.streamed(call):
        return chat.stream(call, islice(chat.opening(call), at(call)))
    half = _half_body(call)
    return replace(chat.right(call), steps=(half,), transfer=Transfer.CLOSE)


@fault(only="stream")
def fin_after_finish(call: Call) -> Plan:
    return chat.stream(call, chain(chat.opening(call), chat.finish(call)))


@fault(takes="word")
def slow(call: Call) -> Plan:
    argument = call.behaviour.argument or "1s"
    try:
        return replace(chat.right(call), delay=seconds(argument))
    except ValueError:
        raise BadOption(f"fault 'slow' takes a time after @, not {argument!r}") from None


@fault()
def keepalive_race(call: Call) -> Plan:
    return replace(chat.right(call), poison=True)


def _broken_off(call: Call, end: Stop) -> Plan:
    if chat.streamed(call):
        steps: list[Step] = [end]
        return chat.stream(call, chain(islice(chat.opening(call), at(call)), steps))
    return replace(chat.right(call), steps=(_half_body(call), end))


def _half_body(call: Call) -> Say:
    """The first half of the whole answer; its tokens were all made, so all are billed."""
    data = chat.completion(call)
    counted = call.answer.counted
    return Say(data[: len(data) // 2], counted.completion, counted.reasoning)
