"""Budgets of a model, of an end user, and of each end user: each counts what is its own, exactly, at every commit."""

import asyncio
import random
from collections import Counter as Tally
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.utils import timezone

from accounts.models import ApiKey
from billing.backbone.admission import Held, HoldItem, Refused
from billing.models import EACH, Attempt, Budget, Counter, Hold, Usage
from billing.tasks import prune
from tests.console.browser import make_usage
from tests.stage.backbone import admission, backbone, books, database, owner_url, run, settled, wanted
from tests.stage.cast import Tenant, make_key

pytestmark = pytest.mark.backbone

MOST = 100_000  # end users that an organization may have counted in a window


def budget(tenant: Tenant, amount: str, period: str = "total", **fields: Any) -> Budget:
    """A hard budget of the organization, or of the given project or key."""
    return Budget.objects.create(organization=tenant.organization, period=period, amount=Decimal(amount), **fields)


def asked(key: ApiKey, model: str = "test/model", user: str = "", **changes: Any) -> HoldItem:
    """A wish for a hold of $1, not less, to a model and for an end user."""
    item = wanted(key, model=model, **{"min_cap": 100, **changes})
    item.facts["end_user"] = user
    return item


def hold(*items: HoldItem) -> list[Held | Refused]:
    """What becomes of wishes that come at once, alone; who is refused leaves nothing behind."""

    async def scenario() -> list[Any]:
        async with admission() as door:
            return list(await asyncio.gather(*map(door.hold, items), return_exceptions=True))

    answers: list[Held | Refused] = run(scenario())
    for item, answer in zip(items, answers, strict=True):
        assert isinstance(answer, Held | Refused), answer
        if isinstance(answer, Refused):
            assert not Hold.objects.filter(id=item.id).exists()
            assert not Attempt.objects.filter(generation=item.id).exists()
    return answers


def held(item: HoldItem) -> Held:
    """What one wish is given."""
    (answer,) = hold(item)
    assert isinstance(answer, Held), vars(answer)
    return answer


def refused(item: HoldItem) -> tuple[str, Any, Decimal | None, str, str | None]:
    """Of a refusal: verdict, whose, of how much, of which model and end user."""
    (answer,) = hold(item)
    assert isinstance(answer, Refused), answer
    return answer.verdict, answer.subject, answer.limit, answer.model, answer.end_user


def counters(tenant: Tenant) -> dict[tuple[str, str | None], tuple[Any, Any]]:
    """(used, held) of money by model and end user."""
    found = Counter.objects.filter(organization=tenant.organization.pk, measure="money")
    return {(c.model, c.end_user): (c.used, c.held) for c in found}


def users(tenant: Tenant) -> list[int]:
    """How many counters of end users there are, by what is noted in each window."""
    found = Counter.objects.filter(organization=tenant.organization.pk, measure="users")
    return [int(counter.used) for counter in found]


def miscounted(tenant: Tenant) -> list[str]:
    """What the verifier finds of the counters; flat charges are no tariff's."""
    return [found for found in books(tenant.organization).problems() if "counter" in found or "hold" in found]


# --- which calls each counts ----------------------------------------------------------------------------------------


def test_a_models_budget_counts_its_calls_alone(alice: Tenant, charlie: Tenant) -> None:
    budget(alice, "1", model="test/dear", project=alice.project, key=alice.key)
    first, second = held(asked(alice.key, "test/dear")), held(asked(alice.key, "test/plain"))
    assert (first.money, first.hard, first.room) == (Decimal(1), True, Decimal(1))
    assert (second.hard, second.room, second.counters) == (False, None, [])
    assert refused(asked(alice.key, "test/dear")) == ("credit", alice.key.pk, Decimal(1), "test/dear", None)
    held(asked(charlie.key, "test/dear"))
    assert counters(alice) == {("test/dear", None): (0, 1)}
    assert counters(charlie) == {}


def test_each_end_user_has_the_amount_to_itself(alice: Tenant, charlie: Tenant) -> None:
    """Also who is called what stands for each of them; requests without a name are one user's."""
    for tenant in (alice, charlie):
        budget(tenant, "1", "month", end_user=EACH)
    names = ["ann", "ben", "", EACH]
    for name in names:
        for tenant in (alice, charlie):
            held(asked(tenant.key, user=name))
        assert refused(asked(alice.key, user=name)) == ("credit", alice.organization.pk, Decimal(1), "", name)
    assert counters(alice) == counters(charlie) == {("", name): (0, 1) for name in names}
    assert users(alice) == users(charlie) == [4]


