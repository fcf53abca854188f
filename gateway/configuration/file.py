"""Reading a configuration file: YAML of which every value keeps its text, its line and its path.

The parser's nodes are read, not the objects it would make of them: a price stays the decimal that was typed
(no float is ever made), a key that stands twice is seen, no tag constructs anything, an error says where. Any
scalar may be given by reference, `{env: NAME}` or `{file: PATH}`; a secret may be given in no other way.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml

T = TypeVar("T")

WHOLE = re.compile(r"0|[1-9][0-9]{0,18}")
DECIMAL = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TAG = "tag:yaml.org,2002:"
BY_REFERENCE = "{env: NAME} or {file: PATH}"


class ConfigurationError(Exception):
    """The file cannot be taken. The message says where (file, line, path) and what is allowed there."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file's name, the folder that relative paths in it start from, and the variables it may refer to."""

    name: str
    folder: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value's text. `tag` is what YAML takes it for ("int", "str", ...); None: it came by reference."""

    text: str
    tag: str | None


@dataclass(frozen=True, slots=True)
class At:
    """A value in the file and where it lies. Its readers give the value, or raise `ConfigurationError`."""

    node: yaml.Node
    path: str
    source: Source

    def wrong(self, message: str) -> ConfigurationError:
        """The error that something is wrong here."""
        line = self.node.start_mark.line + 1
        return ConfigurationError(f"{self.source.name}, line {line}: {self.path or 'the file'}: {message}")

    def is_null(self) -> bool:
        """Whether the value is YAML's null."""
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == TAG + "null"

    def is_mapping(self) -> bool:
        """Whether the value is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    def entries(self) -> dict[str, "At"]:
        """What a mapping holds, by key. A key is taken as it is written, whatever YAML thinks it is."""
        if not isinstance(self.node, yaml.MappingNode) or self.node.tag != TAG + "map":
            raise self.wrong(f"expected a mapping, got {self.shown()}")
        found: dict[str, At] = {}
        for key, value in self.node.value:
            if not isinstance(key, yaml.ScalarNode) or not key.tag.startswith(TAG) or key.tag == TAG + "merge":
                raise At(key, self.path, self.source).wrong("expected a plain key; merging is not supported")
            inner = At(value, f"{self.path}.{key.value}" if self.path else key.value, self.source)
            if key.value in found:
                raise At(key, inner.path, self.source).wrong("stands here a second time")
            found[key.value] = inner
        return found

    def fields(self, allowed: Collection[str]) -> dict[str, "At"]:
        """What a mapping holds, every key of it being one of `allowed`."""
        found = self.entries()
        for key, value in found.items():
            if key not in allowed:
                near = get_close_matches(key, allowed, 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                raise value.wrong(f"unknown key{hint}; allowed are {', '.join(allowed)}")
        return found

    def items(self) -> list["At"]:
        """What a list holds."""
        if not isinstance(self.node, yaml.SequenceNode) or self.node.tag != TAG + "seq":
            raise self.wrong(f"expected a list, got {self.shown()}")
        return [At(node, f"{self.path}[{place}]", self.source) for place, node in enumerate(self.node.value)]

    def shown(self) -> str:
        """How a message speaks of the value."""
        if isinstance(self.node, yaml.ScalarNode):
            return "nothing" if self.is_null() else repr(self.node.value[:60])
        return "a list" if isinstance(self.node, yaml.SequenceNode) else "a mapping"

    def scalar(self, expected: str) -> Scalar:
        """The value's text, its reference followed. `expected` says in an error what was."""
        if isinstance(self.node, yaml.MappingNode):
            return Scalar(self.referred(), None)
        if not isinstance(self.node, yaml.ScalarNode) or not self.node.tag.startswith(TAG):
            raise self.wrong(f"expected {expected}, got {self.shown()}")
        return Scalar(self.node.value, self.node.tag.removeprefix(TAG))

    def referred(self) -> str:
        """The text behind `{env: NAME}` or `{file: PATH}`; of a file, without the newline at its end."""
        given = self.fields(("env", "file"))
        if len(given) != 1:
            raise self.wrong(f"expected {BY_REFERENCE}")
        (kind, target), *_ = given.items()
        name = target.node.value
        if not isinstance(name, str) or not name:
            raise target.wrong("expected a name")
        if kind == "env":
            if not ENV_NAME.fullmatch(name):
                raise target.wrong(f"{name!r} is not the name of a variable")
            if name not in self.source.environment:
                raise target.wrong(f"the environment variable {name} is not set")
            return self.source.environment[name]
        try:
            return (self.source.folder / name).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise target.wrong(f"cannot read {name}: {getattr(error, 'strerror', 'not UTF-8')}") from None

    def unlike(self, expected: str, given: Scalar) -> ConfigurationError:
        """The error that the value is not `expected`. What came by reference may be secret: not shown."""
        return self.wrong(f"expected {expected}, got {'another value' if given.tag is None else self.shown()}")


