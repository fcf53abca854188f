"""Holds of requests that several offers may answer: what a hard budget or a limit of tokens makes of each."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from django.db import connection

from billing.backbone.admission import Held, HoldItem, Refused
from billing.ids import new_id
from billing.models import Attempt, Budget, Counter, Hold, Limit
from tests.stage.backbone import admission, app_url, database, run, wanted, worst
from tests.stage.cast import Tenant
from tests.stage.product import until

pytestmark = pytest.mark.backbone

FREE = ("0", "0", 100)


def asked(item: HoldItem) -> Held | Refused:
    """What becomes of a wish."""

    async def scenario() -> Held | Refused:
        async with admission() as door:
            try:
                return await door.hold(item)
            except Refused as refused:
                return refused

    found: Held | Refused = run(scenario())
    assert Hold.objects.filter(id=item.id).exists() is isinstance(found, Held)
    assert Attempt.objects.filter(generation=item.id).exists() is isinstance(found, Held)
    return found


def offers(tenant: Tenant, *each: tuple[str | None, str | None, int], **changes: Any) -> HoldItem:
    """A wish that each of these may answer: (dollars whatever is written, dollars an output token, tokens at most)."""
    return wanted(tenant.key, **{**worst(each), **changes})


def budget(tenant: Tenant, amount: str, used: str = "0") -> None:
    """A hard budget, some of it spent."""
    rule = Budget.objects.create(organization=tenant.organization, period="total", amount=Decimal(amount))
    if Decimal(used):
        assert isinstance(asked(offers(tenant, FREE)), Held)  # makes the counter
        Counter.objects.filter(subject=rule.subject).update(used=Decimal(used))


def limit(tenant: Tenant, value: int) -> None:
    """So many tokens a minute."""
    Limit.objects.create(organization=tenant.organization, measure="tokens", value=value)


def minute_has_room() -> bool:
    """Whether this minute on the database's clock is not over soon: its limits begin anew with the next."""
    with connection.cursor() as cursor:
        cursor.execute("select extract(second from clock_timestamp()) < 45")
        return bool(cursor.fetchone()[0])


def held_tokens(tenant: Tenant) -> int:
    """What is held of a minute's tokens."""
    return int(Counter.objects.get(organization=tenant.organization.pk, measure="tokens").held)


def given(found: Held | Refused) -> tuple[int, Decimal | None]:
    assert isinstance(found, Held), found.verdict
    return found.output_cap, found.money


def refused(found: Held | Refused) -> tuple[str, Decimal | None, int | None]:
    assert isinstance(found, Refused), found
    return found.verdict, found.money, found.retry_after


def test_where_the_money_suffices_it_is_held_for_the_dearest(alice: Tenant) -> None:
    budget(alice, "100")
    assert given(asked(offers(alice, FREE, ("0.5", "0.01", 100), ("0", "0.02", 50)))) == (100, Decimal("1.5"))


def test_no_offer_is_held_for_that_the_money_does_not_cover(alice: Tenant) -> None:
    budget(alice, "0.5")
    found = asked(offers(alice, ("0.1", "0.01", 100), ("0.6", "0", 100), ("0", "1", 100), (None, None, 100)))
    assert given(found) == (40, Decimal("0.5"))


def test_an_offer_is_held_for_with_the_least_cap_or_its_own_if_that_is_less(alice: Tenant) -> None:
    budget(alice, "0.5")
    assert given(asked(offers(alice, FREE, ("0", "0.05", 10), ("0", "0.01", 100), min_cap=51))) == (
        100,
        Decimal("0.5"),
    )
    assert given(asked(offers(alice, FREE, ("0", "0.05", 10), min_cap=51))) == (100, Decimal(0))


@pytest.mark.parametrize(("amount", "used"), [("0", "0"), ("1", "1"), ("1", "1.25")])
def test_what_is_free_is_held_whole_when_nothing_is_left(alice: Tenant, amount: str, used: str) -> None:
    budget(alice, amount, used)
    assert given(asked(offers(alice, FREE))) == (100, Decimal(0))
    assert given(asked(offers(alice, FREE, ("0.01", "0.01", 100)))) == (100, Decimal(0))
    assert refused(asked(offers(alice, ("0.01", "0.01", 100)))) == ("credit", Decimal(0), None)


