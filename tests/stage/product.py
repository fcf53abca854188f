"""The product under test, as processes of its own: real sockets, real roles, the tests' database."""

import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
from django.db import connection
from django.db.models import Max

from accounts.models import Change
from deploy.processes import free_port as free_port  # not one that an outgoing connection, of any test's, may take
from tests.stage.nursery import Program

ROOT = Path(__file__).resolve().parents[2]


def environment(**overrides: str) -> dict[str, str]:
    """The environment of a product process: this one's, on the tests' database, without the owner's rights."""
    env = {**os.environ, **overrides}
    for name in ("DATABASE_URL", "DATABASE_APP_URL", "DATABASE_CONSOLE_URL"):
        if env.get(name):
            env[name] = urlunsplit(urlsplit(env[name])._replace(path=f"/{connection.settings_dict['NAME']}"))
    env.pop("DATABASE_ROLE", None)
    env.setdefault("ALLOWED_HOSTS", "*")
    return env


class Gateway:
    """One gateway process. `url` has no trailing slash; `client` is an httpx client of it."""

    def __init__(self, process: "Program | subprocess.Popen[bytes]", port: int, log: Path, spool: Path) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        self.spool = spool
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # is trusted: to read who may be takes 40 ms
        self.client = httpx.Client(base_url=self.url, timeout=30, trust_env=False, verify=nobody)

    def chat(self, secret: str, model: str, **body: Any) -> httpx.Response:
        """POSTs a chat completion of one short message, with further fields of the body."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **body}
        return self.client.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {secret}"})

    def readiness(self) -> dict[str, Any]:
        """What /readyz says; {} when nothing answers. Asked many times, which a client for everything makes dear."""
        line = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            line.request("GET", "/readyz")
            found: dict[str, Any] = json.loads(line.getresponse().read())
        except (OSError, HTTPException):
            return {}
        finally:
            line.close()
        return found

    def kill(self) -> None:
        """SIGKILL: no chance to say goodbye."""
        self.process.kill()
        self.process.wait()
        self.client.close()

    def stop(self) -> None:
        """SIGTERM, and waits for the end."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def until_ready(self, seconds: float = 90) -> None:
        """Returns once the gateway takes requests. Raises AssertionError with the log's end when it does not."""
        until(lambda: self.process.poll() is not None or self.readiness().get("status") == "ready", seconds, 0.05)
        assert self.process.poll() is None, self.log.read_text()[-3000:]


def launch(folder: Path, *arguments: str, spool: Path | None = None, code: str | None = None, **env: str) -> Gateway:
    """Starts a gateway process that logs and spools under `folder`; it may not be ready yet.

    `arguments` are further ones of the server, and win. `code` is run in its place, and runs its `main`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    log = folder / f"gateway-{port}.log"
    spool = spool or folder / "spool"
    server = ("-m", "gateway.door.server") if code is None else ("-c", code)
    log.touch()
    process = Program(
        [*server, "--port", str(port), "--drain", "10", *arguments],
        environment(**{"SERVE": "gateway", "SPOOL_DIR": str(spool), **env}),
        ROOT,
        log,
    )
    return Gateway(process, port, log, spool)


@contextmanager
def running(folder: Path, count: int = 1, *arguments: str, **env: str) -> Iterator[list[Gateway]]:
    """`count` gateway processes, ready, each on a port of its own; stopped at the end."""
    gateways = [launch(folder, *arguments, spool=None, **env) for _ in range(count)]
    try:
        for gateway in gateways:
            gateway.until_ready()
        yield gateways
    finally:
        for gateway in gateways:
            gateway.stop()


def synchronize(*gateways: Gateway) -> None:
    """Returns once each gateway's snapshot holds everything this process has committed."""
    last = Change.objects.aggregate(last=Max("id"))["last"] or 0
    for gateway in gateways:
        until(lambda gateway=gateway: gateway.readiness().get("configuration", -1) >= last, 10)


def until(condition: Any, seconds: float = 10, pause: float = 0.01) -> None:
    """Polls until `condition()` holds. Raises AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(pause)
