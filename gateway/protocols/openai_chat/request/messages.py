"""The messages of a request, in two steps: what the documented refusals speak of (`outline`), then the rest (`look`).

The steps are apart because of the order of refusals: of a request with several faults the first in the documented order
is told, and most of that order lies between the two. Most messages are a role and a text; they cost one look.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.protocols.openai_chat.request.checks import MISSING, TYPE, missing, wrong
from gateway.protocols.openai_chat.request.parts import GEMINI, Media, read_parts
from gateway.wire.dialects import Dialect
from gateway.wire.errors import InvalidRequest

MAX_MESSAGES = 100_000

ROLES = ("developer", "system", "user", "assistant", "tool", "function")
_TALKERS = ("user", "assistant", "system", "developer")  # A tuple: a role of a wrong type may not be hashable.

Deep = list[tuple[int, Any]]


def outline(messages: Any, dialect: Dialect) -> Deep:
    """Refuse no messages, null among them, and one without content; gives those left to `look` into, with their places.

    Raises `InvalidRequest`.
    """
    say = dialect.messages
    if messages is None:
        raise wrong(say["messages_required"], "messages", MISSING)
    if type(messages) is not list:
        raise wrong("Parameter messages must be an array.", "messages", TYPE)
    if not messages:
        raise wrong(say["messages_empty"], "messages")
    if len(messages) > MAX_MESSAGES:
        raise wrong(f"Parameter messages takes at most {MAX_MESSAGES} messages.", "messages")
    if None in messages:
        raise wrong(say["messages_null"], f"messages[{messages.index(None)}]")
    deep = []
    for at, message in enumerate(messages):
        if type(message) is dict:
            content = message.get("content")
            if type(content) is str:
                if len(message) == 2 and message.get("role") in _TALKERS:
                    continue
            elif (content is None or content == []) and not _stands_without_content(message):
                raise wrong(say["message_without_content"], f"messages[{at}].content")
        deep.append((at, message))
    return deep


def look(deep: Deep, messages: list[Any]) -> Media:
    """Check what `outline` left, and count its media. Raises `InvalidRequest`."""
    media = Media()
    for at, message in deep:
        if type(message) is not dict:
            raise wrong(f"Parameter messages[{at}] must be an object.", f"messages[{at}]", TYPE)
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            if type(message.get("tool_call_id")) is not str or not message["tool_call_id"]:
                raise _no_string(message.get("tool_call_id"), at, "tool_call_id", "the id of the call it answers")
            if len(message) == 3 and type(content) is str:
                continue
        elif role == "function":
            _check_function_turn(message, at, messages)
        elif type(role) is not str or role not in _TALKERS:
            raise _bad_role(role, at)
        if type(content) is list:
            read_parts(content, role, f"messages[{at}].content", media)
        elif content is not None and type(content) is not str:
            param = f"messages[{at}].content"
            raise wrong(f"Parameter {param} must be a string or an array of parts.", param, TYPE)
        if (name := message.get("name")) is not None and type(name) is not str:
            raise _no_string(name, at, "name", "a string")
        if role == "assistant":
            for field, value in message.items():
                if value is not None and (check := _ASSISTANT.get(field)):
                    check(value, at, field)
            if details := message.get("reasoning_details"):
                media.thoughts.update(entry.get("format") or "" for entry in details if is_bound(entry))
            if any("extra_content" in call and is_signed(call) for call in message.get("tool_calls") or ()):
                media.thoughts.add(GEMINI)
    return media


def is_bound(entry: dict[str, Any]) -> bool:
    """Whether an entry of `reasoning_details` means something to the kind of provider that made it alone."""
    return bool(entry.get("signature") or entry.get("data"))


def is_signed(call: dict[str, Any]) -> bool:
    """Whether a tool call has a signature on it, as Google's own endpoint of this protocol puts it there."""
    extra = call.get("extra_content")
    google = extra.get("google") if type(extra) is dict else None
    return type(google) is dict and bool(google.get("thought_signature"))


def _stands_without_content(message: dict[str, Any]) -> bool:
    """Whether it is an assistant's turn with something in place of content."""
    said = message.get("tool_calls") or message.get("function_call") or message.get("refusal") or message.get("audio")
    return bool(said) and message.get("role") == "assistant"


def _check_text(value: Any, at: int, name: str) -> None:
    if type(value) is not str:
        raise _no_string(value, at, name, "a string")


def _check_call(value: Any, at: int, name: str) -> None:
    if type(value) is not dict:
        raise _no_object(at, name)
    for field in ("name", "arguments"):
        _check_text(value.get(field), at, f"{name}.{field}")


def _check_audio(value: Any, at: int, name: str) -> None:
    if type(value) is not dict:
        raise _no_object(at, name)
    _check_text(value.get("id"), at, f"{name}.id")


# What a call of each type consists of. Arguments are the model's words, JSON or not: nobody mends them.
_CALLS = {"function": ("name", "arguments"), "custom": ("name", "input")}


