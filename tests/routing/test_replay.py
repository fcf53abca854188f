"""A replay says what traffic would have cost and where it would have gone: held against the gateway itself."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from billing.ids import new_id
from billing.models import Usage
from gateway.management.commands.simulate_policy import text
from routing.models import Model, Policy, Provider
from routing.replay.comparison import Comparison, Outcome
from routing.replay.foresight import Foresight, foresee
from routing.replay.replay import Traffic, replayed, routes
from routing.statistics.rollups import roll_up
from tests.console.browser import make_attempt, make_usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff

REQUESTS = 120  # divisible by three providers; enough that a few looks at slower ones weigh little
POINTS = 0.05  # what predicted and measured shares may differ by where chance or a rotation decides


class Town:
    """A model at three providers: a fast dear one, one in the middle, and a slow cheap one."""

    def __init__(self, gateway: Gateway, tenant: Tenant, simulated: SimulatedProvider) -> None:
        self.gateway, self.tenant = gateway, tenant
        self.providers = [make_provider(simulated.base_url) for _ in range(3)]
        speeds = ("first=10ms", "first=150ms", "first=300ms")
        prices = (("6", "9"), ("4", "5"), ("1", "2"))
        names = [f"sim-small?tokens=7&prompt=11&{speed}" for speed in speeds]
        tariffs = [make_tariff(input=price, output=price) for price in prices]
        self.model = make_model(self.providers[0], names[0], tariffs[0])
        for number in (1, 2):
            add_offer(self.model, self.providers[number], names[number], tariffs[number], priority=number)

    def slugs(self, *places: int) -> list[str]:
        """Slugs of providers."""
        return [self.providers[place].slug for place in places]

    def govern(self, **policy: Any) -> None:
        """Makes it the project's policy."""
        Policy.objects.update_or_create(project=self.tenant.project, defaults={"level": "project", **EMPTY, **policy})

    def send(self, count: int = REQUESTS) -> Traffic:
        """Sends that much traffic, and gives what was recorded of it."""
        synchronize(self.gateway)
        start = timezone.now()
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: self.gateway.chat(self.tenant.secret, self.model.slug), range(count)))
        assert [answer.status_code for answer in answers] == [200] * count
        return Traffic(start, timezone.now() + timedelta(milliseconds=5), project=self.tenant.project.pk)


EMPTY: dict[str, Any] = {"strategy": "", "factor": "", "providers": None, "fallback": "", "max_attempts": None}


def predicted(traffic: Traffic, tenant: Tenant, **policy: Any) -> Comparison:
    """What the traffic would have been under another policy of the project."""
    roll_up()
    changed = Policy(level="project", project=tenant.project, **{**EMPTY, **policy})
    foresight = foresee(traffic.start, traffic.end, timezone.now())
    *_, comparison = replayed(traffic, routes(changed.row()), foresight)
    return comparison


def measured(traffic: Traffic) -> tuple[Decimal, Decimal, Counter[str]]:
    """Charge, cost and answers by provider, as they are on the books."""
    rows = list(traffic.rows())
    return (
        sum((row.charge or Decimal(0) for row in rows), Decimal(0)),
        sum((row.provider_cost or Decimal(0) for row in rows), Decimal(0)),
        Counter(row.provider for row in rows),
    )


