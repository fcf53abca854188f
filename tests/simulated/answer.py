"""What is said: the words and tool calls that answer a chat request, and the count of their tokens."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from .models import BadOption, Behaviour

PER_MESSAGE = 4  # tokens a message costs besides its words
FRAGMENT = 8  # characters of a tool call's arguments that make a token
SPEECH = (
    "I am a simulated model: nothing was generated and nothing was paid, but every token of this answer was "
    "counted, billed and accounted for as if it had been real. Ask me twice and I say the same."
)
THOUGHT = "The question is read word by word, and the answer is taken from a fixed text that never changes."
SPOKEN, THOUGHTS = tuple(SPEECH.split()), tuple(THOUGHT.split())
WORD = re.compile(r"\s*\S+(?:\s+\Z)?")


class BadRequest(Exception):
    """The body is not a chat request; the text says why."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Tokens, counted: `cached` is inside `prompt`, `reasoning` inside `completion`."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: its place, id and name, and its arguments in the fragments they are streamed in."""

    index: int
    id: str
    name: str
    fragments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one stream event adds to a choice, and the tokens it stands for (`thought`: reasoning tokens)."""

    delta: dict[str, Any]
    tokens: int = 1
    thought: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. All `choices` choices say the same; `counted` covers them together."""

    choices: int
    thoughts: tuple[str, ...]
    words: tuple[str, ...]
    calls: tuple[ToolCall, ...]
    finish: str
    counted: Counted
    reasoning_field: str

    def message(self) -> dict[str, Any]:
        """The whole answer as a chat message."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self.words) if not self.calls else None,
        }
        if self.thoughts and self.reasoning_field != "hidden":
            message[self.reasoning_field] = "".join(self.thoughts)
        if self.calls:
            message["tool_calls"] = [_tool_call(call, "".join(call.fragments), index=False) for call in self.calls]
        return message

    def pieces(self) -> Iterator[Piece]:
        """The same as stream deltas of one choice: the role first, then a token each."""
        hidden = len(self.thoughts) if self.reasoning_field == "hidden" else 0
        opening: dict[str, Any] = {"role": "assistant", "content": None if self.calls else ""}
        yield Piece(opening, tokens=hidden, thought=hidden)
        if not hidden:
            for thought in self.thoughts:
                yield Piece({self.reasoning_field: thought}, thought=1)
        for word in self.words:
            yield Piece({"content": word})
        for call in self.calls:
            yield Piece({"tool_calls": [_tool_call(call, "", index=True)]})
            for fragment in call.fragments:
                yield Piece({"tool_calls": [{"index": call.index, "function": {"arguments": fragment}}]})


def _tool_call(call: ToolCall, arguments: str, *, index: bool) -> dict[str, Any]:
    place = {"index": call.index} if index else {}
    return {
        **place,
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def say(body: Mapping[str, Any], raw: bytes, headers: Sequence[tuple[str, str]], behaviour: Behaviour) -> Answer:
    """The answer to the chat request `body` (`raw` as received, with its `headers`).

    Raises BadRequest when the request is not one, BadOption when the behaviour cannot apply to it.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise BadRequest("messages must be a list of objects")
    choices = _whole_number(body, "n", default=1)
    cap = asked_cap(body)
    if behaviour.ignore_max or behaviour.echo or behaviour.echo_headers:
        cap = None
    if behaviour.echo and behaviour.echo_headers:
        raise BadOption("echo and echo_headers exclude each other")

    thoughts = tuple(_spoken(THOUGHTS, behaviour.reasoning))
    calls = _calls(body, behaviour.tools)
    words: tuple[str, ...] = () if calls else tuple(_words(messages, raw, headers, behaviour))
    full = len(thoughts) + len(words) + sum(1 + len(call.fragments) for call in calls)
    if cap is not None and full > cap:
        thoughts = thoughts[:cap]
        words = words[: cap - len(thoughts)]
        calls = _cut(calls, cap - len(thoughts))
    said = len(thoughts) + len(words) + sum(1 + len(call.fragments) for call in calls)
    prompt = behaviour.prompt if behaviour.prompt is not None else count_prompt(messages)
    return Answer(
        choices=choices,
        thoughts=thoughts,
        words=words,
        calls=calls,
        finish="length" if said < full else "tool_calls" if calls else "stop",
        counted=Counted(prompt, said * choices, min(behaviour.cached, prompt), len(thoughts) * choices),
        reasoning_field=behaviour.reasoning_field,
    )


def asked_cap(body: Mapping[str, Any]) -> int | None:
    """The cap of a request; None: it has none."""
    for field in ("max_completion_tokens", "max_tokens"):
        if (cap := _whole_number(body, field, default=-1)) != -1:
            return cap
    return None


def count_prompt(messages: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of a prompt: the words of every text part of every message, and `PER_MESSAGE` a message."""
    return sum(PER_MESSAGE + sum(len(text.split()) for text in _texts(message)) for message in messages)


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]