def _check_calls(calls: Any, at: int, name: str) -> None:
    if type(calls) is not list:
        param = f"messages[{at}].tool_calls"
        raise wrong(f"Parameter {param} must be an array.", param, TYPE)
    for index, call in enumerate(calls):
        if type(call) is not dict:
            raise _no_object(at, f"tool_calls[{index}]")
        kind = call.get("type")
        fields = _CALLS.get(kind) if type(kind) is str else None
        if fields is None:
            raise _bad_kind(kind, at, f"tool_calls[{index}].type")
        if type(call.get("id")) is not str or not call["id"]:
            raise _no_string(call.get("id"), at, f"tool_calls[{index}].id", "a string")
        body = call.get(kind)
        if type(body) is not dict:
            raise _no_object(at, f"tool_calls[{index}].{kind}", body is None)
        for field in fields:
            if type(body.get(field)) is not str:
                raise _no_string(body.get(field), at, f"tool_calls[{index}].{kind}.{field}", "a string")


# Where each type of entry has its matter. A signature alone is what a stream ends a thought with.
_MATTER = {"reasoning.text": "text", "reasoning.summary": "summary", "reasoning.encrypted": "data"}


def _check_details(details: Any, at: int, name: str) -> None:
    """Entries are checked and never changed: a signature that differs by a byte is void. Other types pass unseen."""
    if type(details) is not list:
        param = f"messages[{at}].reasoning_details"
        raise wrong(f"Parameter {param} must be an array.", param, TYPE)
    for index, entry in enumerate(details):
        path = f"reasoning_details[{index}]"
        if type(entry) is not dict:
            raise _no_object(at, path)
        kind = entry.get("type")
        if type(kind) is not str:
            raise _no_string(kind, at, f"{path}.type", "a string, such as reasoning.text")
        for name in ("text", "summary", "data", "signature", "format", "id"):
            if (value := entry.get(name)) is not None and type(value) is not str:
                raise _no_string(value, at, f"{path}.{name}", "a string")
        matter = _MATTER.get(kind)
        if matter and entry.get(matter) is None and not (matter == "text" and entry.get("signature")):
            raise _no_string(None, at, f"{path}.{matter}", f"what an entry of type {kind} holds")
        number = entry.get("index")
        if number is not None and type(number) not in (int, float, str):
            param = f"messages[{at}].{path}.index"
            raise wrong(f"Parameter {param} must be a number or a string.", param, TYPE)


# The further fields of an assistant's turn.
_ASSISTANT: Mapping[str, Callable[[Any, int, str], None]] = {
    "tool_calls": _check_calls,
    "function_call": _check_call,
    "refusal": _check_text,
    "audio": _check_audio,
    "reasoning": _check_text,
    "reasoning_content": _check_text,
    "reasoning_details": _check_details,
}


def _check_function_turn(message: dict[str, Any], at: int, messages: list[Any]) -> None:
    """The older form of a tool's result stands where the assistant's last turn made the older form of a call.

    A function turn on the way back has been found right already, so the search over all of them is linear.
    """
    for place in range(at - 1, -1, -1):
        earlier = messages[place]
        role = earlier.get("role")
        if role == "function" or (role == "assistant" and earlier.get("function_call")):
            break
        if role == "assistant":
            raise _bad_function_turn(at)
    else:
        raise _bad_function_turn(at)
    if type(message.get("name")) is not str:
        raise _no_string(message.get("name"), at, "name", "the name of the function it answers for")


def _bad_function_turn(at: int) -> InvalidRequest:
    return wrong(
        f"Parameter messages[{at}].role can not be function: that role is deprecated and not supported, but for the "
        "answer to an assistant's function_call. Send role tool with a tool_call_id.",
        f"messages[{at}].role",
    )


def _bad_kind(kind: Any, at: int, path: str) -> InvalidRequest:
    if type(kind) is not str:
        return _no_string(kind, at, path, "function or custom")
    return wrong(f"Parameter messages[{at}].{path} must be function or custom.", f"messages[{at}].{path}")


def _bad_role(role: Any, at: int) -> InvalidRequest:
    param = f"messages[{at}].role"
    if role is None:
        return missing(param, "who speaks")
    return wrong(f"Parameter {param} must be one of {', '.join(ROLES[:-1])}.", param)


def _no_object(at: int, path: str, absent: bool = False) -> InvalidRequest:
    if absent:
        return missing(f"messages[{at}].{path}", "an object")
    return wrong(f"Parameter messages[{at}].{path} must be an object.", f"messages[{at}].{path}", TYPE)


def _no_string(value: Any, at: int, path: str, what: str) -> InvalidRequest:
    """For what should be a string: it is absent, of another type, or empty."""
    param = f"messages[{at}].{path}"
    if value is None or value == "":
        return missing(param, what)
    return wrong(f"Parameter {param} must be {what}.", param, TYPE)