@pytest.fixture(scope="module")
def recorded(gateway: Gateway, simulated: SimulatedProvider) -> tuple[Town, Traffic]:
    """Traffic that went to each provider in turn, and where."""
    town = Town(gateway, make_tenant("alice"), simulated)
    town.govern(strategy="round_robin")
    traffic = town.send()
    assert set(measured(traffic)[2].values()) == {REQUESTS // 3}
    return town, traffic


@pytest.mark.parametrize(
    "policy",
    [
        {"strategy": "priority"},
        {"strategy": "priority", "factor": "price"},
        {"strategy": "order", "places": (1, 2)},
        {"strategy": "priority", "factor": "latency"},
    ],
    ids=["priority", "price", "order", "latency"],
)
def test_what_it_predicts_is_what_is_then_measured(recorded: tuple[Town, Traffic], policy: dict[str, Any]) -> None:
    town, traffic = recorded
    changed = {name: value for name, value in policy.items() if name != "places"}
    if "places" in policy:
        changed["providers"] = town.slugs(*policy["places"])
    comparison = predicted(traffic, town.tenant, **changed)
    assert (comparison.replayed, comparison.left_out, comparison.unpriced) == (REQUESTS, {}, 0)
    assert (comparison.recorded.charge, comparison.recorded.cost, comparison.recorded.providers) == measured(traffic)

    town.govern(**changed)
    charge, cost, providers = measured(town.send())
    # Tokens are the same each time, so the amounts are equal to the last digit, and all go to one provider.
    assert (comparison.predicted.charge, comparison.predicted.cost) == (charge, cost)
    assert comparison.predicted.providers == providers and len(providers) == 1
    assert comparison.moved == REQUESTS - REQUESTS // 3


@pytest.mark.parametrize("strategy", ["round_robin", "least_latency"])
def test_where_a_turn_or_chance_decides_it_predicts_shares_within_five_points(
    recorded: tuple[Town, Traffic], strategy: str
) -> None:
    town, traffic = recorded
    comparison = predicted(traffic, town.tenant, strategy=strategy)
    town.govern(strategy=strategy)
    _, _, providers = measured(town.send())
    for slug in town.slugs(0, 1, 2):
        assert abs(comparison.predicted.share(slug) - providers[slug] / REQUESTS) <= POINTS, slug


def test_it_predicts_that_another_provider_is_slower(recorded: tuple[Town, Traffic]) -> None:
    town, traffic = recorded
    fast = predicted(traffic, town.tenant, strategy="order", providers=town.slugs(0))
    slow = predicted(traffic, town.tenant, strategy="order", providers=town.slugs(2))
    for quantile in (0.5, 0.9):
        faster, slower = (side.predicted.duration.quantile(quantile) for side in (fast, slow))
        assert faster is not None and slower is not None and slower > faster + 100
    assert slow.predicted.duration.mean is not None and slow.predicted.duration.mean > 300 * 0.9
    assert fast.predicted.duration.count == slow.predicted.duration.count == REQUESTS
    # Those that stay keep the very time they had.
    stayed = [row.duration_ms for row in traffic.rows() if row.provider == town.slugs(2)[0]]
    assert len(stayed) == REQUESTS // 3 and slow.recorded.duration.total == sum(
        row.duration_ms or 0 for row in traffic.rows()
    )


# --- made traffic ----------------------------------------------------------------------------------------------------


def shelf() -> tuple[Model, list[Provider]]:
    """A model at two providers; the first takes a dollar in and two out, the second twice as much."""
    providers = [make_provider("https://one.example/v1"), make_provider("https://two.example/v1")]
    model = make_model(providers[0], "one", make_tariff(input=("0.5", "1"), output=("1", "2")))
    add_offer(model, providers[1], "two", make_tariff(input=("1", "2"), output=("2", "4")), priority=1)
    return model, providers


def record(model: Model, by: str = "default", **more: Any) -> dict[str, Any]:
    """A kept plan, as a gateway keeps it."""
    offers = [
        [offer.pk, offer.provider.slug, offer.upstream_model, "priority", float(offer.priority)]
        for offer in model.offers.order_by("priority")
    ]
    return {"model": model.slug, "seed": 1, "by": by, "taken": 2, "wanted": {"bytes": 400}, "offers": offers, **more}


def usage(tenant: Tenant, model: Model, at: datetime | None = None, **fields: Any) -> Usage:
    """A generation of 1000 tokens in and 500 out that the first provider answered in a second."""
    first = model.offers.order_by("priority")[0]
    row: dict[str, Any] = {
        "model": model.slug,
        "provider": first.provider.slug,
        "upstream_model": first.upstream_model,
        "charge": Decimal("0.002"),
        "provider_cost": Decimal("0.001"),
        "duration_ms": 1000,
        "ttft_ms": 200,
        "plan": record(model),
    }
    return make_usage(tenant, at, **{**row, **fields})


