"""What is asked and what is said, in no protocol: every provider says it in its own, and every client hears it so."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Of the shape that providers give them: base64, with characters that some re-encode.
PROOF = "EqQBCkYICRgCKkBpbnZlbnRlZC1zaWduYXR1cmUvbm90K3JlYWw/Pw=="
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
CAP = 4000
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Counts:
    """Tokens. The prompt's include those read from a cache, the completion's those thought."""

    prompt: int = 11
    completion: int = 7
    cached: int = 0
    thought: int = 0


@dataclass(frozen=True)
class Said:
    """An answer. `finish` is in the words of chat completions; `refused`: its text is a refusal, however that is told;
    `proof`: what a provider gives its thought to be known by.
    """

    text: str = ""
    thought: str = ""
    proof: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = "stop"
    refused: bool = False
    counts: Counts = Counts()


@dataclass(frozen=True)
class Tool:
    """A function that is offered."""

    name: str
    description: str = "Does it."
    parameters: Any = None


@dataclass(frozen=True)
class Question:
    """What is asked, with a cap of `CAP` tokens. `choice`: required, none or a tool's name; `turns`: what was answered
    before, as the client keeps it, and its results of the calls.
    """

    text: str = "What is the weather?"
    system: str = "Be brief."
    tools: tuple[Tool, ...] = ()
    choice: str = ""
    image: str = ""  # a PNG in base64
    schema: Any = None
    reasons: bool = False
    turns: tuple[tuple[Any, tuple[tuple[Call, str], ...]], ...] = ()


@dataclass(frozen=True)
class Got:
    """What a provider was sent. `turns` are, in order, ("user", text), ("thought", text, proof), ("said", text),
    ("call", id, name, arguments) and ("result", id, text).
    """

    turns: tuple[tuple[Any, ...], ...]
    system: str
    cap: Any
    tools: tuple[tuple[str, Any], ...] = ()
    choice: str = ""
    image: tuple[str, str] | None = None
    schema: Any = None


@dataclass(frozen=True)
class Heard:
    """What a client heard, and the turn as it keeps it for the next question."""

    said: Said
    turn: Any


def listed(content: Any, kind: str = "text") -> list[dict[str, Any]]:
    """The parts of a content, which may be one text."""
    return [{"type": kind, "text": content}] if type(content) is str else content


def pieces(text: str, size: int = 5) -> Iterator[str]:
    """A text as a stream brings it."""
    return (text[at : at + size] for at in range(0, len(text), size))


def written(value: Any) -> str:
    """JSON as providers write it into calls."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def stream(*events: Any, named: bool = True) -> bytes:
    """Server-sent events; each is an object, or a word of its own."""
    out = []
    for event in events:
        name = f"event: {event['type']}\n" if named else ""
        out.append(f"{name}data: {event if type(event) is str else written(event)}\n\n")
    return "".join(out).encode()


def events(text: str) -> list[Any]:
    """The data of an event stream as a client reads it, `[DONE]` as text; names agree with what the data say."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        name = next((line[7:] for line in lines if line.startswith("event: ")), None)
        data = [line[6:] for line in lines if line.startswith("data: ")]
        if data:
            value = data[0] if data[0] == "[DONE]" else json.loads(data[0])
            assert name in (None, value.get("type") if type(value) is dict else None)
            found.append(value)
    return found
