"""What is refused before anything is held for it leaves a trace an operator finds, bounded, and off money's path."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from accounts.callers import FIND, Caller, from_row
from billing.backbone.connections import Connections, DatabaseAway
from billing.ids import first_id, new_hex
from billing.models import Budget, Usage
from gateway.models import Refused as Row
from gateway.models import RefusedCount
from gateway.process.refused import MOST_KEPT, MOST_KEYS, MOST_OF_A_KEY, Refused
from gateway.tasks import REFUSED_KEPT, prune_refused
from gateway.wire.errors import InvalidRequest
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import app_url, run
from tests.stage.cast import Tenant
from tests.stage.lossy import lossy
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model, make_provider

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
WAYS: dict[str, tuple[str, str, Any, int, str]] = {
    "a wrong body": ("POST", CHAT, {"model": "MODEL", "messages": []}, 400, "invalid_value"),
    "no such model": ("POST", CHAT, {"model": "no/such", "messages": HI}, 404, "model_not_found"),
    "a scope it lacks": ("GET", "/v1/management/usage", None, 403, "missing_scope"),
    "another method": ("DELETE", CHAT, None, 405, "method_not_allowed"),
    "nothing left to spend": ("POST", CHAT, {"model": "MODEL", "messages": HI}, 402, "insufficient_credit"),
    "no such generation": ("GET", "/v1/generation?id=" + "0" * 32, None, 404, "generation_not_found"),
}


def kept(request_id: str) -> Row:
    """The row of a refused request, once it is written."""
    until(Row.objects.filter(pk=UUID(request_id)).exists)
    return Row.objects.get(pk=UUID(request_id))


@pytest.mark.parametrize("way", WAYS)
def test_it_is_found_by_its_id(gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, way: str) -> None:
    method, path, body, status, code = WAYS[way]
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=2").slug
    if body is not None and body["model"] == "MODEL":
        body = {**body, "model": model}
    if status == 402:
        Budget.objects.create(organization=alice.organization, period="total", amount=0)
    synchronize(gateway)
    headers = {"Authorization": f"Bearer {alice.secret}"}
    answer = gateway.client.request(method, path, json=body, headers=headers)
    assert answer.status_code == status
    row = kept(answer.headers["x-request-id"])
    assert (row.status, row.code, row.message) == (status, code, answer.json()["error"]["message"])
    assert (row.organization, row.project, row.key) == (alice.organization.pk, alice.project.pk, alice.key.pk)
    assert (row.organization_slug, row.project_slug, row.key_name) == (alice.organization.slug, "main", "key")
    assert (row.method, row.path, row.address) == (method, path.partition("?")[0], "127.0.0.1")
    (count,) = RefusedCount.objects.filter(key=alice.key.pk)
    assert (count.status, count.code, count.requests) == (status, code, 1)
    assert count.minute == row.created_at.replace(second=0, microsecond=0)
    assert not Usage.objects.filter(organization=alice.organization.pk).exists()


def test_a_key_that_nobody_has_is_nobody_s_and_stays_unsaid(gateway: Gateway) -> None:
    secret = "sk-ml-this-is-not-a-key-of-anybody"
    answer = gateway.client.get("/v1/models", headers={"Authorization": f"Bearer {secret}"})
    row = kept(answer.headers["x-request-id"])
    assert (row.status, row.code, row.organization, row.key, row.key_name) == (401, "invalid_api_key", None, None, "")
    assert secret not in str(vars(row))


def test_what_was_held_for_has_its_usage_row_alone(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    failing = make_model(make_provider(simulated.base_url), "sim-small?status=500").slug
    synchronize(gateway)
    held = gateway.chat(alice.secret, failing)
    assert held.status_code >= 500
    after = gateway.chat(alice.secret, "no/such")
    kept(after.headers["x-request-id"])
    assert [row.code for row in Row.objects.filter(key=alice.key.pk)] == ["model_not_found"]
    assert Usage.objects.filter(organization=alice.organization.pk).count() == 1


def test_who_is_open_to_all_is_not_noted(gateway: Gateway, alice: Tenant) -> None:
    probed = gateway.client.post("/healthz")
    assert probed.status_code == 405
    after = gateway.chat(alice.secret, "no/such")
    kept(after.headers["x-request-id"])
    assert not Row.objects.filter(path="/healthz").exists()


def caller_of(tenant: Tenant) -> Caller:
    """The caller of a tenant's key, as a process reads it."""
    with connection.cursor() as cursor:
        cursor.execute(FIND, [[bytes(tenant.key.digest)]])
        (row,) = cursor.fetchall()
    return from_row(row)


