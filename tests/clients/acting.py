"""A model that acts: it has a client run a tool and then says something, behind a server that speaks every protocol.

It is asked with whatever the client sends. Until a tool's result is there it calls one of those that are offered, and
then says its words; who offers none hears them at once. It thinks before it calls, and its thought has a proof.
"""

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.pairs.providers import PROVIDERS
from tests.pairs.said import PROOF, Call, Counts, Got, Said

THOUGHT, BEGINS = "A tool is to be used.", "I use it."
Acts = Callable[[frozenset[str]], Call | None]


@dataclass
class Model:
    """A model at the provider, and what came of it.

    - `acts`: what it calls, of the names of the tools that are offered; None: none of them
    - `says`: its words in the end; `shaped`: the same for who asks for an answer with a shape
    - `asked`: what it was asked, in order; `counted`: tokens that it counted, in and out, together
    """

    acts: Acts
    says: str
    shaped: str = "{}"
    asked: list[Got] = field(default_factory=list)
    counted: tuple[int, int] = (0, 0)

    def answer(self, got: Got) -> Said:
        """What it says to `got`."""
        self.asked.append(got)
        number = len(self.asked)
        counts = Counts(1000 + number, 20 + number, cached=10, thought=5)
        self.counted = self.counted[0] + counts.prompt, self.counted[1] + counts.completion
        call = None if _has_result(got) else self.acts(frozenset(name for name, _ in got.tools))
        if call is None:
            return Said(self.shaped if got.schema else self.says, counts=counts)
        return Said(BEGINS, THOUGHT, PROOF, calls=(call,), finish="tool_calls", counts=counts)

    @property
    def was_shown_its_proof(self) -> bool:
        """Whether its thought came back, byte for byte, with each result."""
        proofs = [{turn[2] for turn in got.turns if turn[0] == "thought"} for got in self.asked if _has_result(got)]
        return bool(proofs) and all(PROOF in shown for shown in proofs)


class Provider:
    """The server. `url` has no trailing slash; a model is known by its name; `faults`: what it could not read.

    What is told to /tool, when a tool has run, is heard and no more.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.models: dict[str, Model] = {}
        self.faults: list[str] = []

    def base_url(self, protocol: str) -> str:
        """What the provider's row says."""
        return f"{self.url}/{protocol}/v1"

    def answer(self, path: str, body: Any) -> tuple[bool, bytes]:
        """Whether it is a stream, and the answer."""
        _, protocol, rest = path.partition("?")[0].split("/", 2)
        speaks = PROVIDERS[protocol]
        named, _, method = rest.removeprefix("v1/models/").partition(":")
        model = self.models[named if method else body["model"]]
        stream = method.startswith("stream") or body.get("stream") is True
        said = model.answer(speaks.got(body))
        return stream, speaks.stream(said) if stream else speaks.whole(said)


@contextmanager
def serving() -> Iterator[Provider]:
    """A provider, in threads of its own, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["content-length"]))
            try:
                stream, data = (False, b"{}") if self.path == "/tool" else provider.answer(self.path, json.loads(sent))
                status = 200
            except Exception:  # of whatever kind: what is sent is not what this protocol's reader knows
                provider.faults.append(f"{traceback.format_exc()}\n{self.path} {sent[:4000]!r}")
                stream, data, status = False, b"{}", 400
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if stream else "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Tells nobody."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = Provider(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()


def _has_result(got: Got) -> bool:
    return any(turn[0] == "result" for turn in got.turns)
