"""Prepaid balances: spent in order, exactly, and moved once, however many try at the same time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection, connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.backbone.admission import Admission, Held, Refused
from billing.credit.lots import Impossible, Move, remaining
from billing.credit.prepaid import Balance, balance, expire, grant
from billing.models import Counter, Credit, CreditKind, LedgerEntry, Lot, Prepaid
from tests.stage.backbone import (
    admission,
    app_url,
    backbone,
    books,
    database,
    operating,
    owner_url,
    run,
    settled,
    wanted,
)
from tests.stage.books import end_credit
from tests.stage.cast import Tenant, make_tenant

pytestmark = pytest.mark.backbone

UNIT = Decimal("0.000000000001")
HOUR = timedelta(hours=1)


def given_to(tenant: Tenant, amount: str, kind: str = "top_up", reference: str = "", **fields: Any) -> int:
    """A credit of the tenant's, which makes it prepaid."""
    made = Credit.objects.filter(organization=tenant.organization).count()
    fields.setdefault("begin", True)
    return grant(tenant.organization, CreditKind(kind), Decimal(amount), reference or f"r{made}", "finance", **fields)


def left(tenant: Tenant) -> tuple[Any, ...]:
    """What the tenant has left: all, of what was given, of what was paid, and held."""
    found = balance(tenant.organization.pk)
    assert found is not None and found.left == found.given + found.paid
    return tuple(found)


def spent(tenant: Tenant, amount: str) -> None:
    """Has so much been spent, as settlements count it."""
    with database(owner_url()) as owner:
        owner.execute(
            "update billing_counter set used = used + %s where subject = %s and period = 'balance'",
            [Decimal(amount), tenant.organization.pk],
        )


def moved(tenant: Tenant) -> list[tuple[str, Any]]:
    """The movements of its balance: kinds and amounts."""
    return list(Credit.objects.filter(organization=tenant.organization).order_by("pk").values_list("kind", "amount"))


def posted(tenant: Tenant) -> list[tuple[str, str, str, Decimal]]:
    """What the ledger has of its balance: kind, accounts without its id, amount."""
    rows = LedgerEntry.objects.filter(organization=tenant.organization.pk, generation=None).order_by("pk")
    mine = f":{tenant.organization.pk}"
    return [(row.kind, row.debit.replace(mine, ""), row.credit.replace(mine, ""), row.amount) for row in rows]


def replayed(tenant: Tenant) -> dict[int, Any]:
    """What each credit has left, by its movements and the counter alone."""
    rows = Credit.objects.filter(organization=tenant.organization).order_by("pk")
    moves = [
        Move(row.pk, row.kind not in ("top_up", "adjustment"), row.amount, row.expires_at, row.of_id, row.used_before)
        for row in rows
    ]
    used = Counter.objects.get(subject=tenant.organization.pk, period="balance").used
    return remaining(moves, used)


def kept(tenant: Tenant) -> dict[int, Any]:
    """The same, as the database keeps it."""
    with connection.cursor() as cursor:
        cursor.execute("select credit, remaining from billing_lots(%s)", [tenant.organization.pk])
        return {id: amount for id, amount in cursor.fetchall() if amount}


def test_a_balance_is_spent_to_the_unit_and_no_further(alice: Tenant, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="The organization is postpaid"):
        given_to(alice, "1", begin=False)
    assert (balance(alice.organization.pk), moved(alice), posted(alice)) == (None, [], [])
    given_to(alice, "1")

    async def scenario() -> None:
        async with backbone(tmp_path) as here:

            async def refused(**fields: Any) -> Refused:
                with pytest.raises(Refused) as no:
                    await here.admission.hold(wanted(alice.key, **fields))
                return no.value

            item = wanted(alice.key, fixed="1", rate="0", cap=1)
            held = await here.admission.hold(item)
            assert (held.hard, held.room, held.money) == (True, Decimal(1), Decimal(1))
            no = await refused(min_cap=100)
            # Whose it is, that it is no budget of so many dollars, and what there was.
            assert (no.verdict, no.subject, no.limit, no.money) == ("credit", alice.organization.pk, None, Decimal(0))
            await here.settler.settle(settled(item, held, "0.4"))
            no = await refused(fixed="0.600000000001", rate="0", cap=1)
            assert (no.verdict, no.money) == ("credit", Decimal("0.6"))
            item = wanted(alice.key, fixed="0.6", rate="0", cap=1)
            held = await here.admission.hold(item)
            # More than was held: the balance has no more, so it is the rest that nobody pays.
            await here.settler.settle(settled(item, held, "0.7", hard=True))

    run(scenario())
    assert left(alice) == (0, 0, 0, 0)
    sums = books(alice.organization).sums()
    assert (sums.charge, sums.overrun) == (Fraction(1), Fraction(1, 10))
    given_to(alice, "2")
    assert left(alice) == (2, 0, 2, 0)


