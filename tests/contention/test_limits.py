"""Limits are exact, whoever asks where, and as many at once as there may be: X7."""

import asyncio
import random
from collections import Counter as Tally
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from billing.models import Counter, Hold, Limit, Usage
from routing.models import Model, Provider
from tests.contention.conftest import Figures
from tests.contention.crowd import Crowd
from tests.contention.scale import WHOLE
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, database, owner_url, run
from tests.stage.cast import Tenant, make_tenant
from tests.stage.clock import clock, in_one_minute, minute
from tests.stage.load import Answer, Clients
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model

pytestmark = pytest.mark.backbone


def limit(tenant: Tenant, measure: str, value: int) -> Limit:
    """A limit of the organization."""
    return Limit.objects.create(organization=tenant.organization, measure=measure, value=value)


def strays(tenant: Tenant) -> int:
    """Holds that came too late for their requests and were given back; each of these was told to come back."""
    return Usage.objects.filter(organization=tenant.organization.pk, error="not_dialled").count()


def at_rest(tenant: Tenant) -> None:
    """Returns once nothing is held, with right books."""
    until(lambda: not Hold.objects.filter(organization=tenant.organization.pk).exists(), 10)
    assert books(tenant.organization).problems() == []


async def all_at_once(fleet: list[Gateway], secret: str, model: str, count: int) -> list[Answer]:
    """So many answers, asked for at the same time."""
    async with Clients() as clients:
        wishes = (clients.insist(fleet[number % 4].url, secret, model=model) for number in range(count))
        return await asyncio.gather(*wishes)


def test_of_1000_requests_at_once_exactly_a_hundred_are_taken_in_a_minute(
    fleet: list[Gateway], provider: Provider, simulated: SimulatedProvider, figures: Figures
) -> None:
    name = f"minute-{provider.slug}?tokens=2"
    model = make_model(provider, name)
    answers: list[Answer] = []

    def play(tenant: Tenant) -> None:
        limit(tenant, "requests", 100)
        synchronize(*fleet)
        simulated.reset()
        answers[:] = run(all_at_once(fleet, tenant.secret, model.slug, 1000))

    tenant = in_one_minute(play)
    at_rest(tenant)
    found = Tally(answer.status for answer in answers)
    print(f"{dict(found)}, {strays(tenant)} strays; slowest {max(answer.seconds for answer in answers):.2f} s")
    # A stray has taken its place in the minute: it was admitted, if too late to be used.
    assert found == {200: 100 - strays(tenant), 429: 900 + strays(tenant)}
    assert all(answer.final for answer in answers if answer.status == 200)
    refused = [answer for answer in answers if answer.status == 429]
    assert {answer.json()["error"]["code"] for answer in refused} == {"rate_limit_exceeded"}
    assert {answer.headers["x-ratelimit-limit-requests"] for answer in refused} == {"100"}
    assert {answer.json()["error"]["message"] for answer in refused} == {
        "The organization's limit of 100 requests a minute is reached."
    }
    counter = Counter.objects.get(organization=tenant.organization.pk, measure="requests")
    assert counter.used == 100
    assert counter.held == 0
    # A refused request reaches no provider and leaves no row.
    assert sum(line["model"] == name for line in simulated.bill()) == found[200]
    assert Usage.objects.filter(organization=tenant.organization.pk, error="").count() == found[200]
    figures("X7", taken_of_100=found[200], over=0, strays=strays(tenant))


@pytest.mark.skipif(not WHOLE, reason="waits for the end of a minute")
def test_a_minute_that_ends_in_the_midst_has_its_hundred_and_so_has_the_next(
    fleet: list[Gateway], provider: Provider, figures: Figures
) -> None:
    model = make_model(provider, f"boundary-{provider.slug}?tokens=2")
    tenant = make_tenant("alice")
    limit(tenant, "requests", 100)
    synchronize(*fleet)
    boundary = minute(clock()) + timedelta(minutes=1)

    async def client(clients: Clients, number: int) -> None:
        """Until it is refused in the second minute."""
        status, over = 0, False
        while status != 429 or not over:
            over = await asyncio.to_thread(clock) >= boundary
            status = (await clients.insist(fleet[number % 4].url, tenant.secret, model=model.slug)).status

    async def scenario() -> None:
        async with Clients() as clients:
            await asyncio.gather(*(client(clients, number) for number in range(16)))

    until(lambda: clock() > boundary - timedelta(seconds=8), 70, 0.1)
    run(scenario())
    at_rest(tenant)
    minutes = Tally(minute(row.created_at) for row in Usage.objects.filter(organization=tenant.organization.pk))
    assert minutes == {boundary - timedelta(minutes=1): 100, boundary: 100}
    figures("X7", taken_of_100_a_minute=max(minutes.values()), over=0)