def test_who_has_a_budget_by_name_has_that_one(alice: Tenant) -> None:
    budget(alice, "1", end_user=EACH)
    budget(alice, "2", end_user="vip")
    budget(alice, "5")
    budget(alice, "3", model="test/model", end_user=EACH, project=alice.project)
    for _ in range(2):
        held(asked(alice.key, user="vip"))
    held(asked(alice.key, user="ann"))
    whose = alice.organization.pk
    assert refused(asked(alice.key, user="vip")) == ("credit", whose, Decimal(2), "", "vip")
    assert refused(asked(alice.key, user="ann")) == ("credit", whose, Decimal(1), "", "ann")
    held(asked(alice.key, user="ben"))
    held(asked(alice.key, "test/other", user="cid"))
    assert refused(asked(alice.key, user="dot")) == ("credit", whose, Decimal(5), "", None)  # the organization's own
    assert counters(alice)[("test/model", "vip")] == (0, 2)
    Budget.objects.filter(organization=alice.organization, end_user="").delete()
    Budget.objects.filter(organization=alice.organization, end_user="vip").delete()
    # What was counted by name counts on for each.
    assert refused(asked(alice.key, user="vip")) == ("credit", whose, Decimal(1), "", "vip")


def test_a_soft_one_refuses_nothing_and_counts(alice: Tenant) -> None:
    budget(alice, "1", end_user=EACH, hard=False)
    for _ in range(2):
        assert held(asked(alice.key, user="ann")).hard is False
    assert counters(alice) == {("", "ann"): (0, 2)}


# --- at once --------------------------------------------------------------------------------------------------------

WATCH = """
create table seen_part (organization uuid, spoken_for numeric, amount numeric);
grant insert on seen_part to meterline_app;
create function see_part() returns trigger language plpgsql as $$
begin
    insert into seen_part select new.organization, new.used + new.held, b.amount from billing_budget_of(new.id) b
     where new.measure = 'money' and b.hard;
    return null;
end $$;
-- Deferred: what is seen is what is committed.
create constraint trigger see_part after insert or update on billing_counter
    deferrable initially deferred for each row execute function see_part();
"""


@pytest.fixture
def states() -> Iterator[Any]:
    """Every committed state of a budget's counter, recorded by the database."""
    with database(owner_url()) as connection:
        connection.execute(WATCH)
        try:
            yield lambda tenant: connection.execute(
                "select spoken_for, amount from seen_part where organization = %s", [tenant.organization.pk]
            ).fetchall()
        finally:
            connection.execute("drop trigger see_part on billing_counter; drop function see_part; drop table seen_part")


def test_at_once_each_gets_what_is_its_own_and_no_more_at_any_commit(
    alice: Tenant, tmp_path: Path, states: Any
) -> None:
    """Two keys, four end users, two models, three doors of their own: 240 wishes at once, all of them new."""
    second, _ = make_key(alice.project, name="second")
    budget(alice, "5", "day", end_user=EACH)
    budget(alice, "2", "week", end_user="ann")
    budget(alice, "7", "month", model="test/a", project=alice.project)
    budget(alice, "1", "total", model="test/b", end_user=EACH, project=alice.project, key=second)
    items = [
        asked(key, model, user)
        for key in (alice.key, second)
        for model in ("test/a", "test/b")
        for user in ("ann", "ben", "cid", "")
        for _ in range(15)
    ]
    random.Random(7).shuffle(items)

    async def scenario() -> list[Any]:
        async with (
            backbone(tmp_path / "1") as a, backbone(tmp_path / "2") as b, backbone(tmp_path / "3") as c
        ):  # fmt: skip
            doors = [here.admission for here in (a, b, c)]

            async def one(place: int, item: HoldItem) -> Any:
                try:
                    given = await doors[place % 3].hold(item)
                except Refused as no:
                    return no
                here = (a, b, c)[place % 3]
                await here.settler.settle(settled(item, given, "1"))
                return given

            return await asyncio.gather(*(one(*each) for each in enumerate(items)))

    answers = run(scenario())
    given = [item for item, answer in zip(items, answers, strict=True) if isinstance(answer, Held)]
    by_user = Tally(item.facts["end_user"] for item in given)
    by_model = Tally(item.model for item in given)
    of_second = Tally(item.facts["end_user"] for item in given if (item.key, item.model) == (second.pk, "test/b"))
    assert by_user == {"ann": 2, "ben": 5, "cid": 5, "": 5}
    assert by_model["test/a"] <= 7
    assert max(of_second.values()) <= 1
    assert all(spoken_for <= amount for spoken_for, amount in states(alice))
    assert len(states(alice)) > 10
    found = Counter.objects.filter(organization=alice.organization.pk, period="day", measure="money")
    assert {c.end_user: int(c.used) for c in found if not c.held} == by_user
    assert miscounted(alice) == []


