"""Usage priced anew: exact, seen before it is posted, posted once, and nothing of it is in a usage row."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Sum

from billing import repricing, tasks
from billing.auditing import audit
from billing.models import AccountDay, Budget, LedgerEntry, Repricing, Tariff, TariffVersion, Terms, Usage
from billing.models import Counter as Window
from billing.repricing import Outcome, apply, count
from billing.sealing import seal, sum_closed
from gateway.celery import app as product
from tests.console.browser import make_usage
from tests.stage.backbone import app_url, books, database, owner_url
from tests.stage.books import empty, findings, forced, fresh_books, make_whole
from tests.stage.cast import Tenant, make_tenant
from tests.stage.shelf import LONG_AGO, add_version, make_tariff

pytestmark = pytest.mark.backbone

DAY = timedelta(days=1)
NOW = datetime.now(UTC)
THIS = NOW.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
LAST = THIS - timedelta(days=10)  # a moment of the month that is over
MONTH = date(LAST.year, LAST.month, 1)
END = THIS.date()
UNIT = Decimal("0.000000000001")
USED = {"input": 1000, "output": 500}
RACED = int(os.environ.get("RACED_REPRICINGS", "6"))


@pytest.fixture(scope="module")
def fresh(database: None) -> Iterator[None]:
    """A database whose books no other test has touched."""
    with fresh_books():
        yield


@pytest.fixture
def tariff(fresh: None) -> Tariff:
    """$0.4 / $0.44 a million tokens in, $1.6 / $1.76 out; what `make_usage` makes is by it."""
    empty()
    return make_tariff(input=("0.4", "0.44"), output=("1.6", "1.76"))


def used(tenant: Tenant, tariff: Tariff, at: datetime = LAST, **fields: Any) -> Usage:
    """A settled generation of 1000 tokens in and 500 out, at the first version's prices."""
    first = tariff.versions.get(effective_from=LONG_AGO)
    made = {"tariff_version": first.pk, "provider_cost": Decimal("0.0012"), **fields}
    row = make_usage(tenant, at, **made)
    forced("select billing_close(array[%s::uuid])", row.pk)
    return row


def dearer(tariff: Tariff, **rates: Any) -> TariffVersion:
    """A further version: by default a cent a thousand tokens in, for cost and charge alike, and as before out."""
    made = {"input": ("0.4", "10"), "output": ("1.6", "1.76"), **rates}
    return add_version(tariff, NOW - timedelta(hours=TariffVersion.objects.count() + 1), **made)


def counted(version: TariffVersion, first: date = MONTH, until: date = END) -> Repricing:
    """A run that is counted."""
    run = Repricing.objects.create(version=version, first=first, until=until, asked_by="finance")
    while count(run.pk):
        pass
    run.refresh_from_db()
    assert run.state == "counted"
    return run


def changes(run: Repricing) -> Any:
    """By organization, what it comes to."""
    found: Counter[Any] = Counter()
    for one in run.sums.all():
        found[one.organization, "charge"] += one.charge_change  # type: ignore[assignment]
        found[one.organization, "cost"] += one.cost_change  # type: ignore[assignment]
    organizations = sorted({organization for organization, _ in found})
    return [(one, Decimal(found[one, "charge"]), Decimal(found[one, "cost"])) for one in organizations]


def balances() -> dict[str, Decimal]:
    """What stands on each account, from the ledger itself."""
    with database(owner_url()) as owner:
        rows = owner.execute(
            "select account, sum(amount) from (select debit as account, amount from billing_ledgerentry union all"
            " select credit, -amount from billing_ledgerentry) e group by 1 having sum(amount) <> 0"
        ).fetchall()
    return dict(rows)


def posted() -> list[tuple[Any, ...]]:
    """The adjustments, in the order of writing."""
    rows = LedgerEntry.objects.filter(kind="reprice").order_by("pk")
    return list(rows.values_list("debit", "credit", "amount", "created_at", "late_of", "generation"))