def _whole_number(body: Mapping[str, Any], field: str, *, default: int) -> int:
    value = body.get(field)
    if value is None:
        return default
    if type(value) is not int or value < 1:
        raise BadRequest(f"{field} must be a whole number above 0")
    return value


def _words(
    messages: Sequence[Mapping[str, Any]],
    raw: bytes,
    headers: Sequence[tuple[str, str]],
    behaviour: Behaviour,
) -> list[str]:
    if behaviour.text is not None:
        return split(behaviour.text)
    if behaviour.echo:
        return split(raw.decode())
    if behaviour.echo_headers:
        return split(msgspec.json.encode(headers).decode())
    asked = [word for text in _texts(messages[-1]) for word in text.split()] if messages else []
    heard = ["You", "said:", *asked[:8], "—"] if asked else []
    words = [*heard, *SPOKEN]
    return _spoken(words, len(words) if behaviour.tokens is None else behaviour.tokens)


def split(text: str) -> list[str]:
    """The text's words with the space before them: joined, they are the text again."""
    return WORD.findall(text) or ([text] if text else [])


def _spoken(words: Sequence[str], count: int) -> list[str]:
    spoken = [words[place % len(words)] for place in range(count)]
    return [word if place == 0 else f" {word}" for place, word in enumerate(spoken)]


def _calls(body: Mapping[str, Any], count: int) -> tuple[ToolCall, ...]:
    tools = body.get("tools")
    if not count or not tools or body.get("tool_choice") == "none":
        return ()
    functions = [
        tool["function"] for tool in tools if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
    ]
    if not functions:
        raise BadRequest("tools must be a list of functions")
    calls = []
    for index in range(count):
        function = functions[index % len(functions)]
        schema = function.get("parameters") or {}
        arguments = msgspec.json.encode(_filled(schema if isinstance(schema, dict) else {})).decode()
        fragments = tuple(arguments[at : at + FRAGMENT] for at in range(0, len(arguments), FRAGMENT))
        calls.append(ToolCall(index, f"call_{index + 1}", str(function.get("name")), fragments))
    return tuple(calls)


def _filled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that fit an object schema: every property it lists, each of its type."""
    examples: dict[str, Any] = {
        "string": "Oslo",
        "integer": 7,
        "number": 0.5,
        "boolean": True,
        "array": [],
        "object": {},
    }
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {
        name: kind["enum"][0] if kind.get("enum") else examples.get(str(kind.get("type")), "Oslo")
        for name, kind in properties.items()
        if isinstance(kind, dict)
    }


def _cut(calls: Sequence[ToolCall], left: int) -> tuple[ToolCall, ...]:
    """As much of the calls as `left` tokens hold; the last one may break off inside its arguments."""
    kept = []
    for call in calls:
        if left <= 0:
            break
        kept.append(ToolCall(call.index, call.id, call.name, call.fragments[: left - 1]))
        left -= 1 + len(kept[-1].fragments)
    return tuple(kept)
