"""Recordings: exact bytes of an upstream, sent by a test or read from a folder, and how they are delivered.

POST /control/script/NAME takes the bytes as its body and, in its query: `content_type` (`none` for none),
`status`, `header=Name: value` (repeatable), `chunk` (bytes a write; default all at once), `gap` (time between
writes), `pauses=OFFSET:TIME,...` (silence before that byte), `transfer` (chunked, length, close, or raw: the
bytes hold the head too), `end` (complete, cut, reset, hang), and `prompt`, `completion`: the tokens that the
bill counts for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from .answer import Counted
from .models import BadOption, count, seconds
from .plan import Plan, Request, Say, Step, Stop, Transfer, Wait

TYPES = {".sse": "text/event-stream; charset=utf-8", ".json": "application/json"}
QUERY = frozenset({"content_type", "status", "header", "chunk", "gap", "pauses", "transfer", "end"})
TOKENS = frozenset({"prompt", "completion"})


@dataclass(frozen=True, slots=True)
class Script:
    """A recording and its delivery; times are seconds, offsets count bytes of `data`."""

    data: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    chunk: int = 0
    gap: float = 0.0
    pauses: tuple[tuple[int, float], ...] = ()
    transfer: Transfer = Transfer.CHUNKED
    end: Stop | None = None
    prompt: int = 0
    completion: int = 0

    def plan(self) -> Plan:
        """The recording, to be played. Its tokens are billed with its first byte."""
        return Plan(
            steps=self._steps(),
            status=self.status,
            headers=self.headers,
            transfer=self.transfer,
            length=len(self.data),
            counted=Counted(prompt=self.prompt),
        )

    def _steps(self) -> Iterator[Step]:
        pauses = dict(self.pauses)
        every = range(0, len(self.data), self.chunk or len(self.data) or 1)
        cuts = sorted({*every, *(offset for offset in pauses if offset < len(self.data)), len(self.data)})
        tokens = self.completion
        for start, end in pairwise(cuts):
            if start:
                yield Wait(self.gap)
            if start in pauses:
                yield Wait(pauses[start])
            yield Say(self.data[start:end], tokens)
            tokens = 0
        if len(self.data) in pauses:
            yield Wait(pauses[len(self.data)])
        if self.end is not None:
            yield self.end


def read(name: str, data: bytes, query: Mapping[str, Sequence[str]]) -> Script:
    """The recording `name` as a registering request describes it. Raises BadOption, naming the parameter."""
    if unknown := query.keys() - QUERY - TOKENS:
        raise BadOption(f"unknown parameter {sorted(unknown)[0]!r}")
    last = {key: values[-1] for key, values in query.items()}
    typed = last.get("content_type", TYPES.get(Path(name).suffix, "text/event-stream; charset=utf-8"))
    headers = [] if typed == "none" else [("Content-Type", typed)]
    try:
        for line in query.get("header", ()):
            field, _, value = line.partition(":")
            headers.append((field.strip(), value.strip()))
        pairs = (pause.split(":") for pause in last.get("pauses", "").split(",") if pause)
        return Script(
            data=data,
            status=count(last.get("status", "200")),
            headers=tuple(headers),
            chunk=count(last.get("chunk", "0")),
            gap=seconds(last.get("gap", "0")),
            pauses=tuple((count(offset), seconds(time)) for offset, time in pairs),
            transfer=Transfer(last.get("transfer", "chunked")),
            end=None if last.get("end", "complete") == "complete" else Stop(last["end"]),
            prompt=count(last.get("prompt", "0")),
            completion=count(last.get("completion", "0")),
        )
    except ValueError as error:
        raise BadOption(f"bad parameter: {error}") from None


class Scripts:
    """The recordings by name: those registered first, then those of the folder."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder.resolve() if folder else None
        self.registered: dict[str, Script] = {}
        self.asked: dict[str, Request] = {}  # what each was last played to

    def find(self, name: str) -> Script:
        """The recording `name`; raises BadOption when there is none."""
        if name in self.registered:
            return self.registered[name]
        if self.folder is not None:
            path = (self.folder / name).resolve()
            if path.is_relative_to(self.folder) and path.is_file():
                return read(name, path.read_bytes(), {})
        raise BadOption(f"no recording {name!r}")
