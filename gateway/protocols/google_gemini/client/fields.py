"""Reading a body that is protobuf written as JSON: names in camel case or snake case, a list of one as the one."""

import re
from typing import Any

from gateway.protocols.openai_chat.request.checks import TYPE, shown, wrong

_after_underscore = re.compile(r"_([a-z0-9])").sub


def camel(name: str) -> str:
    """A field's name in camel case, however it came."""
    return _after_underscore(lambda match: match[1].upper(), name.lstrip("_")) if "_" in name else name


def named(value: Any, path: str) -> dict[str, Any]:
    """An object with its names in camel case; null is absent. Raises `InvalidRequest`.

    What is sent under both names is refused: of two values nobody could say which is meant.
    """
    if type(value) is not dict:
        raise wrong(f"Parameter {path} must be an object.", path, TYPE)
    made: dict[str, Any] = {}
    for name, inner in value.items():
        plain = camel(name)
        if plain in made:
            param = f"{path}.{shown(plain)}" if path else shown(plain)
            raise wrong(f"Parameter {param} is there in two spellings. Send one.", param)
        if inner is not None:
            made[plain] = inner
    return made


def listed(value: Any, path: str) -> list[Any]:
    """A list; a single object stands for a list of it, as Google takes it. Raises `InvalidRequest`."""
    if type(value) is dict:
        return [value]
    if type(value) is not list:
        raise wrong(f"Parameter {path} must be an array.", path, TYPE)
    return value


def text(value: Any, path: str) -> str:
    """A string. Raises `InvalidRequest`."""
    if type(value) is not str:
        raise wrong(f"Parameter {path} must be a string.", path, TYPE)
    return value


def flag(value: Any, path: str) -> bool:
    """True or false. Raises `InvalidRequest`."""
    if type(value) is not bool:
        raise wrong(f"Parameter {path} must be true or false.", path, TYPE)
    return value


def word(value: Any, path: str) -> str:
    """The name of an enumeration's value, in capitals. Raises `InvalidRequest`."""
    return text(value, path).upper()
