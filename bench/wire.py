"""One HTTP/1.1 connection of the load generator: asks one thing again and again, and checks every answer.

It has to be much cheaper than whatever it measures: the request is made once, as bytes, and of an answer only status,
length and number of events are looked at. What an answer must be is learned from one that was read in full.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

import httptools

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Question:
    """Something to ask: where, the whole request, and what every answer to it must be.

    `length` is the bytes of a whole answer's body; `events` the events of a stream, its last one included, which ends
    with `ending`. One of the two is None, and says which kind it is.
    """

    port: int
    request: bytes
    length: int | None = None
    events: int | None = None
    ending: bytes = DONE


class Job(Protocol):
    """Whoever has lines ask. All methods are called inside the event loop."""

    def ready(self, line: "Line") -> None:
        """The line is connected and idle."""

    def heard(self, line: "Line", events: int) -> None:
        """So many more events of a stream have come."""

    def answered(self, line: "Line", problem: str | None, reusable: bool) -> None:
        """An answer is whole; `problem` is what is wrong with it. Unless `reusable` the server closes the line."""

    def lost(self, line: "Line", busy: bool) -> None:
        """The connection is gone; `busy`: in the middle of an answer."""


class Line(asyncio.Protocol):
    """A connection."""

    def __init__(self, question: Question, job: Job) -> None:
        self.question = question
        self.asked_at = 0.0  # time.perf_counter()
        self.events = 0  # of the answer so far
        self._job = job
        self._busy = False
        self._size, self._tail = 0, b""
        self._parser = httptools.HttpResponseParser(self)

    def ask(self) -> None:
        """Sends the request. One at a time."""
        self._busy = True
        self.asked_at = time.perf_counter()
        self._transport.write(self.question.request)

    def close(self) -> None:
        """Closes the connection, whatever it is at; `lost` is called later."""
        self._transport.abort()

    # --- what asyncio calls ---
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's has no such class
        self._job.ready(self)

    def data_received(self, data: bytes) -> None:
        """Some of an answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()  # counted as lost while busy

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        self._job.lost(self, self._busy)

    # --- what the parser calls ---
    def on_body(self, body: bytes) -> None:
        """Some of a body."""
        self._size += len(body)
        if self.question.events is not None:
            events = body.count(b"\n\n")
            if self._tail[-1:] == b"\n" and body[:1] == b"\n":
                events += 1  # the blank line was cut in two
            self._tail = (self._tail + body)[-len(self.question.ending) :]
            if events:
                self.events += events
                self._job.heard(self, events)

    def on_message_complete(self) -> None:
        """The end of an answer."""
        status, reusable = self._parser.get_status_code(), self._parser.should_keep_alive()
        problem = self._problem(status)
        self._busy = False
        self._size, self.events, self._tail = 0, 0, b""
        self._job.answered(self, problem, reusable)

    def _problem(self, status: int) -> str | None:
        question = self.question
        if status != 200:
            return f"status {status}"
        if question.length is not None and self._size != question.length:
            return f"{self._size} bytes instead of {question.length}"
        if question.events is not None:
            if self._tail != question.ending:
                return f"a stream without {question.ending!r}"
            if self.events != question.events:
                return f"{self.events} events instead of {question.events}"
        return None


async def connect(question: Question, job: Job) -> Line:
    """A new line to whoever answers `question`. Raises OSError."""
    _, line = await asyncio.get_running_loop().create_connection(
        lambda: Line(question, job), "127.0.0.1", question.port
    )
    return line
