"""Finance closes a month in the browser: what is exported, stated and posted is what the provider counted."""

import csv
import io
import secrets
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from django.urls import reverse

from accounts.models import User
from billing.ids import first_id
from billing.models import ClosedMonth, Hold, LedgerEntry, Statement, Usage
from billing.sealing import sum_closed
from tests.console.browser import url
from tests.console.window import Window, needs_a_browser, open_window
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, database, owner_url
from tests.stage.books import fresh_books, make_whole
from tests.stage.cast import Tenant, make_tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.shelf import make_model, make_provider, make_tariff

pytestmark = needs_a_browser

THIS = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
LAST = THIS - timedelta(days=10)  # a moment of the month that is over
MONTH = date(LAST.year, LAST.month, 1)
CALLS = 4  # of each model by each tenant
PRICES = {"small": ("0.15", "0.6"), "large": ("2.5", "10")}  # of a million tokens, in and out


@pytest.fixture
def fresh(database: None) -> Iterator[None]:
    """Nothing used, posted, closed or issued."""
    with fresh_books():
        yield


@pytest.fixture
def server(fresh: None, simulated: SimulatedProvider, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with its console."""
    with running(tmp_path, SERVE="all", EGRESS_ALLOW=simulated.url) as (made,):
        yield made


@pytest.fixture
def window(server: Gateway) -> Iterator[Window]:
    """Somebody of finance has logged in."""
    password = secrets.token_urlsafe()
    User.objects.create_superuser("finance", password=password)
    with open_window(server.url) as made:
        made.open("/console/login/?next=/console/")
        made.type(username="finance", password=password)
        yield made


def test_finance_closes_a_month(window: Window, server: Gateway, simulated: SimulatedProvider) -> None:
    alice, charlie = make_tenant("alice"), make_tenant("charlie")
    billed = {tenant.organization.slug: Fraction(0) for tenant in (alice, charlie)}
    for tenant in (alice, charlie):
        billed[tenant.organization.slug] = spend(server, simulated, tenant)
    a_month_passes()
    make_whole()

    window.open(url(ClosedMonth, "add"))
    window.type(month=f"{MONTH:%Y-%m-%d}")
    assert sum_closed() == 1  # by the worker
    window.open(url(ClosedMonth, "changelist"))
    assert f"${float(sum(billed.values())):.4g}" in window.words("#result_list")

    window.open(url(Statement, "add"))
    window.type(of_month=f"{MONTH:%Y-%m}", of_organization=alice.organization.slug)
    document = Statement.objects.get()
    assert document.issued_by == "finance"
    window.open(url(Statement, "change", document.pk))
    stated = document.total
    assert f"{stated.normalize():f}" in window.words("[role=main]")

    last = THIS - timedelta(days=1)
    window.open(reverse("spend") + f"?from={MONTH}&to={last:%Y-%m-%d}&organization={alice.organization.slug}&by=model")
    page = window.words("[role=main]")
    assert "They agree to the last digit." in page, page
    # From here on by the page's own links.
    window.follow("Ledger")
    assert parse_qs(urlsplit(window.driver.current_url).query)["organization"] == [str(alice.organization.pk)]
    posted = csv.DictReader(io.StringIO(window.download("Export CSV"), newline=""))
    owed = sum(Decimal(row["amount"]) for row in posted if row["debit"] == f"tenant:{alice.organization.pk}")
    window.driver.back()
    window.follow("Generations")
    rows = list(csv.DictReader(io.StringIO(window.download("Export CSV"), newline="")))
    exported = sum(Decimal(row["charge"]) for row in rows)

    assert len(rows) == CALLS * len(PRICES)
    assert Fraction(exported) == Fraction(stated) == Fraction(owed) == billed[alice.organization.slug] > 0
    assert window.said() == []


def spend(server: Gateway, simulated: SimulatedProvider, tenant: Tenant) -> Fraction:
    """Calls of every model, streamed and not; what the provider's own bill makes of them at our prices, in dollars."""
    models = {}
    for name, (input, output) in PRICES.items():
        tariff = make_tariff(input=input, output=output)
        upstream = f"{name}-{tenant.organization.slug}?tokens=37&prompt=1001"
        models[upstream] = make_model(make_provider(simulated.base_url), upstream, tariff).slug
    synchronize(server)
    for slug in models.values():
        for number in range(CALLS):
            answer = server.chat(tenant.secret, slug, stream=number % 2 == 1)
            assert answer.status_code == 200, answer.text
    until(lambda: not Hold.objects.filter(organization=tenant.organization.pk).exists())
    assert books(tenant.organization).problems() == []
    total = Fraction(0)
    for line in simulated.bill():
        if line["model"] in models:
            read, written = map(Fraction, PRICES[line["model"].partition("-")[0]])
            total += (line["prompt_tokens"] * read + line["completion_tokens"] * written) / 10**6
    return total


def a_month_passes() -> None:
    """What was used and posted was so ten days before this month: its rows as they are, of another time."""
    moved: list[tuple[Any, ...]] = []
    for number, id in enumerate(Usage.objects.order_by("pk").values_list("pk", flat=True)):
        at = LAST + timedelta(seconds=number)
        moved.append((UUID(int=first_id(at).int | id.int & (1 << 62) - 1), at, id))
    assert LedgerEntry.objects.exists()
    with database(owner_url()) as owner:
        for table in ("billing_usage", "billing_ledgerentry"):
            owner.execute(f"alter table {table} disable trigger user")
        for new, at, old in moved:
            owner.execute(
                "update billing_usage set id = %s, created_at = %s, settled_at = %s where id = %s", [new, at, at, old]
            )
            owner.execute(
                "update billing_ledgerentry set generation = %s, created_at = %s where generation = %s", [new, at, old]
            )
            owner.execute("update billing_attempt set generation = %s where generation = %s", [new, old])
        for table in ("billing_usage", "billing_ledgerentry"):
            owner.execute(f"alter table {table} enable trigger user")
