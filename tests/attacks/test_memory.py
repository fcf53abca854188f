"""What a process keeps in memory for its callers has one budget, of which nobody has more than a share."""

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
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.raw import CHAT, dial, head
from tests.stage.shelf import make_model, make_provider

MIB = 1 << 20


@pytest.fixture(scope="module")
def small(database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with its console, and 64 MiB for all callers."""
    folder = tmp_path_factory.mktemp("small")
    with running(folder, EGRESS_ALLOW=simulated.url, MEMORY_BYTES=str(64 * MIB), SERVE="all") as (process,):
        yield process


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
