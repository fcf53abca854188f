"""How a request is refused, and checks of single values.

A check takes a value that is not null and returns nothing, or raises `InvalidRequest` naming the parameter. Checks are
made once, at import; a request only calls them.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from gateway.wire.dialects import Dialect
from gateway.wire.errors import InvalidRequest

Check: TypeAlias = Callable[[Any], None]

MISSING = "missing_required_parameter"
TYPE = "invalid_type"
VALUE = "invalid_value"
UNSUPPORTED = "unsupported_parameter"

MAX_LABEL = 512  # Characters of a text that identifies somebody or something and is stored.

is_name = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch  # Of a function, a custom tool, a response format.


def wrong(message: str, param: str | None, code: str = VALUE) -> InvalidRequest:
    """A refusal; the message says what to do."""
    return InvalidRequest(message, param=param, code=code)


def missing(param: str, what: str) -> InvalidRequest:
    """A refusal for a required parameter that is absent or null."""
    return wrong(f"Parameter {param} is required: {what}.", param, MISSING)


def plain(text: str) -> bool:
    """Whether text is free of control characters: it goes into logs, rows and URLs."""
    return text.isprintable() or not any(c < " " or "\x7f" <= c <= "\x9f" for c in text)


def shown(name: str) -> str:
    """A name of the client's choice, as a message may hold it."""
    return "".join(c if c.isprintable() else "?" for c in name[:200])


def checked_model(model: Any, dialect: Dialect) -> str:
    """The model's name. Raises `InvalidRequest`."""
    if model is None or model == "":
        raise wrong(dialect.messages["model_required"], "model", MISSING)
    if type(model) is not str:
        raise wrong("Parameter model must be a string.", "model", TYPE)
    if len(model) > 256 or not plain(model):
        raise wrong("Parameter model must be at most 256 characters, none of them control.", "model")
    return model


def number(param: str, least: float, most: float) -> Check:
    """A number, both bounds inclusive."""

    def check(value: Any) -> None:
        if type(value) is not float and type(value) is not int:
            raise wrong(f"Parameter {param} must be a number from {least} to {most}.", param, TYPE)
        if not least <= value <= most:
            raise wrong(f"Parameter {param} must be from {least} to {most}.", param)

    return check


def integer(param: str, least: int, most: int) -> Check:
    """A JSON number without a fraction or exponent, both bounds inclusive."""

    def check(value: Any) -> None:
        if type(value) is not int:
            raise wrong(f"Parameter {param} must be an integer.", param, TYPE)
        if not least <= value <= most:
            raise wrong(f"Parameter {param} must be from {least} to {most}.", param)

    return check


def boolean(param: str) -> Check:
    """True or false."""

    def check(value: Any) -> None:
        if type(value) is not bool:
            raise wrong(f"Parameter {param} must be true or false.", param, TYPE)

    return check


def text(param: str) -> Check:
    """Any string."""

    def check(value: Any) -> None:
        if type(value) is not str:
            raise wrong(f"Parameter {param} must be a string.", param, TYPE)

    return check


def label(param: str) -> Check:
    """A string that may be stored: at most `MAX_LABEL` characters, none of them control."""

    def check(value: Any) -> None:
        if type(value) is not str:
            raise wrong(f"Parameter {param} must be a string.", param, TYPE)
        if len(value) > MAX_LABEL or not plain(value):
            raise wrong(f"Parameter {param} must be at most {MAX_LABEL} characters, none of them control.", param)

    return check


def one_of(param: str, values: Collection[str]) -> Check:
    """One of these strings."""
    known, listed = frozenset(values), ", ".join(values)

    def check(value: Any) -> None:
        if type(value) is not str:
            raise wrong(f"Parameter {param} must be a string: one of {listed}.", param, TYPE)
        if value not in known:
            raise wrong(f"Parameter {param} must be one of {listed}.", param)

    return check


def mapping(param: str) -> Check:
    """An object, whatever is in it."""

    def check(value: Any) -> None:
        if type(value) is not dict:
            raise wrong(f"Parameter {param} must be an object.", param, TYPE)

    return check


def fields(param: str, checks: dict[str, Check], *, required: tuple[str, ...] = ()) -> Check:
    """An object whose fields pass these checks; null is absent, and further fields pass unseen."""

    def check(value: Any) -> None:
        if type(value) is not dict:
            raise wrong(f"Parameter {param} must be an object.", param, TYPE)
        for name in required:
            if value.get(name) is None:
                raise missing(f"{param}.{name}", "it may not be left out of an object that is sent")
        for name, inner in value.items():
            if inner is not None and (known := checks.get(name)):
                known(inner)

    return check


def check_cache_control(value: Any, path: str) -> None:
    """Check a cache breakpoint: `{"type": "ephemeral"}`, perhaps with a `ttl`. Raises `InvalidRequest`."""
    if type(value) is not dict:
        raise wrong(f"Parameter {path} must be an object.", path, TYPE)
    if value.get("type") != "ephemeral":
        raise wrong(f"Parameter {path}.type must be ephemeral.", f"{path}.type")
    if value.get("ttl") not in (None, "5m", "1h"):
        raise wrong(f"Parameter {path}.ttl must be 5m or 1h.", f"{path}.ttl")
