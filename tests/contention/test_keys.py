"""A key's end is its end: nothing sent after it is answered or paid for, what is open is cut within a second. X3."""

import asyncio
import random
import time
from collections import Counter as Tally
from collections.abc import Callable
from typing import Any

import pytest

from accounts.models import ApiKey
from billing.models import Attempt, Hold, Usage
from routing.models import Provider
from tests.contention.changes import Change, change
from tests.contention.conftest import Broker, Figures
from tests.contention.scale import scaled
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, run
from tests.stage.cast import Tenant, make_key
from tests.stage.load import DONE, Answer, Clients
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model

pytestmark = pytest.mark.backbone

KEYS = scaled(40, 200)
TICK = 0.005  # seconds between two requests: 200 a second
TICKS_A_KEY = 8  # so the last key is revoked after 1.6 seconds, or 8


REVOKE = "update accounts_apikey set revoked_at = clock_timestamp() where id = %s"
ENDS: dict[str, tuple[str, Callable[[Tenant], Any]]] = {
    "revoked": (REVOKE, lambda tenant: tenant.key.pk),
    "expired": ("update accounts_apikey set expires_at = now() where id = %s", lambda tenant: tenant.key.pk),
    "project": ("update accounts_project set active = false where id = %s", lambda tenant: tenant.project.pk),
    "organization": (
        "update accounts_organization set active = false where id = %s",
        lambda tenant: tenant.organization.pk,
    ),
    "owner": ("update accounts_user set is_active = false where id = %s", lambda tenant: tenant.user.pk),
}


def schedule(chance: random.Random) -> list[int]:
    """Which key each request carries: most are near the one that is being revoked, before and after it."""
    found: list[int] = []
    for turn in range(-2, KEYS + 3):
        near = [turn - 1, turn, turn, turn + 1, turn + 2, turn + 8]
        wanted = [key if 0 <= key < KEYS else chance.randrange(KEYS) for key in near]
        found += [*wanted, *(chance.randrange(KEYS) for _ in range(TICKS_A_KEY - len(wanted)))]
    return found