def test_the_difference_is_seen_first_and_posted_once_an_organization_and_month(tariff: Tariff) -> None:
    alice, bob = make_tenant("alice"), make_tenant("bob")
    for tenant, at in ((alice, LAST), (alice, LAST + DAY), (alice, LAST - timedelta(days=40)), (bob, LAST)):
        used(tenant, tariff, at)
    stranger = used(bob, make_tariff(input="1", output="1"))  # of another tariff
    make_whole()
    before, rows = balances(), list(Usage.objects.order_by("pk").values())
    version = dearer(tariff, output=("1.5", "1.76"))
    run = counted(version, MONTH - timedelta(days=60))
    # 1000 tokens in at 10 instead of 0.44, 500 out at 1.5 instead of 1.6 cost.
    each, cost = Decimal("0.00956"), Decimal("-0.00005")
    a, b = alice.organization.pk, bob.organization.pk
    assert changes(run) == sorted([(a, 3 * each, 3 * cost), (b, each, cost)])
    assert (balances(), posted()) == (before, [])
    assert apply(run.pk, "finance") is Outcome.APPLIED
    assert {(debit, credit, amount) for debit, credit, amount, *_ in posted()} == {
        (f"repriced:{a}", "repriced-revenue", 2 * each), ("repriced-provider", "repriced-cost", -2 * cost),
        (f"repriced:{a}", "repriced-revenue", each), ("repriced-provider", "repriced-cost", -cost),
        (f"repriced:{b}", "repriced-revenue", each),
    }  # fmt: skip
    assert len(posted()) == 6
    last = datetime.combine((LAST + DAY).date(), datetime.min.time(), UTC)
    assert {(at, late, generation) for *_, at, late, generation in posted() if at >= THIS - timedelta(days=32)} <= {
        (last, None, None), (last - DAY, None, None)
    }  # fmt: skip
    assert list(Usage.objects.order_by("pk").values()) == rows
    make_whole()
    assert findings() == []
    assert AccountDay.objects.filter(account=f"repriced:{a}").aggregate(s=Sum("debit"))["s"] == 3 * each
    assert apply(run.pk, "finance") is Outcome.BEFORE
    again = counted(version, MONTH - timedelta(days=60))
    assert changes(again) == sorted([(a, 0, 0), (b, 0, 0)])
    assert apply(again.pk, "finance") is Outcome.APPLIED
    assert len(posted()) == 6
    assert stranger.charge == Decimal("0.00132")


def test_there_and_back_every_balance_is_what_it_was(tariff: Tariff) -> None:
    """Odd counts and rates, parts with a rate of their own or not, what was capped, and another range each time."""
    tenant = make_tenant("alice")
    first = tariff.versions.get()
    for number in range(1, 14):
        tokens = {"prompt_tokens": 997 * number, "completion_tokens": 13 * number, "cached_tokens": 401 * number}
        charge = (Decimal("0.44") * 997 * number + Decimal("1.76") * 13 * number).scaleb(-6)
        cost = (Decimal("0.4") * 997 * number + Decimal("1.6") * 13 * number).scaleb(-6)
        capped = {"basis": "capped", "charge": charge - UNIT, "overrun": UNIT} if number % 5 == 0 else {}
        lines = [{"item": "input", "quantity": 997 * number, "cost": "0.4", "charge": "0.44"}]
        at = LAST + timedelta(days=number % 3)
        used(tenant, tariff, at, **{"charge": charge, "provider_cost": cost, "arithmetic": lines, **tokens, **capped})
    make_whole()
    before = balances()
    odd = dearer(tariff, input=("0.333333", "7.777777"), cached_input=("0.000001", "0.130003"))
    there = counted(odd, MONTH, (LAST + DAY).date())
    assert apply(there.pk, "finance") is Outcome.APPLIED
    wider = counted(odd)
    assert apply(wider.pk, "finance") is Outcome.APPLIED
    assert balances() != before
    make_whole()
    assert findings() == []
    back = counted(first)
    assert apply(back.pk, "finance") is Outcome.APPLIED
    assert balances() == before
    make_whole()
    assert findings() == []