@pytest.mark.row("B368")
def test_what_was_given_is_spent_before_what_was_paid(alice: Tenant) -> None:
    soon, later = (datetime.now(UTC) + hours * HOUR for hours in (1, 2))
    paid, bonus, gift, paid_soon, second = (
        given_to(alice, amount, kind, expires_at=expires)
        for amount, kind, expires in (
            ("5", "top_up", None), ("2", "bonus", later), ("1", "gift", soon), ("3", "top_up", soon),
            ("4", "top_up", None),
        )
    )  # fmt: skip
    assert left(alice) == (15, 3, 12, 0)
    for amount, parts in (
        ("0.25", {gift: "0.75", bonus: "2", paid_soon: "3", paid: "5", second: "4"}),
        ("1", {bonus: "1.75", paid_soon: "3", paid: "5", second: "4"}),
        ("1.750000000001", {paid_soon: "2.999999999999", paid: "5", second: "4"}),
        ("2.999999999999", {paid: "5", second: "4"}),
        ("5.5", {second: "3.5"}),
        ("3.5", {}),
    ):
        spent(alice, amount)
        assert kept(alice) == replayed(alice) == {id: Decimal(part) for id, part in parts.items()}
    assert left(alice) == (0, 0, 0, 0)


@pytest.mark.row("B371")
def test_the_ledger_tells_every_kind_apart(alice: Tenant) -> None:
    for kind in ("top_up", "bonus", "gift", "referral", "compensation", "adjustment"):
        given_to(alice, "1", kind)
    given_to(alice, "-0.5", "adjustment")
    end_credit(given_to(alice, "2", "bonus", expires_at=datetime.now(UTC) + HOUR))
    assert expire() >= 1
    mine = [(kind, f"prepaid-{kind}", "prepaid", Decimal(1)) for kind, _ in moved(alice)[:6]]
    assert posted(alice) == [
        *mine,
        ("adjustment", "prepaid", "prepaid-adjustment", Decimal("0.5")),
        ("bonus", "prepaid-bonus", "prepaid", Decimal(2)),
        ("expired", "prepaid", "prepaid-expired", Decimal(2)),
    ]
    assert [kind for kind, *_ in mine] == ["top_up", "bonus", "gift", "referral", "compensation", "adjustment"]
    # Adjustments count as what was paid: what is taken is what would be spent last.
    assert left(alice) == (Decimal("5.5"), 4, Decimal("1.5"), 0)
    assert books(alice.organization).problems() == []


def test_a_reference_grants_once_to_each_organization(alice: Tenant) -> None:
    """Of many that race one wins: `tests/contention/test_credits.py`."""
    bob = make_tenant("bob")
    given_to(alice, "7", reference="invoice 12")
    with pytest.raises(ValidationError, match="has a credit with the reference invoice 12 already"):
        given_to(alice, "7", reference="invoice 12")
    given_to(bob, "3", reference="invoice 12")
    assert (left(alice), left(bob)) == ((7, 0, 7, 0), (3, 0, 3, 0))
    assert (moved(alice), len(posted(alice))) == ([("top_up", 7)], 1)


