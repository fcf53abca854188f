"""Several workers on one port: one that dies or stalls is replaced, and none goes on without its supervisor."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from billing.models import Hold, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import Tenant
from tests.stage.product import ROOT, Gateway, environment, free_port, launch, running, until
from tests.stage.raw import chat, dial
from tests.stage.shelf import make_model, make_provider
from tests.stage.speech import events

# The server with a supervisor that loses its patience soon, also with a worker that has not begun to serve.
IMPATIENT = """
import sys, gateway.door.server as server, gateway.door.workers as workers
workers.STALLED_SECONDS, workers.START_SECONDS = 3, 60
sys.exit(server.main())
"""


@contextmanager
def two_workers(folder: Path, simulated: SimulatedProvider) -> Iterator[tuple[Gateway, list[int]]]:
    """A supervisor and its two workers, both at work."""
    with running(folder, 1, "--workers", "2", EGRESS_ALLOW=simulated.url) as (gateway,):
        until(lambda: len(turning(gateway)) == 2, 60)
        workers = turning(gateway)
        try:
            yield gateway, workers
        finally:
            for pid in workers:  # what a failed test leaves
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """The processes that `pid` has started and that are there."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def turning(gateway: Gateway) -> list[int]:
    """The workers whose loop turns."""
    return [pid for pid in children(gateway.process.pid) if any(map(is_epoll, Path(f"/proc/{pid}/fd").iterdir()))]


def is_epoll(descriptor: Path) -> bool:
    """Whether it is an event loop's."""
    with suppress(OSError):
        return "eventpoll" in os.readlink(descriptor)
    return False


def is_gone(pid: int) -> bool:
    """Whether the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def answers(gateway: Gateway) -> int:
    """The status of a request on a connection of its own."""
    return httpx.get(f"{gateway.url}/healthz", timeout=20, trust_env=False).status_code


def test_a_worker_that_is_killed_is_replaced_and_all_end_when_their_supervisor_is_killed(
    alice: Tenant, simulated: SimulatedProvider, tmp_path: Path
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=20&hold=3").slug
    with two_workers(tmp_path, simulated) as (gateway, workers):
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: is_gone(workers[0]), 5)
        until(lambda: answers(gateway) == 200 and len(children(gateway.process.pid)) == 2, 5, pause=0.05)
        assert f"process {workers[0]} ended with -9" in gateway.log.read_text()
        (other,) = set(children(gateway.process.pid)) - set(workers)
        workers.append(other)
        os.kill(workers[1], signal.SIGKILL)  # now it is the new one that answers
        assert answers(gateway) == 200
        assert not is_gone(other)

        until(lambda: len(turning(gateway)) == 2, 60)
        left = turning(gateway)
        workers += left
        with dial(gateway) as line:
            line.send(chat(alice.secret, model, stream=True))
            simulated.until(10, waiting=1)
            gateway.process.kill()
            gateway.process.wait()
            until(lambda: sum(map(is_gone, left)) == 1, 5)  # the one without an open request
            with pytest.raises(httpx.ConnectError):
                answers(gateway)
            simulated.release()
            assert events(line.answer().body.decode())[-1] == "[DONE]"
            until(lambda: all(map(is_gone, left)), 5)
    of_alice = {"organization": alice.organization.pk}
    assert [row.status for row in Usage.objects.filter(**of_alice)] == ["completed"]
    assert not Hold.objects.filter(**of_alice).exists()
    assert books(alice.organization).problems() == []


def test_a_worker_that_stalls_is_replaced(tmp_path: Path, database: None) -> None:
    gateway = launch(tmp_path, "--workers", "2", "--drain", "5", code=IMPATIENT)
    try:
        gateway.until_ready()
        stalled = turning(gateway)[0]
        os.kill(stalled, signal.SIGSTOP)
        until(lambda: is_gone(stalled), 90)
        assert f"process {stalled} says nothing any more" in gateway.log.read_text()
        until(lambda: len(children(gateway.process.pid)) == 2, 10)
    finally:
        gateway.stop()


def test_a_server_whose_workers_cannot_start_ends(tmp_path: Path, database: None) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "gateway.door.server", "--port", str(free_port()), "--workers", "2"],
        cwd=ROOT,
        env=environment(SERVE="nonsense", SPOOL_DIR=str(tmp_path)),
        capture_output=True,
        timeout=120,
    )
    assert ended.returncode == 1
