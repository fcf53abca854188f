"""What is not a chat: completions and embeddings, read as one, and their answers written in forms of their own."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
SERVED = (CHAT, COMPLETIONS, EMBEDDINGS)
NUMBERS = 8  # of a vector, unless the request says how many


def as_chat(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The chat that a request stands for: a prompt is a message, a token of it a word."""
    if path == CHAT:
        return body
    prompts = read(body.get("prompt" if path == COMPLETIONS else "input"))
    n = len(prompts) * body.get("n", 1) if path == COMPLETIONS else 1
    return {**body, "n": n, "messages": [{"role": "user", "content": text} for text in prompts]}


def read(value: Any) -> list[str]:
    """The prompts of a request, each as a text."""
    if isinstance(value, str):
        return [value]
    if not value or isinstance(value[0], int):
        return [" ".join(map(str, value or ()))]
    return [one if isinstance(one, str) else " ".join(map(str, one)) for one in value]


def texts(choices: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The choices of a chat as those of a completion."""
    return [
        {
            "text": (choice.get("delta") or choice.get("message") or {}).get("content") or "",
            "index": choice["index"],
            "logprobs": None,
            "finish_reason": choice["finish_reason"],
        }
        for choice in choices
    ]


def vector(text: str, numbers: int) -> list[float]:
    """The vector of a text: always the same, of numbers that 32 bits hold exactly."""
    digest = hashlib.sha256(text.encode()).digest()
    return [(digest[at % len(digest)] - 128) / 128 for at in range(numbers)]


def vectors(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The vectors that a request asks for, as numbers, whatever encoding it wants: not every provider has both."""
    numbers = body.get("dimensions") or NUMBERS
    return [
        {"object": "embedding", "index": at, "embedding": vector(text, numbers)}
        for at, text in enumerate(read(body.get("input")))
    ]