NO_CREDIT: list[tuple[str, str, dict[str, Any], str]] = [
    ("0", "top_up", {}, "and not 0"),
    ("NaN", "top_up", {}, "and not 0"),
    ("1000000000.01", "top_up", {}, "at most 1,000,000,000 dollars"),
    ("0.0000000000001", "top_up", {}, "twelve decimals"),
    ("-1", "bonus", {}, "Only an adjustment takes."),
    ("-1", "adjustment", {"expires_at": datetime(2100, 1, 1, tzinfo=UTC)}, "does not expire"),
    ("1", "top_up", {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "It would have expired already."),
    ("1", "top_up", {"reference": "expired:1"}, "A credit has a kind and a reference of its own."),
    ("1", "expired", {}, "A credit has a kind and a reference of its own."),
    ("-10.000000000001", "adjustment", {}, r"The balance has \$10 that is neither spent nor held."),
]


def test_what_is_no_credit_moves_nothing(alice: Tenant) -> None:
    given_to(alice, "10")
    for amount, kind, fields, says in NO_CREDIT:
        with pytest.raises(ValidationError, match=says):
            given_to(alice, amount, kind, **fields)
    assert (left(alice), moved(alice), len(posted(alice))) == ((10, 0, 10, 0), [("top_up", 10)], 1)


def test_it_is_given_by_a_command(alice: Tenant) -> None:
    slug, out = alice.organization.slug, StringIO()
    for wrong, told in (
        (("nobody", "top_up", "5"), "There is no organization nobody."),
        ((slug, "top_up", "five"), "'five' is no amount."),
        ((slug, "top_up", "5", "--expires=soon"), "'soon' is no moment."),
        ((slug, "top_up", "5"), "The organization is postpaid."),
    ):
        with pytest.raises(CommandError, match=told):
            call_command("give_credit", *wrong, "--reference=r")
    assert moved(alice) == []
    given = ("give_credit", slug, "bonus", "5.50", "--reference=r", "--by=finance", "--expires=2100-01-01", "--prepaid")
    call_command(*given, stdout=out)
    with pytest.raises(CommandError, match="a credit with the reference r already"):
        call_command(*given)
    call_command("give_credit", "--reference=back", "--", slug, "adjustment", "-0.5", stdout=out)
    assert out.getvalue().splitlines() == [f"{slug} has $5.5 left.", f"{slug} has $5 left."]
    credit = Credit.objects.get(organization=alice.organization, reference="r")
    assert (credit.granted_by, credit.expires_at) == ("finance", datetime(2100, 1, 1, tzinfo=UTC))


def test_taking_back_and_holding_race_and_never_take_the_same_dollar(alice: Tenant) -> None:
    given_to(alice, "20")
    taken: list[int] = []

    def take(place: int) -> None:
        with operating() as console:
            try:
                console.execute(
                    "select billing_grant_credit(%s, 'adjustment', -1, null, %s, '', 'finance', false)",
                    [alice.organization.pk, f"back {place}"],
                )
                taken.append(place)
            except psycopg.errors.CheckViolation:
                pass

    async def scenario() -> int:
        async def one(here: Admission) -> Held | None:
            try:
                return await here.hold(wanted(alice.key, fixed="1", rate="0", cap=1))
            except Refused as no:
                assert (no.verdict, no.limit) == ("credit", None)
                return None

        async with admission() as here:
            loop = asyncio.get_running_loop()
            with ThreadPoolExecutor(4) as threads:
                taking = [loop.run_in_executor(threads, take, place) for place in range(10)]
                held = []
                for _ in range(8):
                    held += await asyncio.gather(*(one(here) for _ in range(2)))
                await asyncio.gather(*taking)
        return sum(one is not None for one in held)

    held = run(scenario())
    assert held + len(taken) == 20
    assert left(alice) == (held, 0, held, held)


def test_what_was_held_when_a_credit_expires_is_paid_by_it_and_nothing_else_is(alice: Tenant, tmp_path: Path) -> None:
    credit = given_to(alice, "10", "bonus", expires_at=datetime.now(UTC) + HOUR)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            items = [wanted(alice.key, fixed="4", rate="0", cap=1) for _ in range(2)]
            first, second = [await here.admission.hold(item) for item in items]
            end_credit(credit)
            assert await elsewhere(expire) >= 1
            # Nobody finds room in what the open hold may give back.
            with pytest.raises(Refused):
                await here.admission.hold(wanted(alice.key, fixed=str(UNIT), rate="0", cap=1))
            await here.settler.settle(settled(items[0], first, "3"))
            await elsewhere(expire)
            assert await elsewhere(balance, alice.organization.pk) == Balance(*map(Decimal, (0, 0, 0, 4)))
            await here.settler.settle(settled(items[1], second, "3"))
            with pytest.raises(Refused):
                await here.admission.hold(wanted(alice.key, fixed=str(UNIT), rate="0", cap=1))

    run(scenario())
    assert moved(alice) == [("bonus", 10), ("expired", -10), ("expired", 3)]
    assert left(alice) == (0, 0, 0, 0)
    given_to(alice, "5")  # is not eaten up by what the bonus paid for
    assert moved(alice)[3:] == [("expired", 3), ("top_up", 5)]
    assert (left(alice), kept(alice)) == ((5, 0, 5, 0), replayed(alice))
    assert posted(alice)[1:3] == [
        ("expired", "prepaid", "prepaid-expired", Decimal(10)),
        ("expired", "prepaid-expired", "prepaid", Decimal(3)),
    ]
    expire()
    assert moved(alice)[5:] == []
    # The charge is of no tariff; all else is right.
    assert all("its tokens come to" in one for one in books(alice.organization).problems())


def test_what_a_dead_process_spent_comes_after_the_credit_has_expired_and_takes_nothing(
    alice: Tenant, tmp_path: Path
) -> None:
    credit = given_to(alice, "10", "bonus", expires_at=datetime.now(UTC) + HOUR)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            item = wanted(alice.key, fixed="8", rate="0", cap=1)
            held = await here.admission.hold(item)
            with database(owner_url()) as owner:
                ids = [item.id]
                owner.execute(
                    "select billing_end_holds(%s::uuid[], 'abandoned', 'unknown', 'process_died', null)", [ids]
                )
            end_credit(credit)
            assert await elsewhere(expire) >= 1
            await here.settler.settle(settled(item, held, "3", hard=True))

    run(scenario())
    expire()
    assert (moved(alice), left(alice)) == ([("bonus", 10), ("expired", -10)], (0, 0, 0, 0))
    sums = books(alice.organization).sums()
    assert (sums.charge, sums.overrun) == (Fraction(0), Fraction(3))


def test_expiry_and_holds_race_and_every_dollar_is_spent_or_expired_once(alice: Tenant, tmp_path: Path) -> None:
    credits = [given_to(alice, "10", kind, expires_at=datetime.now(UTC) + HOUR) for kind in ("bonus", "top_up")]

    async def scenario() -> int:
        async with backbone(tmp_path) as here:

            async def one() -> bool:
                item = wanted(alice.key, fixed="1", rate="0", cap=1)
                try:
                    held = await here.admission.hold(item)
                except Refused as no:
                    assert (no.verdict, no.limit) == ("credit", None)
                    return False
                await here.settler.settle(settled(item, held, "0.75"))
                return True

            paid = []
            for credit in [None, *credits, None]:
                if credit:
                    end_credit(credit)
                paid += await asyncio.gather(elsewhere(expire), *(one() for _ in range(8)))
        return sum(done is True for done in paid)

    served = run(scenario())
    expire()
    gone = -sum(amount for kind, amount in moved(alice) if kind == "expired")
    assert served >= 8 and gone + served * Decimal("0.75") == 20
    assert (left(alice), kept(alice), replayed(alice)) == ((0, 0, 0, 0), {}, {})
    assert all("its tokens come to" in one for one in books(alice.organization).problems())


async def elsewhere(work: Callable[..., Any], *args: Any) -> Any:
    """What `work` gives, in a thread that has a connection of its own."""

    def alone() -> Any:
        try:
            return work(*args)
        finally:
            connections.close_all()

    return await asyncio.to_thread(alone)


def test_what_expires_does_so_once_also_late_and_by_many_workers(alice: Tenant) -> None:
    paid = given_to(alice, "5")
    for kind in ("bonus", "gift", "top_up"):
        given_to(alice, "2", kind, expires_at=datetime.now(UTC) + HOUR)
    spent(alice, "2.5")  # of the bonus, and half a dollar of the gift
    dated = Credit.objects.filter(organization=alice.organization).exclude(expires_at=None)
    end_credit(*dated.values_list("pk", flat=True))

    def one(_: int) -> None:
        with database(app_url()) as worker:
            worker.execute("select billing_expire_credit(%s)", [alice.organization.pk])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(one, range(8)))
    assert sorted(moved(alice)[4:]) == [("expired", -2), ("expired", Decimal("-1.5"))]
    assert (left(alice), kept(alice), replayed(alice)) == ((5, 0, 5, 0), {paid: Decimal(5)}, {paid: Decimal(5)})
    assert not Lot.objects.filter(organization=alice.organization.pk).exclude(credit=paid).exists()


