"""Runs the simulated provider as a process of its own, for tests, the demo and the bench."""

import http.client
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

ROOT = Path(__file__).resolve().parents[2]


class SimulatedProvider:
    """A running simulated provider. `url` is `http://127.0.0.1:PORT`, `base_url` what an SDK is given."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.base_url = f"{self.url}/v1"
        self._told: list[dict[str, Any]] = []  # of the bill, which grows all day and is looked at often
        self._told_bytes = 0

    def bill(self) -> list[dict[str, Any]]:
        """The bill's end lines since the last reset, in the order the requests ended."""
        return [line for line in self.lines() if line["event"] == "end"]

    def lines(self) -> list[dict[str, Any]]:
        """All of the bill's lines since the last reset, start and end."""
        news = self._control("GET", f"bill?after={self._told_bytes}")
        self._told += map(msgspec.json.decode, news.splitlines())
        self._told_bytes += len(news)
        return self._told.copy()

    def state(self) -> dict[str, Any]:
        """What GET /control/state shows."""
        state: dict[str, Any] = msgspec.json.decode(self._control("GET", "state"))
        return state

    def until(self, seconds: float = 10.0, /, **expected: Any) -> dict[str, Any]:
        """Polls the state until every `expected` entry is as given, and gives it.

        `until(waiting=3)` returns once three requests wait. Raises TimeoutError, showing the last state.
        """
        deadline = time.monotonic() + seconds
        while True:
            state = self.state()
            if all(state[key] == value for key, value in expected.items()):
                return state
            if time.monotonic() > deadline:
                raise TimeoutError(f"expected {expected}, last state {state}")
            time.sleep(0.01)

    def release(self, most: int | None = None) -> int:
        """Lets go those that wait (`hold`), at most `most`, the oldest first; says how many."""
        answer = self._control("POST", "release" if most is None else f"release?n={most}")
        return int(msgspec.json.decode(answer)["released"])

    def script(self, name: str, data: bytes, **delivery: Any) -> str:
        """Registers a recording and gives the option that plays it, `script=NAME`.

        `delivery` is the query of POST /control/script/NAME (see scripts.py); a list repeats its key.
        """
        self._control("POST", f"script/{quote(name)}?{urlencode(delivery, doseq=True)}", data)
        return f"script={quote(name, safe='')}"

    def asked(self, name: str) -> dict[str, Any]:
        """The request that the recording `name` was last played to: `path`, `target`, `headers` and `body`, a text."""
        request: dict[str, Any] = msgspec.json.decode(self._control("GET", f"asked/{quote(name)}"))
        return request

    def behave(self, model: str, options: str) -> None:
        """From now on the plain name `model` does what `options` say: `behave("sim-small", "status=503")`."""
        self._control("POST", f"model/{quote(model)}", options.encode())

    def reset(self) -> None:
        """Aborts what is under way, closes idle connections, forgets counters, recordings, behaviours and the bill."""
        self._control("POST", "reset")
        self._told, self._told_bytes = [], 0

    def stop(self) -> None:
        """SIGTERM, and waits for the end; what is under way is billed as aborted. Harmless when over."""
        self.process.terminate()
        self._reap()

    def kill(self) -> None:
        """SIGKILL: the bill keeps the start lines of what was under way."""
        self.process.kill()
        self._reap()

    def _reap(self) -> None:
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _control(self, method: str, path: str, body: bytes = b"") -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, f"/control/{path}", body)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(data.decode())
        return data


@contextmanager
def start(
    *, bill: Path | None = None, keys: Sequence[str] = (), recordings: Path | None = None, port: int = 0
) -> Iterator[SimulatedProvider]:
    """A simulated provider on 127.0.0.1 that listens when the block begins and is stopped when it ends.

    It also stops when this process dies. `port` 0 takes a free one; a given one brings a killed provider back
    where it was. Raises RuntimeError when it does not listen within 20 seconds.
    """
    command = [sys.executable, "-m", "tests.simulated", "--with-parent", "--port", str(port)]
    command += ["--bill", str(bill)] if bill else []
    command += ["--recordings", str(recordings)] if recordings else []
    for key in keys:
        command += ["--key", key]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    provider = SimulatedProvider(process, 0)
    try:
        line = _first_line(process)
        provider = SimulatedProvider(process, int(line.rpartition(":")[2]))
        yield provider
    finally:
        provider.stop()


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(timeout=20):
            raise RuntimeError("the simulated provider did not start within 20 s")
    line = process.stdout.readline()
    if not line.startswith("listening on "):
        raise RuntimeError(f"the simulated provider did not start: exit {process.wait(timeout=10)}")
    return line
