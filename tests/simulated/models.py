"""What a model's name asks for: the grammar of the package's docstring, read into a `Behaviour`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

# What GET /v1/models lists: names for the demo, and what each does before a request adds options of its own.
PRESETS: Mapping[str, str] = MappingProxyType(
    {
        "sim-swift": "tokens=all",
        "sim-deep": "tokens=all&first=150ms&pace=20ms",
        "sim-small": "tokens=24",
        "sim-large": "tokens=60&first=150ms&pace=20ms",
        "sim-reasoning": "tokens=24&reasoning=30&first=150ms&pace=20ms",
        "sim-tools": "tokens=24&tools",
        "sim-instant": "instant",
    }
)
INSTANT_PROMPT = 8  # tokens of the prompt that an instant answer bills, whatever was asked
FRAMINGS = frozenset({"crlf", "cr", "nospace", "comments", "ping", "multiline", "named", "bom"})
LIES = (
    *("negative", "float", "string", "bool", "nan", "infinite", "huge"),
    *("null", "empty", "partial", "mismatch", "total", "missing", "twice"),
)


class BadOption(Exception):
    """A model name asks for something this server does not know or cannot do here; the text says what."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How to answer one request: the options of the grammar; times are seconds, sizes bytes."""

    tokens: int | None = 16  # None: all there is to say, once
    text: str | None = None
    echo: bool = False
    echo_headers: bool = False
    tools: int = 0
    reasoning: int = 0
    reasoning_field: str = "reasoning_content"
    ignore_max: bool = False
    prompt: int | None = None
    context: int | None = None
    cached: int = 0
    id: str | None = None
    model_echo: str | None = None
    instant: bool = False
    script: str | None = None
    first: float = 0.0
    pace: float = 0.0
    hold: int | None = None
    usage_at: str = "chunk"
    as_: str | None = None
    framing: frozenset[str] = frozenset()
    content_type: str | None = None
    segment: int = 0
    gap: float = 0.0
    close: bool = False
    idle: float | None = None
    wrong_usage: str | None = None
    fault: str | None = None
    status: int | None = None
    code: str | None = None
    message: str | None = None
    retry_after: str | None = None
    redirect: str | None = None
    fail_first: int | None = None
    fail_every: int | None = None
    flap: float | None = None
    every: float = 1.0
    size: int | None = None
    # Not an option: what follows `@` in `fault=NAME@ARGUMENT`.
    argument: str | None = None


def seconds(value: str) -> float:
    """A time of the grammar, `20ms`, `1.5s` or bare milliseconds, in seconds. Raises ValueError."""
    number, unit = value, 0.001
    if value.endswith("ms"):
        number = value[:-2]
    elif value.endswith("s"):
        number, unit = value[:-1], 1.0
    time = float(number) * unit
    if not 0 <= time < 1e6:
        raise ValueError(value)
    return time


def count(value: str) -> int:
    """A whole number of digits alone. Raises ValueError."""
    if not (value.isascii() and value.isdigit()):
        raise ValueError(value)
    return int(value)


def _positive(value: str) -> int:
    number = count(value)
    if number == 0:
        raise ValueError(value)
    return number


def _size(value: str) -> int:
    shift = {"K": 10, "M": 20, "G": 30}.get(value[-1:].upper())
    return count(value) if shift is None else count(value[:-1]) << shift


def _flag(value: str) -> bool:
    if value:
        raise ValueError(value)
    return True


def _one_of(*words: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in words:
            raise ValueError(value)
        return value

    return read


def _framing(value: str) -> frozenset[str]:
    kinds = frozenset(value.split("+"))
    if not kinds <= FRAMINGS or {"cr", "crlf"} <= kinds:
        raise ValueError(value)
    return kinds


def _status(value: str) -> int:
    status = count(value)
    if not 200 <= status <= 599:
        raise ValueError(value)
    return status


READERS: dict[str, Callable[[str], Any]] = {
    "tokens": lambda value: None if value == "all" else count(value),
    **dict.fromkeys(("reasoning", "prompt", "cached", "fail_first"), count),
    **dict.fromkeys(("segment", "fail_every", "context"), _positive),
    **dict.fromkeys(("first", "pace", "gap", "idle", "flap", "every"), seconds),
    **dict.fromkeys(("echo", "echo_headers", "ignore_max", "instant", "close"), _flag),
    **dict.fromkeys(("text", "id", "model_echo", "script", "content_type"), str),
    **dict.fromkeys(("code", "message", "retry_after", "redirect", "fault"), str),
    "tools": lambda value: _positive(value or "1"),
    "hold": lambda value: count(value or "0"),
    "reasoning_field": _one_of("reasoning_content", "reasoning", "hidden"),
    "usage_at": _one_of("chunk", "always", "finish", "every"),
    "as": _one_of("json", "sse"),
    "framing": _framing,
    "wrong_usage": _one_of(*LIES),
    "status": _status,
    "size": _size,
}


@lru_cache(maxsize=4096)
def read(options: str) -> Behaviour:
    """The behaviour that `key=value&key&...` describes; a key given twice counts as last given.

    `status` or `redirect` without `fault` is the fault of that name. Raises BadOption, naming the option.
    """
    given: dict[str, Any] = {}
    for option in filter(None, options.split("&")):
        key, _, value = option.partition("=")
        key = key.replace("-", "_")
        if key not in READERS:
            raise BadOption(f"unknown option {key!r}")
        try:
            given["as_" if key == "as" else key] = READERS[key](unquote(value, errors="strict"))
        except ValueError:
            raise BadOption(f"bad value for {key!r}: {value!r}") from None
    if "fault" in given:
        given["fault"], _, argument = given["fault"].partition("@")
        given["argument"] = argument or None
    elif "redirect" in given or "status" in given:
        given["fault"] = "redirect" if "redirect" in given else "status"
    elif given.keys() & {"fail_first", "fail_every", "flap"}:
        raise BadOption("fail_first, fail_every and flap say when a fault is played; no fault is named")
    if "instant" in given:
        if len(given) > 1:
            raise BadOption("instant takes no other option")
        given["prompt"] = INSTANT_PROMPT
    return Behaviour(**given)


class Catalog:
    """The presets, and what POST /control/model changed about them."""

    def __init__(self) -> None:
        self.presets = dict(PRESETS)

    def behaviour(self, model: str) -> Behaviour:
        """What `model` asks for: its preset's options first, its own on top. Raises BadOption."""
        name, _, own = model.partition("?")
        return read(f"{self.presets.get(name, '')}&{own}")

    def change(self, name: str, options: str) -> None:
        """From now on `name` does what `options` say; any name, listed from now on. Raises BadOption."""
        read(options)
        self.presets[name] = options

    def reset(self) -> None:
        """Back to the presets."""
        self.presets = dict(PRESETS)