def load(path: Path, environment: Mapping[str, str]) -> At:
    """The file's top. Raises `ConfigurationError` when it cannot be read or is not one YAML document."""
    source = Source(path.name, path.parent, environment)
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not UTF-8") from None
    except yaml.YAMLError as error:
        # The parser's own words quote the file, which may hold what should not be shown.
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigurationError(f"{source.name}{line}: not YAML: {problem or 'a character is not allowed'}") from None
    if node is None:
        raise ConfigurationError(f"{source.name}: the file is empty")
    return At(node, "", source)


def text(at: At) -> str:
    """Text. A bare `2024` or `yes` is not text to YAML: it wants quotes."""
    given = at.scalar("text")
    if given.tag not in ("str", None):
        raise at.unlike("text (a number, a date, yes or no want quotes)", given)
    if "\0" in given.text:
        raise at.wrong("a null character is not allowed")
    return given.text


def boolean(at: At) -> bool:
    """`true` or `false`, no other spelling."""
    given = at.scalar("true or false")
    if given.tag not in ("bool", None) or given.text not in ("true", "false"):
        raise at.unlike("true or false", given)
    return given.text == "true"


def whole(at: At) -> int:
    """A whole number >= 0, in plain decimal digits."""
    expected = "a whole number, 0 or more, without quotes"
    given = at.scalar(expected)
    if given.tag not in ("int", None) or not WHOLE.fullmatch(given.text):
        raise at.unlike(expected, given)
    return int(given.text)


def decimal(digits: int, places: int) -> Callable[[At], Decimal]:
    """A reader of decimals >= 0, as written: at most `digits` before the point and `places` after it."""
    expected = f"a decimal, 0 or more, with at most {places} decimals (quotes or none, no exponent)"

    def read(at: At) -> Decimal:
        given = at.scalar(expected)
        if given.tag not in ("int", "float", "str", None) or not DECIMAL.fullmatch(given.text):
            raise at.unlike(expected, given)
        before, _, after = given.text.partition(".")
        if len(before) > digits or len(after.rstrip("0")) > places:
            raise at.unlike(expected, given)
        return Decimal(given.text)

    return read


def seconds(at: At) -> float:
    """A time in seconds, above 0."""
    value = float(decimal(6, 3)(at))
    if not value:
        raise at.wrong("expected more than 0 seconds")
    return value


def moment(at: At) -> datetime:
    """A moment with its zone, such as 2026-01-31T00:00:00Z; given back in UTC."""
    expected = "a moment with its zone, such as 2026-01-31T00:00:00Z"
    given = at.scalar(expected)
    try:
        value = datetime.fromisoformat(given.text)
        if given.tag in ("timestamp", "str", None) and value.tzinfo is not None:
            return value.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise at.unlike(expected, given)


def day(at: At) -> date:
    """A day, such as 2026-01-31."""
    given = at.scalar("a day, such as 2026-01-31")
    try:
        return date.fromisoformat(given.text)
    except ValueError:
        raise at.unlike("a day, such as 2026-01-31", given) from None


def choice(allowed: Collection[str]) -> Callable[[At], str]:
    """A reader of one word out of `allowed`."""
    expected = f"one of {', '.join(word or repr(word) for word in allowed)}"

    def read(at: At) -> str:
        given = at.scalar(expected)
        if given.text not in allowed:
            raise at.unlike(expected, given)
        return given.text

    return read


def listed(reader: Callable[[At], T]) -> Callable[[At], list[T]]:
    """A reader of lists of what `reader` reads."""
    return lambda at: [reader(item) for item in at.items()]


def optional(reader: Callable[[At], T]) -> Callable[[At], T | None]:
    """A reader that takes null too, for None."""
    return lambda at: None if at.is_null() else reader(at)


def secret(at: At) -> str:
    """A secret, which is given by reference alone: files are copied, mailed and committed."""
    if isinstance(at.node, yaml.MappingNode):
        value = at.referred()
        if not value:
            raise at.wrong("the secret is empty")
        return value
    raise at.wrong(f"a secret does not stand in the file itself: give it as {BY_REFERENCE}")


Reader = Callable[[At], Any]
