"""Where contenders are started, and what every one of them is told."""

import http.client
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cores import Cores, only_on
from bench.wire import Question
from deploy.processes import Child
from tests.simulated.process import SimulatedProvider

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
SCRATCH = HERE / ".scratch"
MARK = "METERLINE_BENCH"  # in the environment of every process of a bench, so that a later one finds what it left
START_SECONDS = 90
PROMPT = [
    {"role": "system", "content": "You are a helpful assistant. Answer in one short sentence."},
    {"role": "user", "content": "Which of the planets known to Galileo has the shortest day, and why is that?"},
]


class Skipped(Exception):
    """A contender cannot run here. The message says why."""


@dataclass(frozen=True)
class Running:
    """A contender that takes requests on `port`. Its processes are `pid` and what that has started.

    `models` names, for what the simulated provider calls a model, what this contender calls it. `database` is the
    process whose work it leans on. `refused` are the keys of three kinds that it must refuse alike, `spoken` names for
    each wire protocol a model whose provider speaks it.
    """

    port: int
    pid: int
    on: str  # what is switched on, for the reader
    version: str
    headers: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    path: str = "/v1/chat/completions"
    database: int | None = None
    refused: Mapping[str, Sequence[str]] = field(default_factory=dict)
    spoken: Mapping[str, str] = field(default_factory=dict)

    def question(self, upstream_model: str, *, streamed: bool) -> Question:
        """Something to ask it. One answer is read in full to learn what each must be; raises RuntimeError if wrong."""
        body: dict[str, Any] = {"model": self.models.get(upstream_model, upstream_model), "messages": PROMPT}
        if streamed:
            body["stream"] = True
        payload = json.dumps(body).encode()
        answer = self.ask(self.path, payload)
        if streamed:
            return Question(self.port, self.request(self.path, payload), events=_events(answer))
        _verify(json.loads(answer)["choices"][0]["message"]["content"])
        return Question(self.port, self.request(self.path, payload), length=len(answer))

    def ask(self, path: str, payload: bytes) -> bytes:
        """The body of an answer. Raises RuntimeError for any status but 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, payload, self._fields(payload))
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise RuntimeError(f"status {response.status} on port {self.port}: {answer[:500]!r}")
        return answer

    def request(self, path: str, payload: bytes) -> bytes:
        """A whole request."""
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in self._fields(payload).items())]
        return "\r\n".join([*lines, "", ""]).encode() + payload

    def _fields(self, payload: bytes) -> dict[str, str]:
        return {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Content-Length": str(len(payload)),
            **self.headers,
        }


@dataclass(frozen=True)
class Site:
    """What the contenders share: folders of ours, cores, the simulated provider and the models it is asked for."""

    state: Path
    cores: Cores
    simulated: SimulatedProvider
    models: tuple[str, ...]

    @property
    def provider(self) -> str:
        """The base URL of the simulated provider, without a path."""
        return self.simulated.url

    def folder(self, name: str) -> Path:
        """A folder of the contender's own."""
        path = self.state / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def environment(self) -> dict[str, str]:
        """The least that any program needs; a stray variable of ours must not change what is measured."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
        return {**kept, MARK: str(self.state)}

    @contextmanager
    def contender(
        self, name: str, arguments: Sequence[str | Path], environment: Mapping[str, str], folder: Path
    ) -> Iterator[Child]:
        """A program on the contender's core, stopped at the end. Its log is in the state folder."""
        with only_on(frozenset({self.cores.contender})):
            child = Child(
                name,
                arguments,
                log=self.state / f"{name}.log",
                environment={**self.environment(), **environment},
                folder=folder,
            )
        try:
            yield child
        finally:
            child.stop()


def until_answers(child: Child, answers: Callable[[], bool]) -> None:
    """Returns once `answers` holds. Raises RuntimeError with the log's end when `child` ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not answers():
        if child.code is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{child.name} did not start:\n{child.tail()}")
        time.sleep(0.05)


def status_of(port: int, path: str) -> int:
    """The status of a GET, 0 when nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def _events(answer: bytes) -> int:
    """How many events this stream has. Raises RuntimeError unless it says something and ends with [DONE]."""
    *events, rest = answer.split(b"\n\n")
    if rest or events[-1] != b"data: [DONE]":
        raise RuntimeError(f"a stream that does not end with [DONE]: {answer[-200:]!r}")
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]
    _verify("".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]))
    return len(events)


def _verify(content: str) -> None:
    if len(content.split()) < 2:
        raise RuntimeError(f"an answer that says nothing: {content!r}")
