"""What embeddings and legacy completions read: a text, several, or either as tokens. Checked, counted and bounded."""

from typing import Any

from gateway.protocols.openai_chat.request.checks import TYPE, missing, wrong
from gateway.wire.errors import InvalidRequest

MAX_PROMPTS = 2048  # As OpenAI's.
MAX_TOKEN = 2**31 - 1


def count(value: Any, param: str) -> tuple[int, int]:
    """How many prompts a value is, and how many tokens they are at most: a text has no more than its bytes.

    Raises `InvalidRequest` for what is none, or is empty.
    """
    if value is None:
        raise missing(param, "a string, an array of strings, or either as tokens")
    if type(value) is str:
        return 1, _bytes(value, param)
    if type(value) is not list:
        raise _no_prompt(param)
    if not value:
        raise wrong(f"Parameter {param} can not be empty.", param)
    if type(value[0]) is int:
        return 1, _tokens(value, param)
    if len(value) > MAX_PROMPTS:
        raise wrong(f"Parameter {param} takes at most {MAX_PROMPTS} prompts. Send fewer.", param)
    most, kind = 0, type(value[0])
    for at, prompt in enumerate(value):
        if type(prompt) is not kind:
            raise _no_prompt(f"{param}[{at}]")
        most += _tokens(prompt, f"{param}[{at}]") if kind is list else _bytes(prompt, f"{param}[{at}]")
    return len(value), most


def _bytes(text: Any, param: str) -> int:
    if type(text) is not str:
        raise _no_prompt(param)
    if not text:
        raise wrong(f"Parameter {param} can not be empty.", param)
    return len(text) if text.isascii() else len(text.encode())


def _tokens(tokens: list[Any], param: str) -> int:
    if not tokens:
        raise wrong(f"Parameter {param} can not be empty.", param)
    if not all(type(token) is int and 0 <= token <= MAX_TOKEN for token in tokens):
        raise wrong(f"Parameter {param} must hold tokens: whole numbers from 0 to {MAX_TOKEN}.", param, TYPE)
    return len(tokens)


def _no_prompt(param: str) -> InvalidRequest:
    return wrong(f"Parameter {param} must be a string, an array of strings, or either as tokens.", param, TYPE)