def copies(first: Usage, count: int) -> None:
    """So many further generations like that one."""
    fields = {field.attname: getattr(first, field.attname) for field in Usage._meta.concrete_fields}
    Usage.objects.bulk_create(
        Usage(**{**fields, "id": UUID(int=first.pk.int + number)}) for number in range(1, count + 1)
    )


def compared(tenant: Tenant, **policy: Any) -> Comparison:
    """All traffic of a tenant's project under another policy of it, as nobody was ever measured."""
    now = timezone.now()
    traffic = Traffic(now - timedelta(days=1), now + timedelta(minutes=1), project=tenant.project.pk)
    changed = Policy(level="project", project=tenant.project, **{**EMPTY, **policy})
    *_, comparison = replayed(traffic, routes(changed.row()), Foresight())
    return comparison


def test_the_same_policy_changes_nothing(alice: Tenant) -> None:
    model, (one, _) = shelf()
    usage(alice, model)
    usage(alice, model, charge=Decimal("0.0015"), basis="capped")
    comparison = compared(alice)
    assert comparison.recorded == comparison.predicted
    assert (comparison.replayed, comparison.moved, comparison.untimed) == (2, 0, 0)
    assert comparison.predicted.charge == Decimal("0.0035") and comparison.predicted.providers == {one.slug: 2}


def test_tokens_are_priced_at_the_other_offer(alice: Tenant) -> None:
    model, (one, two) = shelf()
    usage(alice, model)
    usage(alice, model, cached_tokens=100, prompt_tokens=2000, completion_tokens=0)
    comparison = compared(alice, strategy="order", providers=[two.slug])
    # 3,000 tokens in at $2 and 500 out at $4 a million; half of it is the provider's.
    assert (comparison.predicted.charge, comparison.predicted.cost) == (Decimal("0.008"), Decimal("0.004"))
    assert (comparison.recorded.providers, comparison.predicted.providers) == ({one.slug: 2}, {two.slug: 2})
    assert (comparison.moved, comparison.untimed, comparison.predicted.duration.count) == (2, 2, 0)
    assert "2 of unknown time are not in the durations." in comparison.remarks()


def test_what_a_request_asked_for_itself_stays(alice: Tenant) -> None:
    model, (one, two) = shelf()
    asked = {"strategy": "order", "providers": [one.slug], "fallback": False}
    usage(alice, model, plan=record(model, by="request", policy=asked))
    assert compared(alice, strategy="order", providers=[two.slug]).predicted.providers == {one.slug: 1}
    assert compared(alice, only_providers=[two.slug]).predicted.failed == 1


def test_an_offer_that_could_not_be_used_then_is_not_used(alice: Tenant) -> None:
    model, (one, two) = shelf()
    kept = record(model)
    line = kept["offers"].pop()
    for reason in ("resting", "cooling", "parameters", "protocol", "built_in"):
        usage(alice, model, plan={**kept, "out": [[*line[:3], reason, None]]})
    usage(alice, model, plan={**kept, "out": [[*line[:3], "not_allowed", None]]})
    comparison = compared(alice, strategy="order", providers=[two.slug])
    assert comparison.predicted.providers == {one.slug: 5, two.slug: 1}


def test_what_failed_then_fails_again(alice: Tenant) -> None:
    model, (one, two) = shelf()
    row = usage(alice, model, attempts=2, provider=two.slug, upstream_model="two", charge=Decimal("0.004"))
    first = {"provider": one.slug, "upstream_model": "one", "status": "failed", "duration_ms": 300}
    make_attempt(row, id=new_id(), model=model.slug, **first)
    make_attempt(row, id=new_id(), number=2, provider=two.slug, upstream_model="two", model=model.slug)
    same = compared(alice)
    assert same.recorded == same.predicted and same.predicted.providers == {two.slug: 1}
    alone = compared(alice, fallback="false")
    assert (alone.predicted.failed, alone.predicted.charge) == (1, Decimal(0)) and not alone.predicted.providers
    assert ("Would have failed", "0", "1", "+1") in list(alone.lines())


