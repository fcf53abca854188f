"""The auditor and prepaid balances: an error of the smallest unit in any of their rows is named, mended it is gone."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.db import connections

from billing.auditing import audit
from billing.credit import balances
from billing.credit.prepaid import Balance, balance, expire, grant
from billing.models import AuditState, Credit, CreditKind, Lot
from billing.sealing import seal
from tests.stage.backbone import backbone, books, run, settled, wanted
from tests.stage.books import empty, end_credit, findings, forced, fresh_books
from tests.stage.cast import Tenant, make_tenant

pytestmark = pytest.mark.backbone


@pytest.fixture(scope="module")
def fresh(database: None) -> Iterator[None]:
    """A database whose books no other test has touched."""
    with fresh_books():
        yield


@pytest.fixture
def tenant(fresh: None, tmp_path: Path) -> Tenant:
    """Who paid 5 and was given 2 and 1, spent 2.5, was taken 0.5 and has let nothing expire; and has paid before."""
    empty()
    found = make_tenant("alice")

    async def spend(charge: str) -> None:
        async with backbone(tmp_path) as here:
            item = wanted(found.key, fixed=charge, rate="0", cap=1)
            await here.settler.settle(settled(item, await here.admission.hold(item), charge))

    run(spend("40"))  # postpaid
    for kind, amount in (("top_up", "5"), ("bonus", "2"), ("gift", "1")):
        expires = None if kind == "top_up" else datetime.now(UTC) + timedelta(days=1)
        grant(found.organization, CreditKind(kind), Decimal(amount), kind, "finance", expires_at=expires, begin=True)
    # So long ago that nothing which is charged now may have begun before.
    forced("update billing_usage set created_at = created_at - interval '1 minute'")
    forced("update billing_prepaid set since = since - interval '30 seconds'")
    run(spend("2.5"))
    grant(found.organization, CreditKind.ADJUSTMENT, Decimal("-0.5"), "refund", "finance")
    seal()
    assert (audit(), findings()) == (0, [])
    return found


def told() -> int | None:
    """`audit`, on a connection of the calling thread's own."""
    try:
        return audit()
    finally:
        connections.close_all()


def over() -> None:
    """The time of what was given is over, and it expires."""
    end_credit(*Credit.objects.exclude(expires_at=None).values_list("pk", flat=True))
    AuditState.objects.all().delete()  # that was no product's doing
    try:
        assert expire() == 1
    finally:
        connections.close_all()


# A change of the smallest unit, and what is found: the first word of its place.
UNITS = {
    "granted": "update billing_prepaid set granted = granted {} 0.000000000001",
    "used, when the lots were brought up": "update billing_prepaid set used = used {} 0.000000000001",
    "a lot": "update billing_lot set remaining = remaining {} 0.000000000001 where credit_id ="
             " (select min(credit_id) from billing_lot)",
    "the counter": "update billing_counter set used = used {} 0.000000000001 where period = 'balance'",
    "a credit": "alter table billing_credit disable trigger keep_credits; update billing_credit set amount ="
                " amount {} 0.000000000001 where kind = 'gift'; alter table billing_credit enable trigger keep_credits",
    "its entry": "update billing_ledgerentry set amount = amount {} 0.000000000001 where kind = 'bonus'",
}  # fmt: skip


def test_a_unit_in_any_row_of_a_balance_is_named_and_mended_it_is_gone(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    for what, statement in UNITS.items():
        forced(statement.format("+"))
        audit()
        assert {kind for kind, _ in findings()} & {"prepaid", "block"}, what
        assert all(place.endswith(str(tenant.organization.pk)) for kind, place in findings() if kind == "prepaid")
        forced(statement.format("-"))
        audit()
        # What is only ever added to was written to, whatever it says.
        assert {kind for kind, _ in findings()} <= {"touched"}, what
    # What two of them have exchanged no sum tells, but all movements told again do, of the organizations in turn.
    monkeypatch.setattr(balances, "IN_TURN", 1)
    first, _ = Lot.objects.order_by("pk").values_list("pk", flat=True)
    for change in ("0.1", "-0.1"):
        exchange = "update billing_lot set remaining = remaining + case credit_id when %s then %s else %s end"
        forced(exchange, first, Decimal(change), -Decimal(change))
        for _ in range(2):
            audit()
        wrong = [("prepaid", f"each credit of the balance of {tenant.organization.pk}")]
        assert [one for one in findings() if one[0] != "touched"] == (wrong if change == "0.1" else [])


def test_what_happens_to_a_balance_is_no_error(tenant: Tenant, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            item = wanted(tenant.key, fixed="5", rate="0", cap=1)
            held = await here.admission.hold(item)
            await asyncio.to_thread(over)
            assert await asyncio.to_thread(told) == 0
            await here.settler.settle(settled(item, held, "4.75"))

    run(scenario())
    assert audit() == 0  # more is spent than is left: what was held is paid late
    assert (expire(), audit()) == (0, 0)
    assert balance(tenant.organization.pk) == Balance(*[Decimal(0)] * 4)
    kinds = Credit.objects.filter(organization=tenant.organization).order_by("pk").values_list("kind", "amount")
    # Of the 5 that were paid 0.5 was taken; of the 0.5 that the bonus had left 0.25 was held before.
    assert list(kinds)[3:] == [
        ("adjustment", Decimal("-0.5")),
        ("expired", Decimal("-0.5")),
        ("expired", Decimal("0.25")),
    ]
    seal()
    assert audit() == 0
    assert all("its tokens come to" in one for one in books(tenant.organization).problems())