def test_who_has_terms_of_its_own_is_charged_by_them(tariff: Tariff) -> None:
    """A mark-up follows the cost; a price list's charges stay as they are; terms of later are not looked at."""
    marked, listed, later = (make_tenant(name) for name in ("marked", "listed", "later"))
    price_list = make_tariff(input="5", output="6")
    add_version(price_list, LAST + DAY, input="50", output="60")  # a day later than what is re-priced
    terms: list[tuple[Tenant, datetime, dict[str, Any]]] = [
        (marked, LONG_AGO, {"markup": 50}),
        (listed, LONG_AGO, {"markup": 100}),
        (listed, LONG_AGO, {"tariff": tariff, "price_list": price_list}),  # goes before the one for every tariff
        (later, NOW, {"markup": 900}),
    ]
    for tenant, since, what in terms:
        Terms.objects.create(organization=tenant.organization, effective_from=since, **what)
    used(marked, tariff, charge=Decimal("0.0018"))
    used(listed, tariff, charge=Decimal("0.008"))
    used(later, tariff)
    make_whole()
    before = balances()
    dear = dearer(tariff, input=("4", "10"))
    run = counted(dear)
    costlier = Decimal("0.0036")
    assert {one: (charge, cost) for one, charge, cost in changes(run)} == {
        marked.organization.pk: (costlier * 3 / 2, costlier),
        listed.organization.pk: (0, costlier),
        later.organization.pk: (Decimal("0.00956"), costlier),
    }
    assert apply(run.pk, "finance") is Outcome.APPLIED
    assert apply(counted(tariff.versions.get(effective_from=LONG_AGO)).pk, "finance") is Outcome.APPLIED
    assert balances() == before


def test_a_closed_month_is_corrected_in_the_open_one_with_a_note(tariff: Tariff) -> None:
    tenant = make_tenant("alice")
    used(tenant, tariff)
    make_whole()
    call_command("close_month", f"{MONTH:%Y-%m}", by="finance", stdout=StringIO())
    assert sum_closed() == 1
    run = counted(dearer(tariff))
    assert apply(run.pk, "finance") is Outcome.APPLIED
    ((debit, _, amount, at, late, _),) = posted()
    assert (debit, amount) == (f"repriced:{tenant.organization.pk}", Decimal("0.00956"))
    assert (at, late) == (THIS, LAST.date())
    make_whole()
    assert findings() == []


def test_rows_that_came_meanwhile_are_seen_before_anything_is_posted(tariff: Tariff) -> None:
    tenant = make_tenant("alice")
    used(tenant, tariff)
    run = counted(dearer(tariff))
    used(tenant, tariff)
    assert apply(run.pk, "finance") is Outcome.CHANGED
    assert posted() == []
    run.refresh_from_db()
    assert (run.state, run.looks, run.done) == ("counted", 2, 2)
    assert changes(run) == [(tenant.organization.pk, 2 * Decimal("0.00956"), 0)]
    assert apply(run.pk, "finance") is Outcome.APPLIED
    # What comes after stands at its own price, until somebody re-prices again.
    used(tenant, tariff)
    later = counted(run.version)
    assert changes(later) == [(tenant.organization.pk, Decimal("0.00956"), 0)]


def test_what_nobody_counted_or_two_offers_answered_is_left_and_capped_stays_below_its_cap(tariff: Tariff) -> None:
    tenant = make_tenant("alice")
    lines = [{"item": "input", "quantity": 1000, "cost": "0.4", "charge": "0.44"}]
    used(tenant, tariff, basis="unknown", arithmetic=[], charge=Decimal(0), provider_cost=None)
    used(tenant, tariff, arithmetic=[{**lines[0], "attempt": 1, "provider": "a", "provider_cost": "0.0004"}])
    used(tenant, tariff, basis="capped", charge=Decimal("0.001"), overrun=Decimal("0.00032"))
    used(tenant, tariff, provider_cost=None, service_tier="flex")
    run = counted(dearer(tariff, input=("4", "10")))
    assert changes(run) == [(tenant.organization.pk, Decimal("0.00956"), Decimal("0.0036"))]
    assert run.sums.aggregate(left=Sum("left"), rows=Sum("rows")) == {"left": 2, "rows": 4}


def test_a_row_is_repriced_by_its_class_of_service_size_and_seconds(tariff: Tariff) -> None:
    tenant = make_tenant("alice")
    used(tenant, tariff, provider_cost=None, service_tier="flex")
    used(tenant, tariff, service_tier="default", seconds=60)
    version = dearer(
        tariff, second=("0", "0.0001"), marginal=True, above={400: {"input": ("0.4", "20")}},
        classes={"flex": {"input": ("0.2", "5"), "output": ("0.8", "0.88")}},
    )  # fmt: skip
    # 1000 x 5 + 500 x 0.88, which was 0.00132, and what the provider takes is known now; then 400 x 10 + 600 x 20 +
    # 500 x 1.76 and 60 x 0.0001.
    run = counted(version)
    charge = Decimal("0.00544") + Decimal("0.02288") - 2 * Decimal("0.00132")
    assert changes(run) == [(tenant.organization.pk, charge, Decimal("0.0006"))]


