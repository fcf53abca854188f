"""SIGTERM: nobody who asks meets it. What is open comes to its end, or is told so; what is new goes elsewhere."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.models import Budget, Hold, Usage
from routing.models import Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import Tenant
from tests.stage.product import ROOT, Gateway, environment, launch, running, until
from tests.stage.raw import chat, dial, head, post
from tests.stage.shelf import make_model, make_provider
from tests.stage.speech import events, speak

WORKERS = ["1", "2"]


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Provider:
    """The simulated provider, as a row."""
    return make_provider(simulated.base_url)


@pytest.fixture
def bounded(alice: Tenant) -> Tenant:
    """Alice with a hard budget."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(1000))
    return alice


@contextmanager
def serving(folder: Path, simulated: SimulatedProvider, *arguments: str) -> Iterator[Gateway]:
    """A gateway with these arguments."""
    with running(folder, 1, *arguments, EGRESS_ALLOW=simulated.url) as (gateway,):
        yield gateway


def refuses(gateway: Gateway) -> bool:
    """Whether nobody is let in."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", gateway.port)) != 0


def rows(tenant: Tenant) -> list[Any]:
    """What is on the tenant's books, once nothing is held."""
    assert not Hold.objects.filter(organization=tenant.organization.pk).exists()
    assert books(tenant.organization).problems() == []
    return list(Usage.objects.filter(organization=tenant.organization.pk))


@pytest.mark.parametrize("workers", WORKERS)
def test_what_is_open_comes_to_its_end_and_nobody_new_is_let_in(
    bounded: Tenant, simulated: SimulatedProvider, provider: Provider, tmp_path: Path, workers: str
) -> None:
    """A stream to its last event, and one answer on each connection that was let in before, used or not."""
    names = (f"stop-{provider.slug}?tokens=20&prompt=10&hold=3", f"late-{provider.slug}?tokens=5&prompt=10")
    open_one, quick = (make_model(provider, name).slug for name in names)
    with (
        serving(tmp_path, simulated, "--workers", workers) as gateway,
        dial(gateway) as stream,
        ExitStack() as stack,
    ):
        stream.send(chat(bounded.secret, open_one, stream=True, stream_options={"include_usage": True}))
        simulated.until(10, waiting=1)
        lines = [stack.enter_context(dial(gateway)) for _ in range(16)]
        for used in lines[:8]:
            used.send(head("GET /healthz"))
            assert used.answer().status == 200
        gateway.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(gateway), 2)
        for _ in range(20):  # not one of the workers holds the port
            assert refuses(gateway)
        for line in lines:
            line.send(chat(bounded.secret, quick))
        for line in lines:
            late = line.answer()
            assert (late.status, late.headers["connection"]) == (200, "close")
        assert gateway.process.poll() is None
        simulated.release()
        *chunks, done = events(stream.answer().body.decode())
        assert done == "[DONE]"
        assert (chunks[-1]["usage"]["prompt_tokens"], chunks[-1]["usage"]["completion_tokens"]) == (10, 20)
        assert stream.ends_within(5)  # it is not kept for a next request
        assert gateway.process.wait(10) == 0
    found = rows(bounded)
    assert {(row.status, row.basis) for row in found} == {("completed", "reported")}
    assert sorted(row.charge for row in found) == 16 * [Decimal("0.00004")] + [Decimal("0.0001")]
    assert list((tmp_path / "spool").iterdir()) == []


def test_readiness_ends_first_and_requests_are_taken_meanwhile(
    bounded: Tenant, simulated: SimulatedProvider, provider: Provider, tmp_path: Path
) -> None:
    model = make_model(provider, f"notice-{provider.slug}?tokens=5").slug
    with serving(tmp_path, simulated, "--notice", "3") as gateway, dial(gateway) as kept, dial(gateway) as fresh:
        kept.send(head("GET /readyz"))
        assert kept.answer().status == 200
        gateway.process.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in gateway.readiness().get("missing", ()), 2)
        ready = gateway.client.get("/readyz")
        assert (ready.status_code, ready.json()["status"], ready.json()["missing"]) == (503, "unready", ["stopping"])
        for line in (kept, fresh):  # one that has been used, and one that has not
            line.send(chat(bounded.secret, model))
            answer = line.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert line.ends_within(5)
        assert gateway.chat(bounded.secret, model).status_code == 200
        until(lambda: refuses(gateway), 5)
        assert gateway.process.wait(10) == 0
    assert [row.status for row in rows(bounded)] == ["completed"] * 3


