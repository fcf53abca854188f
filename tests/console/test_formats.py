"""Times and numbers are written the same on every list and on what is read of every form."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from inspect import isroutine
from typing import Any

import pytest
from django.contrib import admin
from django.core.exceptions import FieldDoesNotExist
from django.db import models, transaction
from django.urls import reverse
from django.utils import timezone

from accounts.formats import exactly, number
from accounts.log import AuditEvent
from billing.models import Budget, Hold, Lease, Reconciliation, StoredExport, Tariff, Usage
from gateway.models import Refused
from routing.models import ChoiceWeight, Offer
from tests.console.browser import PAGES, Rows, console, context_of, make_rows, make_usage, url
from tests.stage.cast import Tenant, make_tenant

# Their numbers are names, or fields to fill in.
NAMES = {(Lease, "pid"), (ChoiceWeight, "weight"), (AuditEvent, "actor"), (StoredExport, "ledger")}


@pytest.fixture(scope="module")
def rows(database: None) -> Iterator[Rows]:
    """A row of every page."""
    made = make_rows(make_tenant("alice"))
    yield made
    made[Hold].delete()


def column(model: type[models.Model], name: Any) -> Any:
    """The model's column that a list or form names, if it is one."""
    try:
        found = model._meta.get_field(getattr(name, "__name__", name))
    except FieldDoesNotExist:
        return None
    return found if found.concrete else None


def written(row: models.Model, names: Any) -> list[str]:
    """How the times and counts among the columns `names` of `row` are to be shown."""
    found = []
    for field in (column(type(row), name) for name in names):
        value = getattr(row, field.name) if field is not None else None
        if isinstance(field, models.DateTimeField) and value is not None:
            found.append(f'<time datetime="{value.isoformat()}" title="{exactly(value)}">')
        counts = isinstance(field, models.IntegerField) and not field.primary_key and not field.choices
        if counts and (type(row), field.name) not in NAMES and not field.name.endswith("status"):
            found.append(number(value))
    return found


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model.__name__)
def test_times_and_counts_are_written_alike_on_every_page(model: type[models.Model], rows: Rows) -> None:
    client = console()
    listed = client.get(url(model, "changelist"))
    first = context_of(listed)["cl"].result_list[0]
    assert [
        one for one in written(first, context_of(listed)["cl"].list_display) if one not in listed.content.decode()
    ] == []
    rows[model].refresh_from_db()
    page = client.get(url(model, "change", rows[model].pk))
    read = context_of(page)["adminform"].readonly_fields
    assert [one for one in written(rows[model], read) if one not in page.content.decode()] == []


def test_what_is_looked_for_is_there(rows: Rows) -> None:
    assert len(written(rows[Usage], admin.site._registry[Usage].list_display)) == 1
    assert len(written(rows[Hold], admin.site._registry[Hold].list_display)) == 3


def test_no_column_hides_what_a_page_shows_in_its_place() -> None:
    """Where a page names a column, the admin shows the column, whatever the page defines by that name."""
    for model, page in admin.site._registry.items():
        hidden = [
            name for name in page.list_display if column(model, name) and isroutine(getattr(page, str(name), None))
        ]
        assert hidden == [], model


def test_a_bills_gap_is_shown_in_dollars(rows: Rows) -> None:
    made = rows[Reconciliation]
    Reconciliation.objects.filter(pk=made.pk).update(missing=Decimal("1234.567891"))
    html = console().get(url(Reconciliation, "change", made.pk)).content.decode()
    assert '<span class="number" title="$1234.567891">$1,234.57</span>' in html


def test_whose_it_is_stands_in_one_cell(rows: Rows, alice: Tenant) -> None:
    client = console()
    key = make_usage(alice, at=timezone.now() + timedelta(seconds=1))  # the newest
    slug = alice.organization.slug
    cell = f'<span class="whose">{slug} / {alice.project.slug} · {key.key_name}</span>'
    assert cell in client.get(url(Usage, "changelist"), {"organization": str(alice.organization.pk)}).content.decode()
    refused: Any = rows[Refused]
    whom = {"organization": str(refused.organization)}
    assert '<span class="whose">' in client.get(url(Refused, "changelist"), whom).content.decode()
    Budget.objects.create(organization=alice.organization, key=alice.key, period="week", amount=Decimal(5))
    found = client.get(url(Budget, "changelist"), {"q": slug}).content.decode()
    assert cell in found


@pytest.fixture
def undone() -> Iterator[None]:
    """For what is everybody's: it is rolled back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_a_form_has_one_field_a_row(rows: Rows) -> None:
    client = console()
    for model in PAGES:
        form = context_of(client.get(url(model, "change", rows[model].pk)))["adminform"]
        for _, said in form.fieldsets:
            assert [one for one in said["fields"] if isinstance(one, list | tuple)] == [], model


def test_offers_that_nobody_called_are_folded(rows: Rows, undone: None) -> None:
    client = console()
    offer: Any = rows[Offer]
    tariff: Any = rows[Tariff]
    Offer.objects.exclude(pk=offer.pk).update(active=False)  # of other tests: the board has the first ones
    Offer.objects.filter(pk=offer.pk).update(active=True)

    def shown(**asked: str) -> tuple[int, int]:
        found = context_of(client.get(reverse("health_board"), asked))["providers"]
        (one,) = (one for one in found if one["provider"].pk == offer.provider_id)
        return len(one["lines"]), len(one["idle"])

    assert shown() == (1, 0)  # it has no price yet, which is to be seen
    version = tariff.versions.create(effective_from=timezone.now() - timedelta(days=1))
    version.rates.create(item="input", cost=Decimal(1), charge=Decimal(2))
    version.rates.create(item="output", cost=Decimal(1), charge=Decimal(2))
    assert shown() == (0, 1)
    assert "1 offer without a call" in client.get(reverse("health_board")).content.decode()
    assert shown(q=offer.provider.slug) == (1, 0)
