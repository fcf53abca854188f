"""Budgets and limits in the console: a new budget knows what was spent, and whom it binds is chosen once."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing.models import Budget, Counter, Limit
from routing.models import Model
from tests.console.browser import console, context_of, exact, filled, make_usage, submit, url
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.shelf import make_model, make_provider

LIST = reverse("admin:billing_budget_changelist")
ADD = reverse("admin:billing_budget_add")


def make(client: Client, tenant: Tenant, **fields: Any) -> Any:
    """Sends the form of a new budget of `tenant`'s project."""
    subject = {"organization": str(tenant.organization.pk), "project": str(tenant.project.pk)}
    return submit(client, ADD, "budget_form", **{**subject, "period": "day", "amount": "5.5", **fields})


def shown(client: Client, tenant: Tenant) -> list[tuple[str, str, str]]:
    """What the list says of `tenant`'s budgets: amount, spent, on hold."""
    page = context_of(client.get(LIST, {"q": tenant.organization.slug}))["cl"]
    admin = page.model_admin
    found = [(admin.amount_shown(row), admin.used(row), admin.held(row)) for row in page.result_list]
    return [(exact(amount), exact(used), exact(held)) for amount, used, held in found]


def test_it_works(alice: Tenant) -> None:
    make_usage(alice, charge=Decimal("0.000000000001"))
    make_usage(alice, charge=Decimal("1.25"))
    make_usage(alice, charge=None, provider_cost=None)
    make_usage(alice, at=timezone.now() - timedelta(days=2), charge=Decimal(4))
    client = console()
    assert make(client, alice).status_code == 302
    assert shown(client, alice) == [("$5.5", "$1.250000000001", "$0")]
    Counter.objects.filter(subject=alice.project.pk).update(held=Decimal("0.5"))
    assert shown(client, alice) == [("$5.5", "$1.250000000001", "$0.5")]


def test_it_shows_the_running_period_alone(alice: Tenant) -> None:
    client = console()
    make(client, alice)
    Counter.objects.filter(subject=alice.project.pk).update(
        period_start=timezone.now() - timedelta(days=1), used=Decimal(3)
    )
    assert shown(client, alice) == [("$5.5", "$0", "$0")]


@pytest.mark.parametrize("amount", ["-0.01", "NaN", "Infinity", "-Infinity", "1e30", "0.0000000000001", "", "five"])
def test_it_refuses_an_amount_that_is_none(amount: str, alice: Tenant) -> None:
    assert make(console(), alice, amount=amount).status_code == 200
    assert not Budget.objects.filter(organization=alice.organization).exists()
    assert not Counter.objects.filter(subject=alice.project.pk).exists()


def test_it_refuses_a_subject_of_somebody_else(alice: Tenant, charlie: Tenant) -> None:
    for strange in ({"project": str(charlie.project.pk)}, {"key": str(charlie.key.pk)}):
        response = make(console(), alice, **strange)
        assert "belongs to another" in response.content.decode()
    assert not Budget.objects.filter(organization__in=[alice.organization, charlie.organization]).exists()


def test_it_refuses_a_second_budget_of_the_same_period(alice: Tenant) -> None:
    client = console()
    assert make(client, alice).status_code == 302
    assert make(client, alice, amount="7").status_code == 200
    assert make(client, alice, amount="7", period="month").status_code == 302
    assert sorted(Budget.objects.filter(organization=alice.organization).values_list("period", "amount")) == [
        ("day", Decimal("5.5")),
        ("month", Decimal(7)),
    ]


def test_whom_a_budget_binds_is_chosen_once(alice: Tenant, charlie: Tenant) -> None:
    client = console()
    make(client, alice)
    budget = Budget.objects.get(organization=alice.organization)
    address = reverse("admin:billing_budget_change", args=[budget.pk])
    forged = {"organization": str(charlie.organization.pk), "project": "", "key": "", "period": "total"}
    assert submit(client, address, "budget_form", amount="9", **forged).status_code == 302
    after = Budget.objects.get(pk=budget.pk)
    assert (after.subject, after.period, after.amount, after.hard) == (alice.project.pk, "day", Decimal(9), True)


