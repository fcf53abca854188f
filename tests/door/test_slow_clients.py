"""Clients that keep the gateway waiting: for a request that never becomes whole, or to take an answer."""

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from billing.models import Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize, until
from tests.stage.raw import Line, chat, dial, head
from tests.stage.shelf import make_model, make_provider

DRIP_SECONDS = 0.5


@pytest.fixture
def model(gateway: Gateway, simulated: SimulatedProvider) -> str:
    """A model that answers at once."""
    slug = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=5").slug
    synchronize(gateway)
    return slug


class Slow:
    """A client that has sent `begun` and goes on with `drip`, again and again, whatever comes back."""

    def __init__(self, line: Line, begun: bytes, drip: bytes) -> None:
        self.line = line
        self.drip = drip
        self.started = time.monotonic()
        self.seconds: float | None = None  # until the gateway ended the connection
        line.send(begun)
        line.socket.settimeout(0.01)

    def has_ended(self) -> bool:
        """Drips, and looks whether the connection is over."""
        if self.seconds is None:
            try:
                self.line.send(self.drip)
                self.line._receive()
            except TimeoutError:
                pass
            except (EOFError, OSError):
                self.seconds = time.monotonic() - self.started
        return self.seconds is not None


@pytest.mark.long
def test_a_request_that_never_becomes_whole_is_ended(gateway: Gateway, alice: Tenant, model: str) -> None:
    with ExitStack() as stack:

        def slow(begun: bytes, drip: bytes = b"", *, used: bool = False) -> Slow:
            line = stack.enter_context(dial(gateway))
            if used:
                line.send(head("GET /healthz"))
                assert line.answer().status == 200
            return Slow(line, begun, drip)

        request = chat(alice.secret, model)
        top = request[: request.index(b"Content-Length")]
        heads = {
            "nothing": slow(b""),
            "a header": slow(b"GET /healthz HTTP/1.1\r\nA: ", b"a"),
            "many headers": slow(top, b"A: b\r\n"),
            "line ends between requests": slow(b"\r\n", b"\r\n", used=True),
            "a second request": slow(b"GET /heal", b"t", used=True),
        }
        bodies = {
            "a body": slow(chat(alice.secret, model, user="u" * 200)[:-200], b"u"),
            "a chunk": slow(top + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n", b" "),
            "a body not begun": slow(request[: request.index(b"{")]),
        }
        idle = stack.enter_context(dial(gateway))
        idle.send(head("GET /healthz"))
        assert idle.answer().status == 200
        everybody = [*heads.values(), *bodies.values()]
        until(lambda: sum(client.has_ended() for client in everybody) == len(everybody), 45, DRIP_SECONDS)
        for name, client in heads.items():
            assert client.seconds is not None
            assert 9 < client.seconds < 14, name
            assert client.line.buffer == b"", name
        for name, client in bodies.items():
            assert client.seconds is not None
            assert 29 < client.seconds < 44, name
            assert client.line.answer().code == "slow_body", name
        # Waiting between two requests is nobody's fault.
        idle.send(request)
        assert idle.answer().status == 200
    assert Usage.objects.filter(organization=alice.organization.id).count() == 1


def resident(gateway: Gateway) -> int:
    """Bytes of memory the gateway uses."""
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def queued(gateway: Gateway, client: int) -> int:
    """Bytes on their way from the gateway to the client at this port."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if int(local[-4:], 16) == gateway.port and int(remote[-4:], 16) == client:
            return int(queues.partition(":")[0], 16)
    return 0


def buffers() -> int:
    """Bytes that the kernel may keep between provider and gateway, and between gateway and client."""
    most = (Path(f"/proc/sys/net/ipv4/tcp_{way}mem").read_text().split()[2] for way in "rw")
    return 2 * sum(map(int, most))


def test_a_client_that_stops_reading_holds_its_provider_back(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, model: str
) -> None:
    endless = make_model(make_provider(simulated.base_url), "sim-small?fault=infinite", max_output=2**22).slug
    synchronize(gateway)
    before, memory = len(simulated.bill()), resident(gateway)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", gateway.port))
        client.sendall(chat(alice.secret, endless, stream=True))
        assert client.recv(100)
        seen = [0]

        def full() -> bool:
            seen.append(queued(gateway, client.getsockname()[1]))
            return seen[-1] > 0 and len(seen) > 50 and len(set(seen[-50:])) == 1

        until(full, 30, 0.02)
        assert resident(gateway) - memory < 4 * 1024 * 1024
        # Others do not wait for it.
        assert gateway.chat(alice.secret, model).status_code == 200
    until(lambda: len(simulated.bill()) == before + 2)
    line = next(line for line in simulated.bill()[before:] if line["fault"] == "infinite")
    assert line["ended"] == "client_closed"
    assert line["bytes"] < buffers() + 8 * 1024 * 1024
    rows = Usage.objects.filter(model=endless)
    until(lambda: rows.all().exists(), 2)
    usage = rows.get()
    assert (usage.status, usage.basis) == ("cancelled", "estimated")
    assert 0 < usage.completion_tokens < line["bytes"]