def test_keys_revoked_under_load_are_answered_never_again(
    fleet: list[Gateway],
    broker: Broker,
    simulated: SimulatedProvider,
    provider: Provider,
    alice: Tenant,
    figures: Figures,
) -> None:
    """At 200 requests a second, with a broker that is paused."""
    name = f"revoke-{provider.slug}?tokens=3"
    model = make_model(provider, name)
    keys = [make_key(alice.project, name=f"key-{number}") for number in range(KEYS)]
    secrets = [secret for _, secret in keys]
    synchronize(*fleet)
    ends: dict[str, Change] = {}

    async def scenario() -> list[Answer]:
        async with Clients() as clients:

            async def ask(place: int, secret: str) -> Answer:
                return await clients.ask(fleet[place % 4].url, secret, model.slug, max_tokens=3)

            async def all_keys() -> None:
                for first in range(0, KEYS, 20):
                    some = range(first, first + 20)
                    await asyncio.gather(*(ask(number + number // 4, secrets[number]) for number in some))

            await all_keys()
            start = time.monotonic()
            asking: list[asyncio.Task[Answer]] = []

            async def revoke() -> None:
                for number, (key, secret) in enumerate(keys):
                    await _at(start + (number + 2) * TICKS_A_KEY * TICK)
                    ends[secret] = await asyncio.to_thread(change, REVOKE, key.pk)
                    asking.append(asyncio.create_task(ask(number, secret)))  # as soon as can be

            revoking = asyncio.create_task(revoke())
            for tick, number in enumerate(schedule(random.Random(11))):
                await _at(start + tick * TICK)
                asking.append(asyncio.create_task(ask(tick, secrets[number])))
            await revoking
            await asyncio.gather(*asking)
            await all_keys()  # none of them comes back to life
            return clients.journal

    with broker.being("paused"):
        journal = run(scenario())
    before = [answer for answer in journal if answer.ended < ends[answer.secret].began]
    after = [answer for answer in journal if answer.sent > ends[answer.secret].committed]
    seconds = max(answer.sent for answer in journal) - min(answer.sent for answer in journal)
    print(
        f"{len(journal)} requests in {seconds:.1f} s; ended before {Tally(a.status for a in before)}, sent after"
        f" {Tally(a.status for a in after)}, meanwhile {len(journal) - len(before) - len(after)}; soonest after"
        f" {min(a.sent - ends[a.secret].committed for a in after) * 1000:.1f} ms"
    )
    # 503 tells a client to come back: a busy machine took too long. It is no answer, and costs nothing.
    assert {answer.status for answer in after} <= {401, 503}
    assert {answer.secret for answer in after if answer.status == 401} == set(secrets)
    assert {answer.status for answer in before} <= {200, 503}
    assert {answer.secret for answer in before if answer.final} == set(secrets)
    assert sum(answer.final for answer in before) > 4 * KEYS
    assert {answer.status for answer in journal} <= {200, 401, 503}
    figures(
        "X3",
        accepted_after=sum(answer.status == 200 for answer in after),
        told_to_come_back=sum(answer.status == 503 for answer in journal),
    )

    organization = alice.organization.pk
    until(lambda: not Hold.objects.filter(organization=organization).exists())
    rows = {row.id: row for row in Usage.objects.filter(organization=organization)}
    moments = {key.pk: ends[secret].at for key, secret in keys}
    attempts = list(Attempt.objects.filter(generation__in=rows))
    late = [attempt for attempt in attempts if attempt.started_at > moments[rows[attempt.generation].key]]
    assert late == []
    assert [row for row in rows.values() if row.created_at > moments[row.key]] == []
    assert {answer.generation for answer in journal if answer.final} <= set(rows)
    # The provider was asked for nothing that is not written down.
    assert sum(line["model"] == name and line["event"] == "start" for line in simulated.lines()) <= len(attempts)
    assert books(alice.organization).problems() == []


async def _at(moment: float) -> None:
    """Returns at `moment` of the monotonic clock, at once if that is over."""
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


@pytest.mark.parametrize("reason", list(ENDS))
def test_what_is_open_on_every_process_is_cut_within_a_second(
    fleet: list[Gateway],
    simulated: SimulatedProvider,
    provider: Provider,
    alice: Tenant,
    charlie: Tenant,
    figures: Figures,
    reason: str,
) -> None:
    """On each process two streams that are under way, one whose first byte is awaited, and a whole answer."""
    talking = make_model(provider, f"talk-{provider.slug}?tokens=1000&pace=20ms")
    silent = make_model(provider, f"silent-{provider.slug}?hold")
    ApiKey.objects.filter(pk=charlie.key.pk).update(on_leave="stop")  # the bystander's provider is left with it
    synchronize(*fleet)
    statement, subject = ENDS[reason]

    async def scenario() -> tuple[Change, list[Answer], list[Answer]]:
        async with Clients() as clients:

            def ask(secret: str, model: str, stream: bool) -> list[asyncio.Task[Answer]]:
                return [
                    asyncio.create_task(clients.ask(gateway.url, secret, model, stream=stream)) for gateway in fleet
                ]

            streams = [task for _ in range(2) for task in ask(alice.secret, talking.slug, True)]
            waiting = ask(alice.secret, silent.slug, False) + ask(alice.secret, silent.slug, True)
            bystander = asyncio.create_task(clients.ask(fleet[0].url, charlie.secret, talking.slug, stream=True))
            await asyncio.to_thread(simulated.until, 20, waiting=8)
            await asyncio.to_thread(
                until, lambda: sum(answer.body.count(b"data: ") >= 3 for answer in clients.journal) == 9, 20
            )
            end = await asyncio.to_thread(change, statement, subject(alice))
            cut = await asyncio.gather(*streams, *waiting)
            refused = await asyncio.gather(*ask(alice.secret, talking.slug, False))
            assert not bystander.done()
            bystander.cancel()
            await asyncio.wait({bystander})
            return end, cut, refused

    end, cut, refused = run(scenario())
    latest = max(answer.ended - end.committed for answer in cut)
    figures("X3", seconds_to_the_last_cut=round(latest, 3))
    assert latest <= 1.0
    assert {answer.status for answer in refused} == {401}
    streams, whole, unbegun = cut[:8], cut[8:12], cut[12:]
    for answer in streams:
        assert answer.status == 200
        assert not answer.body.endswith(DONE)
        assert "[DONE]" not in answer.events()
        assert answer.events()[-1]["error"]["code"] == "invalid_api_key"
        assert answer.whole  # an orderly end, not a broken connection
    assert {(answer.status, answer.json()["error"]["code"]) for answer in whole} == {(401, "invalid_api_key")}
    assert not any(answer.final for answer in unbegun)

    organization = alice.organization.pk
    until(lambda: not Hold.objects.filter(organization=organization).exists())
    found = Tally(Usage.objects.filter(organization=organization).values_list("status", "error", "basis"))
    # Those that were silent yet had been asked all the same.
    assert found == {("cancelled", "key_revoked", "estimated"): 16}
    simulated.until(10, answering=0)
    ended = {line["ended"] for line in simulated.bill() if provider.slug in line["model"]}
    assert ended == {"client_closed"}
    until(lambda: not Hold.objects.filter(organization=charlie.organization.pk).exists())
    assert books(alice.organization, charlie.organization).problems() == []


@pytest.mark.parametrize("reason", ["project", "organization", "owner"])
def test_what_is_switched_off_is_refused_at_once_and_on_again_answered_at_once(
    fleet: list[Gateway], provider: Provider, alice: Tenant, reason: str
) -> None:
    model = make_model(provider)
    synchronize(*fleet)
    off, subject = ENDS[reason]
    on = off.replace("= false", "= true")
    for _ in range(5):
        assert [gateway.chat(alice.secret, model.slug).status_code for gateway in fleet] == [200] * 4
        paid = Usage.objects.filter(organization=alice.organization.pk).count()
        change(off, subject(alice))
        assert [gateway.chat(alice.secret, model.slug).status_code for gateway in fleet] == [401] * 4
        assert Usage.objects.filter(organization=alice.organization.pk).count() == paid
        change(on, subject(alice))


def test_another_key_of_the_project_lives_on(fleet: list[Gateway], provider: Provider, alice: Tenant) -> None:
    model = make_model(provider)
    _, other = make_key(alice.project, name="other")
    synchronize(*fleet)
    change(REVOKE, alice.key.pk)
    assert [gateway.chat(alice.secret, model.slug).status_code for gateway in fleet] == [401] * 4
    assert [gateway.chat(other, model.slug).status_code for gateway in fleet] == [200] * 4