def test_what_had_no_price_gets_one(tariff: Tariff) -> None:
    tenant = make_tenant("alice")
    unpriced = [{"item": item, "quantity": count, "cost": None, "charge": None} for item, count in USED.items()]
    row = used(tenant, tariff, charge=None, provider_cost=None, arithmetic=unpriced)
    run = counted(dearer(tariff))
    assert changes(run) == [(tenant.organization.pk, Decimal("0.01088"), Decimal("0.0012"))]
    row.refresh_from_db()
    assert (row.charge, row.provider_cost) == (None, None)


def test_a_count_is_stopped_and_goes_on_where_it_was(tariff: Tariff, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repricing, "PAGE", 2)
    tenant = make_tenant("alice")
    for _ in range(5):
        used(tenant, tariff)
    run = Repricing.objects.create(version=dearer(tariff), first=MONTH, until=END, asked_by="finance")
    assert count(run.pk)
    Repricing.objects.filter(pk=run.pk).update(stop=True)
    assert not count(run.pk)
    assert apply(run.pk, "finance") is Outcome.NOT_COUNTED
    run.refresh_from_db()
    assert (run.state, run.done, run.total) == ("counting", 2, 5)
    Repricing.objects.filter(pk=run.pk).update(stop=False)
    while count(run.pk):
        pass
    monkeypatch.undo()
    assert apply(run.pk, "finance") is Outcome.APPLIED  # pages are no part of the digest
    assert posted()[0][2] == 5 * Decimal("0.00956")


def test_of_those_who_apply_at_once_exactly_one_wins(tariff: Tariff) -> None:
    """One run is applied by several, and another one to the same version beside it, while the auditor looks on."""
    tenant = make_tenant("alice")
    for _ in range(20):
        used(tenant, tariff)
    make_whole()
    version = dearer(tariff)
    run, twin = counted(version), counted(version)
    start = threading.Barrier(2 * RACED + 1)

    def applies(which: Repricing) -> Outcome:
        try:
            start.wait()
            return apply(which.pk, "finance")
        finally:
            connection.close()

    def audits() -> set[int | None]:
        try:
            start.wait()
            return {audit() for _ in range(5)}
        finally:
            connection.close()

    with ThreadPoolExecutor(2 * RACED + 1) as pool:
        jobs = [pool.submit(applies, which) for which in [run, twin] * RACED]
        looked = pool.submit(audits)
        outcomes = Counter(job.result() for job in jobs)
    assert looked.result() <= {0, None}
    assert [amount for _, _, amount, *_ in posted()] == [20 * Decimal("0.00956")]
    # Who comes meanwhile is told so. The twin has nothing left to post, which it is told first, and then posts.
    assert 1 <= outcomes[Outcome.APPLIED] <= 2 and outcomes[Outcome.CHANGED] <= 1
    assert set(outcomes) <= {Outcome.APPLIED, Outcome.CHANGED, Outcome.BEFORE, Outcome.BUSY}
    assert balances()[f"repriced:{tenant.organization.pk}"] == 20 * Decimal("0.00956")
    make_whole()
    assert findings() == []


def test_in_the_database_itself_exactly_one_wins(tariff: Tariff) -> None:
    tenant = make_tenant("alice")
    used(tenant, tariff)
    run = counted(dearer(tariff))
    start = threading.Barrier(RACED)

    def posts(_: int) -> int | None:
        with database(app_url()) as app:
            start.wait()
            ((made,),) = app.execute("select billing_apply_repricing(%s, 'finance')", [run.pk]).fetchall()
            return made  # type: ignore[no-any-return]

    with ThreadPoolExecutor(RACED) as pool:
        assert Counter(pool.map(posts, range(RACED))) == {1: 1, None: RACED - 1}
    assert [amount for _, _, amount, *_ in posted()] == [Decimal("0.00956")]
    make_whole()
    assert findings() == []


