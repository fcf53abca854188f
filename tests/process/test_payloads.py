"""Payloads are kept where a project wants it and nowhere else: sealed, bounded, and at nobody's cost."""

import asyncio
import json
import time
import zlib
from collections.abc import AsyncGenerator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from django.conf import LazySettings
from django.db import ProgrammingError, connection, transaction
from django.utils import timezone

from accounts.callers import FIND, Caller, from_row
from accounts.keys import new_secret
from accounts.models import AuditEvent, Project
from accounts.sealing import CannotOpen, open_bytes
from billing.backbone.connections import Connections, DatabaseAway
from billing.ids import first_id, new_hex
from billing.models import Usage
from gateway.models import Payload, PayloadDay
from gateway.process.payloads import A_ROW, DATA, Payloads, kept_of, place
from gateway.tasks import purge_payloads
from tests.console.browser import app_role, console_role, make_payload
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import app_url, run
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model, make_provider

CANARY = "canary-7f3d prompt"


def keeps(tenant: Tenant, days: int = 30) -> None:
    """The tenant's project has payloads kept."""
    tenant.project.payload_days = days
    tenant.project.save()


def opened(id: str) -> tuple[bytes, bytes]:
    """Both sides of a kept payload, once it is written."""
    pk = UUID(id)
    until(Payload.objects.filter(pk=pk).exists)
    row = Payload.objects.get(pk=pk)
    prompt, answer = (
        zlib.decompress(open_bytes(bytes(box), place(side, pk)))
        for side, box in (("prompt", row.prompt), ("answer", row.answer))
    )
    return prompt, answer


def in_clear(text: str) -> list[str]:
    """The tables of the database in which it can be read, as it is or as bytes."""
    with connection.cursor() as cursor:
        cursor.execute("select tablename from pg_tables where schemaname = 'public'")
        found = []
        for (table,) in cursor.fetchall():
            cursor.execute(
                f"select exists (select from {table} t where t::text like any(%s))",  # noqa: S608 - a table of ours
                [[f"%{text}%", f"%{text.encode().hex()}%"]],
            )
            found += [table] if cursor.fetchone()[0] else []
        return found