MOVES = st.one_of(
    st.tuples(st.just("spend"), st.integers(0, 400)),
    st.tuples(st.sampled_from(["top_up", "bonus", "gift"]), st.integers(1, 300)),
    st.tuples(st.just("take"), st.integers(1, 300)),
    st.tuples(st.just("expire"), st.integers(0, 5)),
    st.tuples(st.just("late"), st.integers(1, 100)),
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(MOVES, st.booleans()), max_size=8))
def test_whatever_happens_to_a_balance_its_movements_tell_what_each_credit_has_left(
    history: list[tuple[tuple[str, int], bool]],
) -> None:
    tenant = make_tenant("alice")
    given_to(tenant, "1")
    given: dict[int, Decimal] = {}
    for (what, size), dated in history:
        amount = size * UNIT * 10**10
        total, *_ = left(tenant)
        credits = list(Credit.objects.filter(organization=tenant.organization, expires_at__isnull=False, of=None))
        if what == "spend":
            spent(tenant, str(min(amount, total)))
        elif what == "take":
            try:
                given_to(tenant, str(-amount), "adjustment")
                assert amount <= total
            except ValidationError:
                assert amount > total
        elif what in ("expire", "late"):
            if credits:
                end_credit(credits[size % len(credits)].pk)
            before = left(tenant)[0]
            expire()
            lost = before - left(tenant)[0]
            if what == "late":  # what had been held before comes now
                spent(tenant, str(min(amount, lost)))
                expire()
        else:
            expires = datetime.now(UTC) + (1 + size % 3) * HOUR if dated else None
            given_to(tenant, str(amount), what, expires_at=expires)
        assert kept(tenant) == replayed(tenant)
        given = dict(Credit.objects.filter(organization=tenant.organization).values_list("pk", "amount"))
        assert all(0 < part <= given[id] for id, part in kept(tenant).items())
        prepaid = Prepaid.objects.get(pk=tenant.organization.pk)
        counter = Counter.objects.get(subject=tenant.organization.pk, period="balance")
        assert sum(kept(tenant).values()) == prepaid.granted - counter.used == left(tenant)[0]
    assert all(row.used_before >= 0 for row in Credit.objects.filter(organization=tenant.organization))


@pytest.mark.parametrize(
    ("moves", "used"),
    [
        (
            [Move(1, False, Decimal(5), None, None, Decimal(0)), Move(2, False, Decimal(-6), None, None, Decimal(0))],
            "0",
        ),
        ([Move(1, True, Decimal(5), None, None, Decimal(0)), Move(2, False, Decimal(-4), None, 1, Decimal(0))], "4"),
        ([Move(1, True, Decimal(5), None, None, Decimal(0)), Move(2, False, Decimal(1), None, 1, Decimal(5))], "4"),
        ([Move(1, True, Decimal(5), None, None, Decimal(0))], "-1"),
    ],
)
def test_movements_that_cannot_be_are_told(moves: list[Move], used: str) -> None:
    with pytest.raises(Impossible):
        remaining(moves, Decimal(used))
