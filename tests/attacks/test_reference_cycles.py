"""No request leaves a circle of references: what it took is free as it ends, since the collector is tuned to come late.

The collector is turned off and each kind of request made many times; then it says what it alone could have freed.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import ROOT, Gateway, environment, free_port, synchronize, until
from tests.stage.raw import chat, dial, head, post
from tests.stage.shelf import make_model, make_provider

TIMES = 30
FEW = TIMES  # less than one a request; what is left is of no request: timers, the notices of the database


class Counted:
    """A gateway without a collector."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def ask(self, number: int) -> Any:
        """Sends a signal and reads the line it has written."""
        before = self.lines
        self.gateway.process.send_signal(number)
        until = time.monotonic() + 30
        while len(self.lines) == len(before):
            assert time.monotonic() < until, "no word of the collector"
            time.sleep(0.01)
        return json.loads(self.lines[-1])

    def is_idle(self) -> bool:
        """Whether nobody is being answered any more."""
        return "meterline_open_calls 0.0" in self.gateway.client.get("/metrics").text

    @property
    def lines(self) -> list[str]:
        """What it has written so far."""
        return [line for line in self.gateway.log.read_text().splitlines() if line.startswith(('{"objects', '"begun'))]


@pytest.fixture(scope="module")
def counted(simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    """A gateway that counts its garbage."""
    folder = tmp_path_factory.mktemp("counted")
    port, log = free_port(), folder / "gateway.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.collected", "--port", str(port), "--drain", "5"],
            cwd=ROOT,
            env=environment(SERVE="gateway", SPOOL_DIR=str(folder / "spool"), EGRESS_ALLOW=simulated.url),
            stdout=output,
            stderr=output,
        )
    gateway = Gateway(process, port, Path(log), folder / "spool")
    try:
        gateway.until_ready()
        yield Counted(gateway)
    finally:
        gateway.stop()


@pytest.fixture
def tenant(counted: Counted, alice: Tenant, simulated: SimulatedProvider) -> dict[str, Any]:
    """Keys and models for the requests."""
    provider = make_provider(simulated.base_url)
    names = {
        "plain": "sim-small?tokens=5",
        # Read on without its client, to its end.
        "slow": "sim-small?tokens=40&pace=25ms",
        "fails": "sim-small?status=500",
        "breaks": "sim-small?tokens=20&fault=cut_mid@5",
    }
    models = {name: make_model(provider, upstream).slug for name, upstream in names.items()}
    models["nowhere"] = make_model(make_provider("http://127.0.0.1:9/v1")).slug
    synchronize(counted.gateway)
    return {"secret": alice.secret, **models}


def one_by_one(request: Callable[[dict[str, Any]], bytes], times: int = 1) -> Callable[[Gateway, dict[str, Any]], None]:
    """Sends a request on a connection of its own and reads its answer whole."""

    def play(gateway: Gateway, tenant: dict[str, Any]) -> None:
        with dial(gateway) as line:
            for _ in range(times):
                line.send(request(tenant))
                line.answer()

    return play


def cut(request: Callable[[dict[str, Any]], bytes], after: int) -> Callable[[Gateway, dict[str, Any]], None]:
    """Sends a request, and leaves once so many bytes have come."""

    def play(gateway: Gateway, tenant: dict[str, Any]) -> None:
        with dial(gateway) as line:
            line.send(request(tenant))
            while len(line.buffer) < after:
                line._receive()

    return play


def pipelined(gateway: Gateway, tenant: dict[str, Any]) -> None:
    """Many requests at once, and nobody waits for the answers."""
    with dial(gateway) as line:
        line.send(head("GET /healthz") * 500)


def of(model: str, **body: Any) -> Callable[[dict[str, Any]], bytes]:
    """A chat completion of one of the models."""
    return lambda tenant: chat(tenant["secret"], tenant[model], **body)


PLAYS: dict[str, Callable[[Gateway, dict[str, Any]], None]] = {
    "probe": one_by_one(lambda tenant: head("GET /healthz")),
    "whole": one_by_one(of("plain")),
    "whole, kept alive": one_by_one(of("plain"), 3),
    "stream": one_by_one(of("plain", stream=True)),
    "no key": one_by_one(lambda tenant: chat("sk-ml-none", "x")),
    "no such model": one_by_one(lambda tenant: chat(tenant["secret"], "no/such")),
    "no json": one_by_one(lambda tenant: post(tenant["secret"], b"{")),
    "bad field": one_by_one(of("plain", temperature=9)),
    "no endpoint": one_by_one(lambda tenant: head("GET /v1/none")),
    "not reachable": one_by_one(of("nowhere")),
    "not reachable, stream": one_by_one(of("nowhere", stream=True)),
    "upstream fails": one_by_one(of("fails")),
    "stream breaks": one_by_one(of("breaks", stream=True)),
    "client leaves a stream": cut(of("slow", stream=True), 600),
    "client leaves a whole answer": cut(of("slow"), 0),
    "client leaves its body": cut(lambda tenant: chat(tenant["secret"], tenant["plain"])[:-3], 0),
    "pipelined": pipelined,
    "models": one_by_one(lambda tenant: head("GET /v1/models", f"Authorization: Bearer {tenant['secret']}")),
}


@pytest.mark.parametrize("name", PLAYS)
def test_a_request_leaves_no_circle(counted: Counted, tenant: dict[str, Any], name: str) -> None:
    play = PLAYS[name]
    play(counted.gateway, tenant)  # what is kept for good is kept now
    assert counted.ask(signal.SIGUSR1) == "begun"
    for _ in range(TIMES):
        play(counted.gateway, tenant)
    until(lambda: counted.is_idle())
    found = counted.ask(signal.SIGUSR2)
    assert found["objects"] < FEW, "\n".join(f"{count:6} {edge}" for edge, count in found["edges"])
