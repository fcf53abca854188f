"""An answer's two forms: a completions upstream's, read as the chat form (`Source`), and as its client sees it
(`CompletionsWriter`).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.protocols.openai_chat import faults
from gateway.protocols.openai_chat.answer.choices import listed
from gateway.wire import sse
from gateway.wire.dialects import Dialect
from gateway.wire.errors import GatewayError, UpstreamFault
from routing.health.faults import Fault

_encode = msgspec.json.Encoder().encode


class Source:
    """Reads the answer to a request for so many `choices`. Each of them has to come."""

    complete = False  # no event but [DONE] says so

    def __init__(self, choices: int) -> None:
        self._missing = set(range(choices))
        self._choices = choices

    def event(self, name: str, event: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """What an event says."""
        return (self._read(event, "delta", "error" if name == "error" else ""),)

    def rest(self) -> tuple[()]:
        """Nothing is held back. Raises `UpstreamFault` for a text that never came."""
        if self._missing and len(self._missing) < self._choices:  # an answer of none is told as empty
            raise UpstreamFault(Fault.TRUNCATED, f"{len(self._missing)} of {self._choices} texts never came")
        return ()

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        """What a whole body says."""
        made = self._read(answer, "message", "")
        if not made.get("error"):
            self.rest()
        return made

    def _read(self, answer: dict[str, Any], holder: str, failed: str) -> dict[str, Any]:
        if failed:
            return {"error": answer.get("error") or answer}
        if "choices" not in answer:
            return answer
        return answer | {"choices": [self._choice(choice, holder) for choice in listed(answer["choices"] or [])]}

    def _choice(self, choice: Any, holder: str) -> dict[str, Any]:
        if type(choice) is not dict:
            raise _invalid("a choice is not an object")
        at, text = choice.get("index") or 0, choice.get("text")
        if type(at) is not int or not 0 <= at < self._choices:
            raise _invalid("a choice has an index that nobody asked for")
        if text is not None and type(text) is not str:
            raise _invalid("a text is not a string")
        self._missing.discard(at)
        message = {} if text is None else {"content": text}
        return {name: value for name, value in choice.items() if name != "text"} | {"index": at, holder: message}


class CompletionsWriter:
    """Writes chunks as events, and an answer as a body. It keeps nothing, so one serves all answers."""

    __slots__ = ()
    keep_alive = sse.comment("keep-alive")

    def chunk(self, chunk: dict[str, Any]) -> bytes:
        """The event of a chunk; none of one that only says who speaks."""
        choices = [_shown(choice, choice["delta"]) for choice in chunk["choices"]]
        told = [choice for choice in choices if choice["text"] or choice["logprobs"] or choice["finish_reason"]]
        return sse.encode(_encode(_ours(chunk, told))) if told or not choices else b""

    def foreign(self, name: bytes, event: dict[str, Any]) -> bytes:
        """An event of the upstream's that is no chunk passes as it is."""
        return (b"event: " + name + b"\n" if name else b"") + sse.encode(_encode(event))

    def ending(self, chunks: Sequence[dict[str, Any]]) -> bytes:
        """The closing chunks of a stream: those with finish reasons, then usage if it was asked for."""
        return b"".join(map(self.chunk, chunks)) + sse.DONE

    def whole(self, answer: dict[str, Any]) -> bytes:
        """The body."""
        return _encode(_ours(answer, [_shown(choice, choice["message"]) for choice in answer["choices"]]))

    def error_event(self, error: GatewayError, dialect: Dialect, request_id: str) -> bytes:
        """The event that ends a stream which failed after it began."""
        return faults.error_event(error, dialect, request_id)


def _ours(answer: dict[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any]:
    return answer | {"object": "text_completion", "choices": choices}


def _shown(choice: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    beside = {name: value for name, value in choice.items() if name not in ("delta", "message")}
    return {"text": message.get("content") or "", "logprobs": None} | beside


def _invalid(detail: str) -> UpstreamFault:
    return UpstreamFault(Fault.INVALID_RESPONSE, detail, unreadable=True)