def test_the_first_is_refused_with_what_there_is_for_the_others(alice: Tenant) -> None:
    budget(alice, "0.5")
    assert refused(asked(offers(alice, ("0.6", "0", 100), FREE))) == ("credit", Decimal("0.5"), None)
    assert refused(asked(offers(alice, (None, None, 100), FREE))) == ("unpriced", Decimal("0.5"), None)
    assert refused(asked(offers(alice, ("0", None, 100), FREE))) == ("unpriced", Decimal("0.5"), None)


def test_a_soft_budget_leaves_all_offers_as_they_are(alice: Tenant) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.5"), hard=False)
    assert given(asked(offers(alice, ("0", "1", 100), FREE))) == (100, Decimal(100))
    assert given(asked(offers(alice, (None, None, 100), FREE))) == (100, None)


def test_a_cap_that_a_limit_of_tokens_can_never_let_through_is_lowered(alice: Tenant) -> None:
    until(minute_has_room, 20)
    limit(alice, 4000)
    budget(alice, "100")
    found = asked(offers(alice, ("0", "0.01", 4096), tokens=1000, least=250))
    assert given(found) == (3750, Decimal("37.5"))
    assert held_tokens(alice) == 4750  # more than a minute has, perhaps: it has the minute for itself
    assert refused(asked(offers(alice, ("0", "0.01", 1))))[0] == "tokens"


def test_copies_share_what_a_limit_of_tokens_lets_through(alice: Tenant) -> None:
    limit(alice, 4000)
    assert given(asked(offers(alice, ("0", "0.03", 4096), least=1000, copies=3)))[0] == 1000


@pytest.mark.parametrize(("least", "fits"), [(3990, True), (3991, False), (9000, False)])
def test_what_never_fits_a_limit_of_tokens_is_told_apart(alice: Tenant, least: int, fits: bool) -> None:
    limit(alice, 4000)
    found = asked(offers(alice, ("0", "0.01", 4096), tokens=least, least=least, min_cap=10))
    if fits:
        assert given(found)[0] == 10
    else:
        assert refused(found) == ("never", None, None)
        assert isinstance(found, Refused)
        assert (found.subject, found.limit) == (alice.organization.pk, Decimal(4000))
        assert Counter.objects.get(organization=alice.organization.pk, measure="tokens").held == 0


def test_tokens_are_held_as_they_are_expected_and_money_at_its_worst(alice: Tenant) -> None:
    until(minute_has_room, 20)
    limit(alice, 1000)
    budget(alice, "100")
    found = asked(offers(alice, ("0.5", "0.01", 800), tokens=50, least=50, answer=100, copies=2))
    assert given(found) == (475, Decimal("5.25"))
    assert held_tokens(alice) == 250
    assert refused(asked(offers(alice, ("0", "0", 800), tokens=50, least=50, answer=800)))[0] == "tokens"
    assert given(asked(offers(alice, ("0", "0", 70), tokens=50, least=50, answer=800)))[0] == 70
    assert held_tokens(alice) == 370  # an answer is no longer than its cap


def test_a_wish_of_the_last_release_is_understood(alice: Tenant) -> None:
    """While gateways are replaced one by one: one price for all offers, and tokens that never fit are refused."""
    budget(alice, "1.5")
    limit(alice, 300)
    older = [
        {name: value for name, value in msgspec.to_builtins(item).items() if name not in new}
        | {"fixed": "0.5", "rate": "0.01", "cap": cap}
        for new in ({"money", "offers", "least", "answer"},)
        for item, cap in ((wanted(alice.key), 200), (wanted(alice.key), 301))
    ]
    lease = new_id()
    with database(app_url()) as connection:
        connection.execute("select billing_heartbeat(%s, 'here', 1, '8 seconds')", [lease])
        rows = connection.execute(
            "select verdict, output_cap, money from billing_admit(%s, %s::jsonb)",
            [lease, msgspec.json.encode(older).decode()],
        ).fetchall()
    assert rows == [("admitted", 100, Decimal("1.5")), ("credit", None, 0)]
    assert held_tokens(alice) == 100