def test_it_may_be_of_a_model_of_an_end_user_or_of_each(alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small").slug
    make_usage(alice, charge=Decimal(1), model=model, end_user="ann")
    make_usage(alice, charge=Decimal(2), model="test/other", end_user="ben")
    client = console()
    for fields in ({}, {"model": model}, {"end_user": "ann"}, {"end_user": "*"}, {"model": model, "end_user": "*"}):
        assert make(client, alice, **fields).status_code == 302
        assert make(client, alice, **fields).status_code == 200  # there is one already
    assert "There is no model no/such." in make(client, alice, model="no/such").content.decode()
    page = context_of(client.get(LIST, {"q": alice.organization.slug}))["cl"]
    admin = page.model_admin
    leads = f'<a href="/console/end-users/?organization={alice.organization.pk}" class="text-link">{{}}</a>'
    assert [(admin.part(row), exact(admin.used(row))) for row in page.result_list] == [
        ("all calls", "$3"),
        (f"of {model}", "$1"),
        (leads.format("for end user ann"), "$1"),
        (leads.format("for each end user"), "$2"),  # of who has spent most
        (leads.format(f"of {model} for each end user"), "$1"),
    ]
    row = Model.objects.get(slug=model)
    renamed = submit(client, url(Model, "change", row.pk), "model_form", slug=f"{model}-2")
    assert "A budget counts the calls of this name." in renamed.content.decode()
    row.refresh_from_db()
    assert row.slug == model
    budget = Budget.objects.get(organization=alice.organization, end_user="ann")
    address = reverse("admin:billing_budget_change", args=[budget.pk])
    assert submit(client, address, "budget_form", amount="9", model=model, end_user="ben").status_code == 302
    after = Budget.objects.get(pk=budget.pk)
    assert (after.model, after.end_user, after.amount) == ("", "ann", Decimal(9))


def test_a_limit_is_one_a_measure(alice: Tenant) -> None:
    client, address = console(), reverse("admin:billing_limit_add")
    fields = {"organization": str(alice.organization.pk), "measure": "requests", "value": "60"}
    assert submit(client, address, "limit_form", **fields).status_code == 302
    assert submit(client, address, "limit_form", **fields).status_code == 200
    assert submit(client, address, "limit_form", **{**fields, "measure": "open", "value": "-1"}).status_code == 200
    limit = Limit.objects.get(organization=alice.organization)
    assert (limit.subject, limit.measure, limit.value) == (alice.organization.pk, "requests", 60)


def test_the_counters_have_one_writer(alice: Tenant) -> None:
    make(console(), alice)
    with connection.cursor() as cursor:
        cursor.execute("select has_table_privilege('meterline_console', 'billing_counter', 'insert, update, delete')")
        assert cursor.fetchone() == (False,)
    assert Counter.objects.filter(subject=alice.project.pk).count() == 1


@pytest.mark.parametrize(
    ("amount", "used", "shown"),
    [
        ("10", "0", ("far", "0 %")),
        ("10", "7.9", ("far", "79 %")),
        ("10", "8", ("near", "80 %")),
        ("10", "9.999", ("near", "100 %")),
        ("10", "10", ("over", "100 %")),
        ("10", "21.5", ("over", "215 %")),
        ("0", "0", ("far", "-")),
        ("0", "0.01", ("over", "more")),
    ],
)
def test_a_budget_that_is_spent_looks_like_it(amount: str, used: str, shown: tuple[str, str], alice: Tenant) -> None:
    client = console()
    make(client, alice, amount=amount, hard=[])
    Counter.objects.filter(subject=alice.project.pk).update(used=Decimal(used))
    page = context_of(client.get(reverse("admin:billing_budget_changelist"), {"q": alice.organization.slug}))["cl"]
    (budget,) = page.result_list
    assert page.model_admin.share(budget) == shown


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("50\n90\n\n 100 \n", [50, 90, 100]),
        ("", []),
        ("0", None),
        ("1001", None),
        ("half", None),
        ("\n".join(map(str, range(1, 12))), None),
    ],
)
def test_when_to_tell_is_a_percent_a_line(typed: str, kept: list[int] | None, alice: Tenant) -> None:
    client = console()
    assert make(client, alice, alerts=typed).status_code == (200 if kept is None else 302)
    found = Budget.objects.filter(organization=alice.organization).values_list("alerts", flat=True)
    assert list(found) == ([] if kept is None else [kept])


def test_when_to_tell_is_shown_as_it_is_kept(alice: Tenant) -> None:
    client = console()
    assert make(client, alice).status_code == 302  # as the form offers it
    budget = Budget.objects.get(organization=alice.organization)
    assert budget.alerts == [80, 100]
    address = reverse("admin:billing_budget_change", args=[budget.pk])
    assert filled(client.get(address).content.decode(), "budget_form")["alerts"] == ["80\n100"]