def ask(gateway: Gateway, tenant: Tenant, model: str, **more: Any) -> tuple[bytes, httpx.Response]:
    """The body that was sent, and the answer."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": CANARY}], **more}).encode()
    headers = {"Authorization": f"Bearer {tenant.secret}", "Content-Type": "application/json"}
    return body, gateway.client.post("/v1/chat/completions", content=body, headers=headers)


@pytest.mark.row("B383")
def test_nothing_is_kept_unless_a_project_says_so(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=2").slug
    keeps(charlie)
    synchronize(gateway)
    _, off = ask(gateway, alice, model)
    _, on = ask(gateway, charlie, model)
    opened(on.headers["x-generation-id"])  # the writer takes them in order: the other would be there by now
    assert off.status_code == on.status_code == 200
    assert Usage.objects.filter(organization=alice.organization.pk).count() == 1
    assert Payload.objects.filter(organization=alice.organization.pk).count() == 0
    assert Payload.objects.filter(organization=charlie.organization.pk).count() == 1
    assert in_clear(CANARY) == []  # neither of who has nothing kept, nor of who has
    assert CANARY not in gateway.log.read_text() and CANARY.encode().hex() not in gateway.log.read_text()


@pytest.mark.parametrize("asked", [{}, {"stream": True}, {"failing": True}], ids=["whole", "stream", "failure"])
def test_both_sides_are_kept_exactly_and_sealed(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, asked: dict[str, Any]
) -> None:
    name = "sim-small?status=500" if asked.pop("failing", False) else "sim-small?tokens=2"
    model = make_model(make_provider(simulated.base_url), name).slug
    keeps(alice)
    synchronize(gateway)
    body, answer = ask(gateway, alice, model, **asked)
    id = answer.headers["x-generation-id"]
    assert opened(id) == (body, answer.content)
    row = Payload.objects.get(pk=id)
    assert (row.organization, row.project, row.key) == (alice.organization.pk, alice.project.pk, alice.key.pk)
    assert (row.prompt_bytes, row.answer_bytes) == (len(body), len(answer.content))
    assert CANARY.encode() not in bytes(row.prompt) + bytes(row.answer)
    assert CANARY not in gateway.log.read_text()
    for changed in (bytes(row.prompt)[:-1] + b"x", bytes(row.answer)):
        with pytest.raises(CannotOpen):
            open_bytes(changed, place("prompt", row.pk))
    assert PayloadDay.objects.get(organization=alice.organization.pk).bytes == 500 + len(row.prompt) + len(row.answer)


def test_a_store_that_is_away_changes_no_answer_and_no_money(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=2").slug
    keeps(alice)
    synchronize(gateway)
    _, before = ask(gateway, alice, model, stream=True)
    opened(before.headers["x-generation-id"])
    with connection.cursor() as cursor:
        cursor.execute("alter table gateway_payload rename to gateway_payload_away")
    try:
        _, without = ask(gateway, alice, model, stream=True)
        id = without.headers["x-generation-id"]
        until(Usage.objects.filter(pk=id).exists)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("alter table gateway_payload_away rename to gateway_payload")
    assert (without.status_code, len(without.text)) == (before.status_code, len(before.text))
    first, second = Usage.objects.filter(organization=alice.organization.pk).order_by("pk")
    assert (first.charge, first.status) == (second.charge, second.status)
    opened(id)  # it was offered again


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (b"", b""),
        (b"hello", b"hello"),
        (b'{"url": "data:image/png;base64,' + b"A" * 1024 + b'=="}',
         b'{"url": "data:image/png;base64,(1026 characters of data are left out)"}'),
        (b"A" * 1023, b"A" * 1023),
        (b"key sk-ml-" + b"a" * 36 + b".", b"key (a key)."),
        (b"a b " * 100_000, (b"a b " * 100_000)[: 256 * 1024]),
        (b"x" * 5_000_000, b"(1048576 characters of data are left out)"),
        (b"A" * ((1 << 20) - 20) + b" sk-ml-" + b"a" * 36, b"(1048556 characters of data are left out) (a key)"),
    ],
)  # fmt: skip
def test_what_is_long_is_cut_and_data_and_keys_left_out(content: bytes, kept: bytes) -> None:
    assert kept_of(content) == kept


def test_runs_that_are_too_short_to_be_data_hold_the_interpreter_for_no_time() -> None:
    """Each was tried from each of its bytes: what is a tenth of a second now took ten, while nothing else ran."""
    content = (b"A" * 1023 + b" ") * (16 << 10)
    began = time.perf_counter()
    assert DATA.sub(b"", content) == content
    assert time.perf_counter() - began < 3


def test_what_is_sent_again_is_counted_once(alice: Tenant) -> None:
    """The commit went through, and nobody heard of it: at a stop, or as the connection died."""
    keeps(alice)
    caller = caller_of(alice)

    async def twice() -> None:
        connections = Connections(app_url(), 1)
        payloads = Payloads(connections)
        noted(payloads, caller, CANARY.encode(), b"answer")
        again = payloads._waiting[0]
        await payloads.write()
        payloads._waiting.append(again)
        await payloads.write()
        await connections.close()

    run(twice())
    (row,) = Payload.objects.filter(organization=alice.organization.pk)
    day = PayloadDay.objects.get(organization=alice.organization.pk)
    assert day.bytes == len(row.prompt) + len(row.answer) + A_ROW


def caller_of(tenant: Tenant) -> Caller:
    """As a process has read the tenant's key."""
    with connection.cursor() as cursor:
        cursor.execute(FIND, [[tenant.key.digest]])
        return from_row(cursor.fetchone())


def noted(payloads: Payloads, caller: Caller, prompt: bytes = b"asked", *parts: bytes, settled: bool = True) -> str:
    """The id of a generation that has been noted and is over."""
    call = SimpleNamespace(id=new_hex(), settled=object() if settled else None)
    taking = payloads.begin(caller, call, prompt)
    assert taking is not None
    for part in parts:
        taking.take(part)
    taking.end()
    return str(call.id)


def test_what_waits_in_a_process_is_bounded(alice: Tenant) -> None:
    keeps(alice)
    caller = caller_of(alice)

    async def fill() -> None:
        connections = Connections(app_url(), 1)
        payloads = Payloads(connections, most_held=100)
        ids = [noted(payloads, caller, b"p" * 40, b"a" * 20) for _ in range(3)]
        assert payloads.held == 60
        ids.append(noted(payloads, caller, b"p" * 40))
        assert payloads.held == 100
        noted(payloads, caller, b"p" * 10, settled=False)
        await payloads.write()
        assert payloads.held == 0
        await connections.close()
        expected.extend((ids[0], ids[3]))

    expected: list[str] = []
    run(fill())
    kept = Payload.objects.filter(organization=alice.organization.pk)
    assert {row.pk.hex for row in kept} == set(expected)


def test_a_database_that_is_away_keeps_what_fits_and_no_more(alice: Tenant) -> None:
    keeps(alice)
    caller = caller_of(alice)

    async def fill() -> None:
        payloads = Payloads(Connections("postgresql://nobody@127.0.0.1:1/none", 1), most_held=1000)
        for _ in range(50):
            noted(payloads, caller, b"p" * 100)
        assert payloads.held == 1000
        with pytest.raises(DatabaseAway):
            await payloads.write()
        assert payloads.held == 1000
        await payloads.stop()

    run(fill())