@pytest.mark.parametrize(("amount", "answered"), [("1.9", 1), ("0.9", 0)])
def test_of_first_requests_of_a_new_end_user_no_more_are_answered_than_fit(
    alice: Tenant, amount: str, answered: int
) -> None:
    budget(alice, amount, end_user=EACH)
    answers = hold(*(asked(alice.key, user="u-new") for _ in range(8)))
    assert sum(isinstance(answer, Held) for answer in answers) == answered
    assert counters(alice) == {("", "u-new"): (0, answered)}


# --- more models than one -------------------------------------------------------------------------------------------


def either(key: ApiKey, user: str = "", second: str = "test/b", **changes: Any) -> HoldItem:
    """A wish that goes to test/a, for $1, and may go to test/b, for 50 cents."""
    offers: list[tuple[Decimal | None, Decimal | None, int]] = [
        (Decimal(0), Decimal("0.01"), 100),
        (Decimal(0), Decimal("0.005"), 100),
    ]
    models = ["test/a", second, "test/a", second]
    return asked(key, "test/a", user, **{"money": Decimal(1), "offers": offers, "models": models, **changes})


@pytest.mark.parametrize("answered", ["test/a", "test/b"])
def test_what_may_go_to_two_models_holds_on_both_and_is_paid_from_the_one_that_answers(
    alice: Tenant, tmp_path: Path, answered: str
) -> None:
    budget(alice, "3", model="test/a")
    budget(alice, "2", model="test/b", end_user=EACH)
    budget(alice, "9")
    item = either(alice.key, "ann")

    async def scenario() -> Held:
        async with backbone(tmp_path) as here:
            given = await here.admission.hold(item)
            held_on = await here.connections.call(
                "select model, held from billing_counter where organization = %s and measure = 'money'",
                [alice.organization.pk],
            )
            assert sorted(held_on) == [("", 1), ("test/a", 1), ("test/b", 1)]
            await here.settler.settle(settled(item, given, "0.3", model=answered, counters=given.counted(answered)))
            return given

    given = run(scenario())
    assert (given.money, given.room, len(given.counters)) == (1, 3, 1)
    spent = {("", None): Decimal("0.3"), ("test/a", None): Decimal(0), ("test/b", "ann"): Decimal(0)}
    spent[(answered, "ann" if answered == "test/b" else None)] = Decimal("0.3")
    assert counters(alice) == {part: (used, 0) for part, used in spent.items()}
    assert miscounted(alice) == []


def test_whichever_answers_no_models_budget_is_passed_at_any_commit(alice: Tenant, tmp_path: Path, states: Any) -> None:
    """Each of 120 calls may go to two models, answers by chance, and now and then takes more than was held."""
    budget(alice, "9", model="test/a")
    budget(alice, "5.5", model="test/b", project=alice.project)
    budget(alice, "3", model="test/b", end_user=EACH)
    chance = random.Random(11)
    plays = [(user, chance.choice(["test/a", "test/b"]), Decimal(chance.randrange(1, 250)) / 100)
             for user in ("ann", "ben", "") for _ in range(40)]  # fmt: skip
    chance.shuffle(plays)
    charged = Tally[str]()

    async def scenario() -> None:
        async with backbone(tmp_path / "1") as a, backbone(tmp_path / "2") as b:

            async def one(place: int, user: str, model: str, charge: Decimal) -> None:
                here, item = (a, b)[place % 2], either(alice.key, user)
                try:
                    given = await here.admission.hold(item)
                except Refused:
                    return
                if given.by_model is not None and given.by_model[model] is None:
                    model = "test/a"
                counted = given.counted(model)
                await here.settler.settle(settled(item, given, charge, model=model, counters=counted, hard=given.hard))
                charged[model] += 1

            await asyncio.gather(*(one(place, *play) for place, play in enumerate(plays)))

    run(scenario())
    assert all(spoken_for <= amount for spoken_for, amount in states(alice))
    assert len(states(alice)) > 10
    assert min(charged["test/a"], charged["test/b"]) >= 1
    assert miscounted(alice) == []


