"""Gateways that are restarted one after the other while clients ask, and what the clients saw.

`direct`: a successor on the same port, which is shared, and then the stop of its predecessor. `nginx`: two gateways
with ports of their own behind nginx as `deploy/nginx.conf` has it, stopped and started in turn.
"""

import asyncio
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from uuid import UUID

from deploy.processes import accepts
from tests.stage.cast import Tenant
from tests.stage.load import Answer, Clients
from tests.stage.product import ROOT, Gateway, free_port, launch, until

STOP_SECONDS = 90


@dataclass
class Counts:
    """What became of it all."""

    restarts: int = 0
    answers: list[Answer] = field(default_factory=list)
    statuses: list[int | None] = field(default_factory=list)  # of the processes that were stopped

    @property
    def failed(self) -> list[Answer]:
        """Those without a final answer."""
        return [answer for answer in self.answers if not answer.final]

    @property
    def generations(self) -> set[UUID | None]:
        """Those that were answered to the end."""
        return {answer.generation for answer in self.answers if answer.final}

    def __str__(self) -> str:
        words = [f"{self.restarts} restarts, {len(self.answers)} requests, {len(self.failed)} failed"]
        kinds = Counter((answer.status, answer.body[-200:]) for answer in self.failed)
        words += [f"  {count} x {status} {body!r}" for (status, body), count in kinds.most_common(10)]
        if any(self.statuses):
            words.append(f"  exit statuses {self.statuses}")
        return "\n".join(words)


@dataclass
class Load:
    """Whole answers a second, of `models[0]`, and so many streams of `models[1]` open at a time."""

    tenant: Tenant
    models: tuple[str, str]
    rate: float
    streams: int

    async def run(self, url: str, over: asyncio.Event) -> list[Answer]:
        """Asks until `over`; returns when all are answered."""
        async with Clients() as clients:
            asked = []

            async def stream() -> None:
                while not over.is_set():
                    answer = await clients.ask(url, self.tenant.secret, self.models[1], stream=True)
                    if not answer.final:
                        await asyncio.sleep(0.1)

            streams = [asyncio.create_task(stream()) for _ in range(self.streams)]
            while not over.is_set():
                asked.append(asyncio.create_task(clients.ask(url, self.tenant.secret, self.models[0])))
                await asyncio.sleep(1 / self.rate)
            await asyncio.gather(*asked, *streams)
            return clients.journal


def direct(folder: Path, load: Load, restarts: int, workers: int, **env: str) -> Counts:
    """Successors on one port."""
    port = free_port()
    arguments = ("--workers", str(workers), "--share-port", "--port", str(port), "--notice", "1", "--drain", "60")
    counts = Counts()

    def start(number: int) -> Gateway:
        return launch(folder / str(number), *arguments, spool=folder / "spool", **env)

    def restart_all(first: Gateway) -> Gateway:
        running = first
        for number in range(restarts):
            successor = start(number + 1)
            stack.callback(successor.stop)
            until(lambda: listeners(port) == 2, STOP_SECONDS)
            stop(running, counts)
            running = successor
        return running

    with ExitStack() as stack:
        first = start(0)
        stack.callback(first.stop)
        until(lambda: listeners(port) == 1, STOP_SECONDS)
        play(counts, load, f"http://127.0.0.1:{port}", lambda: restart_all(first))
    return counts


def behind_nginx(folder: Path, load: Load, restarts: int, workers: int, **env: str) -> Counts:
    """Two gateways in turn."""
    counts = Counts()
    arguments = ("--workers", str(workers), "--notice", "4", "--drain", "60")

    def restart_all(gateways: list[Gateway]) -> None:
        for number in range(restarts):
            place = number % 2
            port = gateways[place].port
            stop(gateways[place], counts)
            # Requests go to the other one meanwhile.
            successor = launch(folder / f"{number}", *arguments, "--port", str(port), spool=folder / "spool", **env)
            gateways[place] = Gateway(successor.process, port, successor.log, successor.spool)
            stack.callback(gateways[place].stop)
            gateways[place].until_ready()

    with ExitStack() as stack:
        gateways = [launch(folder / name, *arguments, spool=folder / "spool", **env) for name in "ab"]
        for gateway in gateways:
            stack.callback(gateway.stop)
        for gateway in gateways:
            gateway.until_ready()
        port = stack.enter_context(nginx(folder, [gateway.port for gateway in gateways]))
        play(counts, load, f"http://127.0.0.1:{port}", lambda: restart_all(gateways))
    return counts


def play(counts: Counts, load: Load, url: str, restart_all: Callable[[], object]) -> None:
    """Asks while the restarts run."""

    async def scenario() -> None:
        over = asyncio.Event()
        asking = asyncio.create_task(load.run(url, over))
        try:
            await asyncio.to_thread(restart_all)
        finally:
            over.set()
            counts.answers += await asking

    asyncio.run(scenario())


def stop(gateway: Gateway, counts: Counts) -> None:
    """SIGTERM, and waits for the end."""
    gateway.process.send_signal(SIGTERM)
    counts.statuses.append(gateway.process.wait(STOP_SECONDS))
    counts.restarts += 1
    gateway.client.close()


def listeners(port: int) -> int:
    """How many sockets listen on the port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(words[1].endswith(f":{port:04X}") and words[3] == "0A" for words in lines)


@contextmanager
def nginx(folder: Path, ports: list[int]) -> Iterator[int]:
    """nginx with the shipped example, but without TLS and without the console; its port."""
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    text = text[: text.rindex("server {")]
    port = free_port()
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    text = re.sub(r"\n *ssl_.*", "", text)
    servers = "".join(f"server 127.0.0.1:{port} max_fails=0;\n" for port in ports)
    assert text.count("server 127.0.0.1:8000 max_fails=0;") == 1
    text = text.replace("server 127.0.0.1:8000 max_fails=0;", servers)
    home = folder / "nginx"
    home.mkdir()
    paths = "".join(f"{name}_temp_path {home}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    outer = f"pid {home}/pid; error_log {home}/error.log; events {{ worker_connections 4096; }}\n"
    (home / "nginx.conf").write_text(f"{outer}http {{ access_log off; {paths}\n{text}\n}}\n")
    process = subprocess.Popen(["nginx", "-p", str(home), "-c", str(home / "nginx.conf"), "-g", "daemon off;"])
    try:
        until(lambda: process.poll() is not None or accepts(port), 20)
        assert process.poll() is None, (home / "error.log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(20)