def note(refused: Refused, caller: Caller | None, message: str = "Not so.", **of: Any) -> str:
    """Notes one more; gives its id."""
    told, request_id = {"method": "POST", "path": "/v1/chat", "model": "", "address": "", **of}, new_hex()
    refused.note(InvalidRequest(message), 400, request_id=request_id, caller=caller, **told)
    return request_id


def test_a_flood_hides_nobody_and_is_counted_whole(alice: Tenant, charlie: Tenant) -> None:
    flood, victim = caller_of(alice), caller_of(charlie)

    async def scenario() -> None:
        connections = Connections(app_url(), 1)
        refused = Refused(connections)
        for _ in range(5_000):
            note(refused, flood)
        note(refused, victim)
        await refused.write()
        await connections.close()

    run(scenario())
    assert Row.objects.filter(key=alice.key.pk).count() == MOST_OF_A_KEY
    assert Row.objects.filter(key=charlie.key.pk).count() == 1
    assert (counted_of(alice), counted_of(charlie)) == (5_000, 1)


def test_however_many_keys_there_are_so_many_are_told_apart(alice: Tenant) -> None:
    """As when the database is away: nothing is written meanwhile."""
    one, before = caller_of(alice), counted_of(None)
    keys = [UUID(int=alice.key.pk.int ^ number) for number in range(3 * MOST_KEYS)]

    async def scenario() -> None:
        connections = Connections(app_url(), 1)
        refused = Refused(connections)
        for key in keys:
            note(refused, replace(one, key=key))
        await refused.write()
        await refused.write()
        await connections.close()

    run(scenario())
    assert Row.objects.filter(organization=alice.organization.pk).count() == MOST_KEPT
    apart = RefusedCount.objects.filter(organization=alice.organization.pk)
    assert MOST_KEYS <= apart.count() <= 2 * MOST_KEYS  # of one minute, or of two
    assert counted_of(None) - before == len(keys) - apart.count()


@pytest.mark.backbone
@pytest.mark.parametrize("swallow", [3, 4])
def test_a_reply_that_is_lost_counts_nothing_twice(alice: Tenant, swallow: int) -> None:
    caller = caller_of(alice)

    async def scenario() -> None:
        async with lossy(app_url(), swallow) as relay:
            connections = Connections(relay.url, 1)
            refused = Refused(connections)
            for _ in range(6):
                note(refused, caller)
                with suppress(DatabaseAway):
                    await refused.write()
            await refused.write()
            assert relay.swallowed
            await connections.close()

    run(scenario())
    assert counted_of(alice) == 6
    assert Row.objects.filter(key=alice.key.pk).count() == 6


def test_what_no_column_takes_is_written_all_the_same(alice: Tenant) -> None:
    caller = caller_of(alice)

    async def scenario() -> str:
        connections = Connections(app_url(), 1)
        refused = Refused(connections)
        id = note(refused, caller, "a\0b\ud800" + "c" * 9_000, path="/\0", model="\udfff")
        await refused.write()
        await connections.close()
        return id

    row = Row.objects.get(pk=UUID(run(scenario())))
    assert (row.message, row.path, row.model) == ("a\ufffdb?" + "c" * 496, "/\ufffd", "?")


def test_the_last_of_each_organization_stay(alice: Tenant, charlie: Tenant) -> None:
    now = datetime.now(UTC)
    mine = [first_id(now - timedelta(milliseconds=number)) for number in range(REFUSED_KEPT + 5)]
    Row.objects.bulk_create(made(alice, id) for id in mine)
    old, few = first_id(now - timedelta(days=8)), first_id(now - timedelta(days=6))
    Row.objects.bulk_create(made(charlie, id) for id in (old, few))
    for days in (29, 31):
        at, who = now - timedelta(days=days), charlie.organization.pk
        RefusedCount.objects.create(minute=at, key=charlie.key.pk, organization=who, status=400, requests=1)
    prune_refused()
    prune_refused()
    left = Row.objects.filter(organization=alice.organization.pk).values_list("pk", flat=True)
    assert sorted(left) == sorted(mine[:REFUSED_KEPT])
    assert [row.pk for row in Row.objects.filter(organization=charlie.organization.pk)] == [few]
    assert RefusedCount.objects.filter(key=charlie.key.pk).count() == 1


def made(tenant: Tenant, id: UUID) -> Row:
    """A row that is not written yet."""
    return Row(id=id, created_at=datetime.now(UTC), organization=tenant.organization.pk, status=400)


def counted_of(tenant: Tenant | None) -> int:
    """How many are counted of a tenant's key; of no key."""
    counts = RefusedCount.objects.filter(key=None if tenant is None else tenant.key.pk)
    return sum(counts.values_list("requests", flat=True))