def test_it_says_what_it_left_out(alice: Tenant) -> None:
    model, _ = shelf()
    usage(alice, model)
    usage(alice, model, status="failed")
    usage(alice, model, status="cancelled")
    usage(alice, model, plan=None)
    usage(alice, model, plan={**record(model), "model": "gone/model"})
    usage(alice, model, charge=None)
    comparison = compared(alice)
    assert (comparison.replayed, comparison.looked_at, comparison.unpriced) == (2, 6, 1)
    assert comparison.recorded.charge == Decimal("0.002")
    assert comparison.remarks() == [
        "2 generations, of which 0 would have gone elsewhere.",
        "1 left out: no plan was kept with them.",
        "1 left out: their model is not in the catalog any more.",
        "2 left out: they did not complete.",
        "1 of unknown price are not in the amounts.",
    ]


def test_it_takes_the_traffic_that_was_chosen(alice: Tenant, charlie: Tenant) -> None:
    model, _ = shelf()
    other, _ = shelf()
    now = timezone.now().replace(microsecond=0)
    start, end = now - timedelta(hours=2), now - timedelta(hours=1)
    inside = usage(alice, model, start)
    usage(alice, model, start - timedelta(milliseconds=1))
    usage(alice, model, end)
    second = usage(alice, other, end - timedelta(milliseconds=1))
    third = usage(charlie, model, start)

    def found(**chosen: Any) -> set[Usage]:
        return set(Traffic(start, end, **chosen).rows()) & {inside, second, third}

    assert found() == {inside, second, third}
    assert found(organization=alice.organization.pk) == {inside, second}
    assert found(project=charlie.project.pk) == {third}
    assert found(model=model.slug) == {inside, third}
    assert found(model=model.slug, project=alice.project.pk) == {inside}


def test_a_model_to_fall_back_to_takes_over(alice: Tenant) -> None:
    model, (one, two) = shelf()
    other, (third, _) = shelf()
    row = usage(alice, model, attempts=2, provider=two.slug, upstream_model="two")
    for number, (provider, name) in enumerate(((one, "one"), (two, "two")), 1):
        make_attempt(
            row, id=new_id(), number=number, provider=provider.slug, upstream_model=name, model=model.slug,
            status="failed" if number == 1 else "completed",
        )  # fmt: skip
    comparison = compared(alice, fallback=other.slug, max_attempts=2)
    assert comparison.predicted.providers == {third.slug: 1}


OUTCOMES = st.builds(
    Outcome,
    st.none() | st.sampled_from(["one", "two"]),
    st.none() | st.decimals(0, 1000, places=12),
    st.none() | st.decimals(0, 1000, places=12),
    st.none() | st.integers(0, 10**7),
    st.none() | st.integers(0, 10**6),
)


@given(st.lists(st.tuples(OUTCOMES, OUTCOMES), max_size=20))
def test_a_comparison_adds_up_and_comes_back_from_json(pairs: list[tuple[Outcome, Outcome]]) -> None:
    comparison = Comparison()
    for before, after in pairs:
        comparison.add(before, after, moved=before != after)
    priced = [pair for pair in pairs if None not in [amount for one in pair for amount in (one.charge, one.cost)]]
    assert comparison.recorded.charge == sum((before.charge or 0 for before, _ in priced), Decimal(0))
    assert comparison.predicted.cost == sum((after.cost or 0 for _, after in priced), Decimal(0))
    assert comparison.unpriced == len(pairs) - len(priced)
    for side in (comparison.recorded, comparison.predicted):
        assert side.failed + sum(side.providers.values()) == len(pairs)
        mean, median = side.duration.mean, side.duration.quantile(0.5)
        assert (mean is None) == (median is None) == (side.duration.count == 0)
    assert comparison.recorded.duration.count == comparison.predicted.duration.count
    again = Comparison.from_json(comparison.as_json())
    assert again == comparison and list(again.lines()) == list(comparison.lines())
    assert all(len({len(line) for line in text(comparison) if "  " in line}) == 1 for _ in (0,))