def test_a_fallback_whose_own_budget_has_less_than_is_held_may_not_answer(alice: Tenant) -> None:
    budget(alice, "0.99", model="test/b")
    given = held(either(alice.key))
    assert (given.money, given.output_cap, given.hard) == (Decimal(1), 100, False)
    assert (given.by_model, given.counters) == ({"test/b": None}, [])
    assert counters(alice) == {("test/b", None): (0, 0)}
    # The dear one may be the fallback's; without it less is held.
    item = either(alice.key, offers=[(Decimal(0), Decimal("0.005"), 100), (Decimal(0), Decimal("0.01"), 100)])
    assert held(item).money == Decimal("0.5")


def test_a_first_model_whose_own_budget_is_spent_is_refused_by_name(alice: Tenant) -> None:
    budget(alice, "0.5", model="test/a")
    budget(alice, "1", model="test/b")
    (no,) = hold(either(alice.key))
    assert isinstance(no, Refused)
    assert (no.verdict, no.model, no.end_user, no.money) == ("credit", "test/a", None, Decimal("0.5"))
    assert counters(alice) == {("test/a", None): (0, 0), ("test/b", None): (0, 0)}


def test_an_unknown_price_is_held_of_no_models_budget(alice: Tenant) -> None:
    budget(alice, "5", model="test/a")
    item = asked(alice.key, "test/a", money=None, offers=[(None, None, 100)])
    assert refused(item)[:4] == ("unpriced", alice.organization.pk, Decimal(5), "test/a")
    item = asked(alice.key, "test/b", money=None, offers=[(None, None, 100), (Decimal(0), Decimal("0.01"), 100)],
                 models=["test/b", "test/a"])  # fmt: skip
    assert held(item).by_model == {"test/a": None}


def test_a_batch_that_is_sent_again_is_told_the_same_of_each_model(alice: Tenant) -> None:
    budget(alice, "1", model="test/a")
    budget(alice, "1", model="test/b")
    budget(alice, "0", model="test/c")
    items = [either(alice.key), either(alice.key), either(alice.key, second="test/c")]
    items[0].models = items[1].models = ["test/a", "test/b", "test/c"]

    async def scenario() -> list[list[Any]]:
        async with admission() as door:
            call = "select id, verdict, output_cap, money, counters from billing_admit(%s, %s::jsonb)"
            told = []
            for batch in (items[:1], items[:2]):
                text = msgspec.json.encode(batch).decode()
                told.append(await door._connections.call(call, [door.lease.id, text]))
            return told

    first, again = run(scenario())
    assert again[-1] == first[0]
    assert set(first[0][4]["models"]) == {"test/a", "test/b", "test/c"}
    assert first[0][4]["models"]["test/c"] is None
    assert [row[1] for row in again] == ["credit", "admitted"]


def test_a_charge_above_the_hold_takes_what_the_end_user_has_left(alice: Tenant, tmp_path: Path) -> None:
    budget(alice, "1.5", end_user=EACH)
    budget(alice, "100")
    item = asked(alice.key, user="ann")

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            given = await here.admission.hold(item)
            await here.settler.settle(settled(item, given, "4", hard=given.hard))

    run(scenario())
    usage = Usage.objects.get(id=item.id)
    assert (usage.charge, usage.overrun, usage.basis) == (Decimal("1.5"), Decimal("2.5"), "capped")
    assert counters(alice) == {("", "ann"): (Decimal("1.5"), 0), ("", None): (Decimal("1.5"), 0)}


