"""What a process keeps in memory for its callers has one budget, of which nobody has more than a share."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore

from accounts.models import ApiKey
from gateway.process.memory import Memory, Share
from gateway.wire.errors import Unavailable
from tests.attacks.neighbours import Victim
from tests.files.cabinet import files_key, sdk, upload
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, launch, running, synchronize, until
from tests.stage.raw import CHAT, Line, dial, head
from tests.stage.shelf import make_model, make_provider

MIB = 1 << 20

# The server, to which a client that takes nothing is gone after a second.
IMPATIENT = """
import sys, gateway.door.server as server
server.STALL_SECONDS = 1
sys.exit(server.main())
"""


@pytest.fixture(scope="module")
def small(database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with its console, and 64 MiB for all callers."""
    folder = tmp_path_factory.mktemp("small")
    with running(folder, EGRESS_ALLOW=simulated.url, MEMORY_BYTES=str(64 * MIB), SERVE="all") as (process,):
        yield process


@pytest.fixture(scope="module")
def impatient(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that does not wait long for who takes nothing."""
    gateway = launch(tmp_path_factory.mktemp("impatient"), code=IMPATIENT)
    try:
        gateway.until_ready()
        yield gateway
    finally:
        gateway.stop()


def resident(gateway: Gateway) -> int:
    """Bytes of memory that the process has."""
    return int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1]) * 4096


def test_shares(alice: Tenant, charlie: Tenant) -> None:
    memory = Memory(1200)
    ours, theirs, other = alice.organization.pk, charlie.organization.pk, alice.project.pk
    first = Share(ours, alice.key.pk, memory)
    first.take(450)  # of a half, its key may have three quarters
    with pytest.raises(Unavailable) as refused:
        first.take(1)
    assert (refused.value.status, refused.value.code, refused.value.retry_after) == (503, "out_of_memory", 2)
    with Share(ours, other, memory) as second:
        second.take(150)  # the organization's half is full
        with pytest.raises(Unavailable):
            second.take(1)
        with Share(theirs, charlie.key.pk, memory) as third:
            third.take(300)  # of a third of all
            with pytest.raises(Unavailable):
                third.take(1)
            assert memory.held == 900
    first.keep(1000)  # what is there is there
    first.free()
    assert memory.held == 0


def test_many_large_bodies_of_one_key_are_refused_and_nobody_else_is(
    small: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    slug = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=5").slug
    synchronize(small)
    victim = Victim(small, alice.secret, slug)
    before = resident(small)
    request = head(f"POST {CHAT}", f"Authorization: Bearer {charlie.secret}", f"Content-Length: {31 * MIB}")
    with ExitStack() as stack:
        lines = [stack.enter_context(dial(small)) for _ in range(12)]
        refused = []
        for line in lines:
            line.send(request)
            line.socket.settimeout(0.2)
            try:
                for _ in range(30):  # not whole: it is kept until the last byte
                    line.send(bytes(MIB))
            except OSError:
                pass  # it is refused already
            line.socket.settimeout(0.01)
            try:
                refused.append(line.answer())
            except OSError:
                continue
        assert len(refused) >= 10
        assert {(answer.status, answer.code) for answer in refused} == {(503, "out_of_memory")}
        assert {answer.headers["retry-after"] for answer in refused} == {"2"}
        assert resident(small) - before < 128 * MIB
        victim.median(10)
        large = small.chat(alice.secret, slug, messages=[{"role": "user", "content": "w " * 4 * MIB}])
        assert large.status_code == 200
    assert set(victim.statuses) == {200}
    until(lambda: "meterline_buffered_bytes 0.0" in small.client.get("/metrics").text)


def test_bodies_for_the_console_are_small_without_a_session(small: Gateway, alice: Tenant) -> None:
    def post(size: int, *headers: str) -> int:
        with dial(small) as line:
            request = head("POST /console/login/", f"Content-Length: {size}", *headers)
            line.send(request.replace(b"gateway.test", b"127.0.0.1"))
            if size <= 64 * 1024 or headers:
                line.send(bytes(size))
            return line.answer().status

    assert post(64 * 1024) == 403  # no CSRF token: it has been read
    assert post(64 * 1024 + 1) == 413
    assert post(1 * MIB, "Cookie: sessionid=" + "a" * 32) == 413
    session = SessionStore()
    session[SESSION_KEY] = str(alice.user.pk)
    session.create()
    cookie = f"Cookie: {settings.SESSION_COOKIE_NAME}={session.session_key}"
    assert post(1 * MIB, cookie) == 403
    session[SESSION_KEY] = ""
    session.set_expiry(-1)
    session.save()
    assert post(1 * MIB, cookie) == 413
    assert ApiKey.objects.filter(pk=alice.key.pk).exists()


def stored(gateway: Gateway, tenant: Tenant, size: int) -> bytes:
    """A request for the content of a file of so many bytes that the tenant has uploaded."""
    secret = files_key(tenant)
    synchronize(gateway)
    with sdk(gateway, secret) as client:
        id = upload(client, bytes(size)).id
    return head(f"GET /v1/files/{id}/content", f"Authorization: Bearer {secret}")


def asked(stack: ExitStack, gateway: Gateway, request: bytes) -> Line:
    """A client that sends the request, and whose system takes next to nothing of what comes."""
    line = stack.enter_context(dial(gateway))
    line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.send(request)
    return line


def buffered(gateway: Gateway) -> float:
    """Bytes that the process says it holds for its callers."""
    metrics = gateway.client.get("/metrics").text
    return float(metrics.partition("\nmeterline_buffered_bytes ")[2].partition("\n")[0])


def test_downloads_that_nobody_reads_are_counted_and_refused(small: Gateway, alice: Tenant, charlie: Tenant) -> None:
    """A file counts twice while it is opened, and once until it has been read."""
    request, others = stored(small, alice, 4 * MIB), stored(small, charlie, 4 * MIB)
    until(lambda: buffered(small) == 0)
    before = resident(small)
    with ExitStack() as stack:
        for count in range(1, 6):  # of 64 MiB half is an organization's, and three quarters of that a key's: 24
            line = asked(stack, small, request)
            assert line.begun() == 200
            assert buffered(small) == count * 4 * MIB
        for _ in range(25):
            refused = asked(stack, small, request).answer()
            assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "out_of_memory", "2")
        assert resident(small) - before < 64 * MIB
        with dial(small) as line:
            line.send(others)
            assert line.answer().body == bytes(4 * MIB)
    until(lambda: buffered(small) == 0)
    with dial(small) as line:
        line.send(request)
        assert line.answer().status == 200


@pytest.mark.parametrize("size", [4, 16])
def test_a_download_of_which_nothing_is_taken_is_given_up(impatient: Gateway, alice: Tenant, size: int) -> None:
    """Also when the system has taken nearly all of it, as of the small one."""
    request = stored(impatient, alice, size * MIB)
    until(lambda: buffered(impatient) == 0)
    with ExitStack() as stack:
        line = asked(stack, impatient, request)
        assert line.begun() == 200
        assert buffered(impatient) == size * MIB
        until(lambda: buffered(impatient) == 0)  # and it still has not been read