def test_of_many_requests_at_once_exactly_seven_are_open(
    fleet: list[Gateway], provider: Provider, simulated: SimulatedProvider, alice: Tenant, figures: Figures
) -> None:
    limit(alice, "open", 7)
    model = make_model(provider, f"open-{provider.slug}?hold&tokens=2").slug
    synchronize(*fleet)
    count = 1000 if WHOLE else 30

    async def scenario() -> Crowd:
        async with Clients() as clients:
            crowd = Crowd(clients, fleet, simulated)
            crowd.ask(count, alice.secret, model)
            await crowd.fill(7, alice.secret, model)
            assert all(answer.status == 429 for answer in crowd.answered())
            await crowd.release(1)
            # One is free, at every process at once, and no second.
            crowd.ask(2, alice.secret, model)
            assert await crowd.waiting() == 7
            await crowd.release()
            return crowd

    answers = run(scenario()).answered()
    refused = [answer for answer in answers if answer.status != 200]
    assert {(answer.status, answer.json()["error"]["code"]) for answer in refused} == {(429, "rate_limit_exceeded")}
    assert len(answers) - len(refused) == 8
    at_rest(alice)
    assert Counter.objects.get(organization=alice.organization.pk, measure="open").held == 0
    figures("X7", open_of_7=7, over=0, refused=len(refused))


def test_tokens_a_minute_are_never_passed_at_their_worst(
    fleet: list[Gateway], provider: Provider, simulated: SimulatedProvider, figures: Figures
) -> None:
    """Requests of 10 to 100 tokens each at worst, against 5,000. All that are taken wait, so room only shrinks."""
    model = make_model(provider, f"tokens-{provider.slug}?hold&tokens=5").slug
    chance = random.Random(7)
    caps = [chance.randrange(10, 100) for _ in range(1000 if WHOLE else 100)]
    seen: dict[str, Any] = {}

    def play(tenant: Tenant) -> None:
        limit(tenant, "tokens", 5000)
        synchronize(*fleet)

        async def scenario() -> list[Answer]:
            async with Clients() as clients:
                crowd = Crowd(clients, fleet, simulated)
                for cap in caps:
                    crowd.ask(1, tenant.secret, model, max_tokens=cap)
                await crowd.waiting()
                seen.update(await asyncio.to_thread(_held, tenant.organization.pk))
                await crowd.release()
                return crowd.answered()

        seen["answers"] = run(scenario())
        seen["strays"] = strays(tenant)

    tenant = in_one_minute(play)
    answers, holds = seen["answers"], seen["holds"]
    taken = [cap for cap, answer in zip(caps, answers, strict=True) if answer.status == 200]
    refused = [cap for cap, answer in zip(caps, answers, strict=True) if answer.status == 429]
    assert len(taken) + len(refused) == len(caps)
    assert taken
    ((prompt,),) = {(tokens - cap,) for tokens, cap in holds}  # they all say the same
    assert sorted(cap for _, cap in holds) == sorted(taken)
    worst = sum(cap + prompt for cap in taken)
    print(f"{len(taken)} taken, {worst} of 5000 tokens at worst, {seen['strays']} strays")
    assert worst == seen["held"] <= 5000
    # And nobody was refused for nothing: none of them would fit now.
    if not seen["strays"]:
        assert worst + min(refused) + prompt > 5000

    at_rest(tenant)
    counter = Counter.objects.get(organization=tenant.organization.pk, measure="tokens")
    used = sum(answer.json()["usage"]["total_tokens"] for answer in answers if answer.status == 200)
    assert counter.used == used
    assert counter.held == 0
    assert used <= 5000
    figures("X7", tokens_over=0, tokens_left_of_5000=5000 - worst, tokens_of_the_least_refused=min(refused) + prompt)


def _held(organization: UUID) -> dict[str, Any]:
    """The tokens and output cap of each hold, and what the counter holds, from any thread."""
    with database(owner_url()) as connection:
        holds = connection.execute(
            "select tokens, output_cap from billing_hold where organization = %s", [organization]
        ).fetchall()
        held = connection.execute(
            "select sum(held) from billing_counter where organization = %s and measure = 'tokens'", [organization]
        ).fetchall()
    return {"holds": holds, "held": held[0][0]}


def test_a_changed_limit_binds_at_once_at_every_process(
    fleet: list[Gateway], provider: Provider, charlie: Tenant
) -> None:
    """Set, lowered, raised and taken away while requests run; nobody else's are counted."""
    model: Model = make_model(provider)
    found: list[list[int]] = []

    def play(tenant: Tenant) -> None:
        def answers() -> list[int]:
            return [gateway.chat(tenant.secret, model.slug).status_code for gateway in fleet]

        synchronize(*fleet)
        found[:] = [answers()]
        rule = limit(tenant, "requests", 3)
        found.append(answers())
        rule.value = 5
        rule.save()
        found.append(answers())
        rule.value = 2
        rule.save()
        found.append(answers())
        assert fleet[0].chat(charlie.secret, model.slug).status_code == 200
        rule.delete()
        synchronize(*fleet)  # what was refused is counted in the gateways, under the limit that they have heard of
        found.append(answers())

    in_one_minute(play)
    full, none = [200] * 4, [429] * 4
    assert found == [full, [200, 200, 200, 429], [200, 200, 429, 429], none, full]