# --- beginning and end ----------------------------------------------------------------------------------------------


def test_a_new_one_counts_what_was_spent_before_it_was_made(alice: Tenant, charlie: Tenant) -> None:
    now = timezone.now()
    for age, user, model, charge in (
        (3, "ann", "test/a", "0.25"), (200, "ann", "test/b", "0.5"), (200, "ben", "test/a", "1"),
        (3, "", "test/a", "2"), (3, "cid", "test/a", "4"),
    ):  # fmt: skip
        for tenant in (alice, charlie):
            at = now - timedelta(minutes=age)
            make_usage(tenant, at, charge=Decimal(charge), end_user=user, model=model)
    whole = {"organization": alice.organization, "project": alice.project}
    for fields in (
        {"end_user": EACH},
        {"model": "test/a"},
        {"model": "test/a", "end_user": EACH, "key": alice.key},
        {"model": "test/b", "end_user": "ann"},
        {"model": "test/b", "end_user": "nobody"},
    ):
        Budget.objects.create(amount=Decimal(9), period="total", **{**whole, **fields})
    assert {part: used for part, (used, _) in counters(alice).items()} == {
        ("", "ann"): Decimal("0.75"), ("", "ben"): 1, ("", ""): 2, ("", "cid"): 4,
        ("test/a", None): Decimal("7.25"),
        ("test/a", "ann"): Decimal("0.25"), ("test/a", "ben"): 1, ("test/a", ""): 2, ("test/a", "cid"): 4,
        ("test/b", "ann"): Decimal("0.5"), ("test/b", "nobody"): 0,
    }  # fmt: skip
    assert users(alice) == [10]
    # Made anew it has missed nothing, nor is anybody counted twice.
    Budget.objects.filter(organization=alice.organization, model="", end_user=EACH).delete()
    make_usage(alice, charge=Decimal(1), end_user="ann")
    Budget.objects.create(amount=Decimal(9), period="total", end_user=EACH, **whole)
    assert counters(alice)[("", "ann")] == (Decimal("1.75"), 0)
    assert users(alice) == [10]
    assert counters(charlie) == {}


def test_past_the_most_end_users_a_new_one_is_refused_and_the_others_go_on(alice: Tenant) -> None:
    budget(alice, "9", "month", end_user=EACH, project=alice.project)
    held(asked(alice.key, user="ann"))
    Counter.objects.filter(organization=alice.organization.pk, measure="users").update(used=MOST - 1)
    first, second = hold(asked(alice.key, user="ben"), asked(alice.key, user="cid"))
    assert {type(first), type(second)} == {Held, Refused}
    no = first if isinstance(first, Refused) else second
    assert isinstance(no, Refused)
    assert (no.verdict, no.subject, no.limit, no.model) == ("users", alice.project.pk, Decimal(MOST), "")
    assert no.retry_after is not None and 0 < no.retry_after <= 31 * 86_400
    assert no.end_user in ("ben", "cid")
    held(asked(alice.key, user="ann"))
    assert users(alice) == [MOST]
    Budget.objects.filter(organization=alice.organization).update(hard=False)
    assert held(asked(alice.key, user="dot")).counters == []  # it refuses nothing, and has no counter for him
    assert len(counters(alice)) == 2


def test_windows_of_end_users_are_forgotten_a_day_after_their_end(alice: Tenant) -> None:
    for period in ("day", "week", "month", "total"):
        budget(alice, "9", period, end_user=EACH)
    budget(alice, "9", "day", model="test/model")
    held(asked(alice.key, user="ann"))
    mine = Counter.objects.filter(organization=alice.organization.pk)
    now = timezone.now()
    for period, days in (("day", 2.5), ("week", 7.5), ("month", 33.5), ("total", 9000)):
        mine.filter(period=period).update(period_start=now - timedelta(days=days))
    prune()
    assert mine.filter(measure="money").count() == 5  # held of them
    mine.update(held=0)
    prune()
    assert sorted(mine.values_list("period", "measure", "model")) == [
        ("day", "money", "test/model"),
        ("total", "money", ""),
        ("total", "users", ""),
        ("week", "money", ""),
        ("week", "users", ""),
    ]