def test_a_day_s_bytes_are_bounded_for_each_organization(
    alice: Tenant, charlie: Tenant, settings: LazySettings
) -> None:
    keeps(alice)
    keeps(charlie)
    settings.PAYLOAD_ORGANIZATION_BYTES = 1500
    callers = [caller_of(alice), caller_of(charlie)]

    async def fill() -> None:
        connections = Connections(app_url(), 1)
        payloads = Payloads(connections)
        for caller in callers:
            for _ in range(3):
                noted(payloads, caller)
        await payloads.write()
        await connections.close()

    run(fill())
    for tenant in (alice, charlie):
        assert Payload.objects.filter(organization=tenant.organization.pk).count() == 2
        assert PayloadDay.objects.get(organization=tenant.organization.pk).bytes <= 1500


def test_who_has_switched_it_off_meanwhile_keeps_nothing(alice: Tenant, settings: LazySettings) -> None:
    keeps(alice)
    caller = caller_of(alice)
    keeps(alice, 0)

    async def fill() -> None:
        connections = Connections(app_url(), 1)
        payloads = Payloads(connections)
        noted(payloads, caller)
        await payloads.write()
        settings.PAYLOAD_DAYS_MOST = 0  # nor does a project, where the installation does not
        assert payloads.begin(caller, SimpleNamespace(id=new_hex(), settled=None), b"") is None
        await connections.close()

    run(fill())
    assert not Payload.objects.filter(organization=alice.organization.pk).exists()


def test_an_answer_that_is_closed_before_it_began_is_closed(alice: Tenant) -> None:
    """Whose client leaves with the first part: what the answer holds goes, and what was noted is kept."""
    keeps(alice)
    caller = caller_of(alice)
    closed = asyncio.Event()

    async def parts() -> AsyncGenerator[bytes]:
        try:
            yield b"one"
            yield b"two"
        finally:
            closed.set()

    async def leave() -> None:
        payloads = Payloads(Connections("postgresql://nobody@127.0.0.1:1/none", 1))
        answer = parts()
        taking = payloads.begin(caller, SimpleNamespace(id=new_hex(), settled=None), b"asked")
        assert taking is not None
        taking.take(await anext(answer))
        await taking.through(answer).aclose()
        assert closed.is_set() and payloads.held == 0

    run(leave())


def test_what_is_kept_no_longer_goes(alice: Tenant, charlie: Tenant, settings: LazySettings) -> None:
    """By the days that its project says now; all of it, when that is switched off or the project is gone."""
    keeps(alice, 2)
    now = timezone.now()

    def made(tenant: Tenant, **age: int) -> UUID:
        at = now - timedelta(**age)
        return make_payload(tenant, id=UUID(int=first_id(at).int | uuid4().int >> 80), created_at=at).pk

    young, old = made(alice, days=1, hours=23), made(alice, days=2, minutes=1)
    theirs = made(charlie, days=29)
    gone = make_payload(charlie, project=uuid4(), created_at=now).pk
    keeps(alice, 2)
    with app_role():
        purge_payloads()
    mine = {young, old, theirs, gone}
    assert {row.pk for row in Payload.objects.filter(pk__in=mine)} == {young, theirs}
    settings.PAYLOAD_DAYS_MOST = 28
    keeps(alice, 0)
    purge_payloads()
    assert not Payload.objects.filter(pk__in=mine).exists()


def test_no_role_that_serves_reads_what_is_kept(alice: Tenant) -> None:
    make_payload(alice)
    for role in (console_role, app_role):
        for column in ("prompt", "answer"):
            refused = pytest.raises(ProgrammingError, match="permission denied")
            with role(), refused, transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"select {column} from gateway_payload")  # noqa: S608 - ours


def test_the_switch_is_in_the_audit_log(alice: Tenant) -> None:
    keeps(alice, 7)
    event = AuditEvent.objects.filter(table="accounts_project", row=str(alice.project.pk)).latest("pk")
    assert (event.before, event.after) == ({"payload_days": 0}, {"payload_days": 7})
    with pytest.raises(Exception, match="less than or equal to 30"):
        Project(organization=alice.organization, slug="x", name="X", payload_days=31).full_clean()


def test_a_key_in_a_prompt_is_masked_and_the_one_that_asks_is_nowhere(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=2").slug
    keeps(alice)
    synchronize(gateway)
    leaked = new_secret()
    _, answer = ask(gateway, alice, model, user=leaked)
    prompt, said = opened(answer.headers["x-generation-id"])
    assert b'"user": "(a key)"' in prompt
    for secret in (leaked, alice.secret):
        assert secret.encode() not in prompt + said
