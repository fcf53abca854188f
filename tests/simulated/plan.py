"""What happens on the wire, as data: a head, and steps that the connection plays one after the other."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from .answer import Answer, Counted, say
from .models import Behaviour
from .prompts import EMBEDDINGS, as_chat


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request as received; header names are in lower case, in their order on the wire. `target` is what its
    first line says, path and query as they came.
    """

    method: str
    path: str
    query: dict[str, list[str]]
    headers: tuple[tuple[str, str], ...]
    body: bytes
    target: str = ""

    def header(self, name: str) -> str | None:
        """The last value of header `name` (lower case), None when absent."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


@dataclass(frozen=True)
class Call:
    """A request whose model name has been understood. `id` is the answer's id and the bill's."""

    id: str
    request: Request
    model: str
    body: dict[str, Any]
    behaviour: Behaviour
    stream: bool

    @cached_property
    def answer(self) -> Answer:
        """What is said; raises BadRequest or BadOption. Of an embedding nothing is."""
        path = self.request.path
        answer = say(as_chat(path, self.body), self.request.body, self.request.headers, self.behaviour)
        if path != EMBEDDINGS:
            return answer
        return replace(answer, words=(), counted=replace(answer.counted, completion=0, reasoning=0))


@dataclass(frozen=True, slots=True)
class Say:
    """Bytes of the body, written together, and the tokens (`thought`: reasoning) and usage they hold."""

    data: bytes
    tokens: int = 0
    thought: int = 0
    usage: bytes | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Silence, in seconds. 0 still lets go what was said, so that it leaves in a segment of its own."""

    seconds: float


class Stop(StrEnum):
    """Ends that are not the body's end."""

    HANG = "hang"  # silence until the client leaves
    RESET = "reset"  # RST
    CUT = "cut"  # FIN, without the framing's own end


Step = Say | Wait | Stop


class Transfer(StrEnum):
    """How the body is framed."""

    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"  # neither: the end of the connection is the end of the body
    RAW = "raw"  # the steps hold the head too


@dataclass(frozen=True, slots=True)
class Plan:
    """An answer to be played. `counted`, where the model answers, has the prompt that is billed."""

    steps: Iterable[Step]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    transfer: Transfer = Transfer.CHUNKED
    length: int = 0
    before: bytes = b""  # raw bytes ahead of the head
    counted: Counted | None = None
    poison: bool = False  # the next request on this connection is reset
    delay: float = 0.0  # seconds ahead of everything

    def head(self, close: bool) -> bytes:
        """The status line and the headers; nothing for a raw answer."""
        if self.transfer is Transfer.RAW:
            return b""
        lines = [f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Simulated')}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.transfer is Transfer.CHUNKED:
            lines.append("Transfer-Encoding: chunked")
        elif self.transfer is Transfer.LENGTH:
            lines.append(f"Content-Length: {self.length}")
        if close or self.transfer is Transfer.CLOSE:
            lines.append("Connection: close")
        return self.before + "\r\n".join([*lines, "", ""]).encode("latin-1")


REASONS = {
    200: "OK",
    307: "Temporary Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


def whole(data: bytes, **how: Any) -> Plan:
    """A plan that sends `data` with its length; `how` are fields of Plan."""
    return Plan(steps=(Say(data),), transfer=Transfer.LENGTH, length=len(data), **how)