@pytest.mark.parametrize("workers", WORKERS)
def test_what_the_limit_cuts_is_told_so_in_its_own_form(
    bounded: Tenant, charlie: Tenant, simulated: SimulatedProvider, provider: Provider, tmp_path: Path, workers: str
) -> None:
    models = [
        make_model(provider, f"cut-{provider.slug}?tokens=20&prompt=10&{wait}").slug for wait in ("hold=4", "hold")
    ]
    speak(charlie, "zenmux")
    arguments = ("--workers", workers, "--drain", "1")
    with serving(tmp_path, simulated, *arguments) as gateway, ExitStack() as stack:
        streamed, whole, silent, slow, other = (stack.enter_context(dial(gateway)) for _ in range(5))
        streamed.send(chat(bounded.secret, models[0], stream=True))
        whole.send(chat(bounded.secret, models[1]))
        silent.send(chat(bounded.secret, models[1], stream=True))  # not a byte of it is out
        slow.send(post(bounded.secret, b"{" + b" " * 99)[:-50])  # its body never comes
        other.send(chat(charlie.secret, models[1]))
        simulated.until(10, waiting=4)
        gateway.process.send_signal(signal.SIGTERM)
        *chunks, last = events(streamed.answer().body.decode())
        assert len(chunks) >= 1
        assert last["error"]["code"] == "gateway_stopped"
        assert "choices" not in last or last["choices"][0]["finish_reason"] == "error"
        for line in (whole, silent, slow):
            answer = line.answer()
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert (answer.json["error"]["type"], answer.code) == ("service_unavailable", "gateway_stopped")
            assert answer.headers["connection"] == "close"
        assert other.answer().json["error"]["code"] == "503"  # in the dialect of its key
        assert gateway.process.wait(10) == 0
    simulated.release()
    found = rows(bounded)
    assert [(row.status, row.error) for row in found] == [("failed", "gateway_stopped")] * 3
    assert list((tmp_path / "spool").iterdir()) == []


def test_an_idle_gateway_stops_at_once(tmp_path: Path, simulated: SimulatedProvider) -> None:
    with serving(tmp_path, simulated, "--drain", "60") as gateway, dial(gateway):  # a connection nobody uses
        asked = time.monotonic()
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(20) == 0
        assert time.monotonic() - asked < 10


def test_a_successor_takes_the_port_before_its_predecessor_ends(
    bounded: Tenant, simulated: SimulatedProvider, provider: Provider, tmp_path: Path
) -> None:
    model = make_model(provider, f"takeover-{provider.slug}?tokens=5").slug
    with running(tmp_path, 1, "--share-port", EGRESS_ALLOW=simulated.url) as (first,):
        port = ("--share-port", "--port", str(first.port))
        second = launch(tmp_path / "next", *port, EGRESS_ALLOW=simulated.url)
        try:
            until(lambda: _both_listen(first.port), 30)
            first.process.send_signal(signal.SIGTERM)
            answers: list[int] = []
            while first.process.poll() is None or len(answers) < 5:
                with dial(first) as line:
                    line.send(chat(bounded.secret, model))
                    answers.append(line.answer().status)
            assert set(answers) == {200}
            assert first.process.returncode == 0
        finally:
            second.stop()
    assert len(rows(bounded)) == len(answers)


def _both_listen(port: int) -> bool:
    """Whether two sockets listen on the port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines) == 2


def test_a_port_that_is_taken_is_said_plainly(tmp_path: Path, gateway: Gateway) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "gateway.door.server", "--port", str(gateway.port), "--share-port"],
        cwd=ROOT, env=environment(SPOOL_DIR=str(tmp_path)), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == f"127.0.0.1 port {gateway.port} cannot be used: Address already in use\n"