@pytest.mark.parametrize("column", ["charge_after", "cost_prior"])
def test_a_unit_in_a_runs_sums_is_named_and_mended_it_is_gone(tariff: Tariff, column: str) -> None:
    tenant = make_tenant("alice")
    used(tenant, tariff)
    run = counted(dearer(tariff))
    apply(run.pk, "finance")
    make_whole()
    assert findings() == []
    forced(f"update billing_repricingsum set {column} = {column} + {UNIT}")  # noqa: S608
    audit()
    assert findings() == [("repricing", f"re-pricing in {MONTH:%Y-%m} of {tenant.organization.pk}")]
    forced(f"update billing_repricingsum set {column} = {column} - {UNIT}")  # noqa: S608
    assert audit() == 0


def test_a_posting_of_no_run_is_named_before_it_is_sealed_and_after(tariff: Tariff) -> None:
    tenant = make_tenant("alice")
    used(tenant, tariff)
    make_whole()
    whose = tenant.organization.pk
    forced(
        "insert into billing_ledgerentry (transaction, kind, organization, debit, credit, amount, currency, created_at)"
        " values (gen_random_uuid(), 'reprice', %s, %s, 'repriced-revenue', %s, 'USD', %s)",
        whose, f"repriced:{whose}", UNIT, LAST,
    )  # fmt: skip
    audit()
    assert findings() == [("repricing", f"re-pricing in {MONTH:%Y-%m} of {whose}")]
    seal()
    audit()
    assert findings() == [("repricing", f"re-pricing in {MONTH:%Y-%m} of {whose}")]


def test_budgets_counters_stay_as_they_were(tariff: Tariff) -> None:
    tenant = make_tenant("alice")
    used(tenant, tariff, NOW)
    Budget.objects.create(organization=tenant.organization, period="total", amount=Decimal(1))
    before = list(Window.objects.filter(organization=tenant.organization.pk).values())
    run = counted(dearer(tariff), MONTH, NOW.date() + DAY)
    assert apply(run.pk, "finance") is Outcome.APPLIED
    assert posted()[0][2] == Decimal("0.00956")
    assert list(Window.objects.filter(organization=tenant.organization.pk).values()) == before
    assert before[0]["used"] == Decimal("0.00132")
    assert books(tenant.organization).holds == []


def test_the_command_posts_nothing_unless_told_to(tariff: Tariff) -> None:
    tenant = make_tenant("alice")
    used(tenant, tariff)
    dearer(tariff)
    out = StringIO()
    days = {"first": MONTH, "until": END}
    call_command("reprice", tariff.slug, **days, by="finance", stdout=out)
    run = Repricing.objects.get()
    assert f"{tenant.organization.slug}: charge +$0.00956, cost +$0\n" in out.getvalue()
    assert f"Nothing is posted. Do that with --run {run.pk} --apply." in out.getvalue()
    assert posted() == []
    call_command("reprice", run=run.pk, apply=True, by="finance", stdout=out)
    assert out.getvalue().endswith("Posted.\n")
    assert len(posted()) == 1
    with pytest.raises(CommandError, match="applied before"):
        call_command("reprice", run=run.pk, apply=True, stdout=out)
    with pytest.raises(CommandError, match="ends before it begins"):
        call_command("reprice", tariff.slug, first=MONTH, until=MONTH, stdout=out)
    with pytest.raises(CommandError, match="no such version"):
        call_command("reprice", "none", **days, stdout=out)
    assert Repricing.objects.count() == 1 and len(posted()) == 1


def test_a_long_count_leaves_the_worker_to_others_between_its_turns(
    tariff: Tariff, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that does one thing at a time would else audit nothing, and end no dead hold, for minutes."""
    alice = make_tenant("alice")
    for _ in range(3):
        used(alice, tariff)
    run = Repricing.objects.create(version=dearer(tariff), first=MONTH, until=END, asked_by="finance")
    monkeypatch.setattr(repricing, "PAGE", 1)
    monkeypatch.setattr(tasks, "TURN_SECONDS", 0.0)
    queue = product.conf.task_default_queue  # which no worker of the tests reads; others' console may write to it
    with product.connection_for_read() as broker:
        broker.default_channel.queue_purge(queue)
        tasks.count_repricing(run.pk)
        turns = 1
        while (sent := broker.default_channel.basic_get(queue, no_ack=True)) is not None:
            if sent.headers["task"] == "billing.count_repricing":
                tasks.count_repricing(run.pk)
                turns += 1
    run.refresh_from_db()
    assert (turns, run.state, run.done) == (4, "counted", 3)
