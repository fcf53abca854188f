"""Re-pricing in the console: asked for, counted by a worker, looked at, applied; and who may do none of it."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from django.urls import reverse
from django.utils import timezone

from billing.models import LedgerEntry, Repricing
from billing.tasks import apply_repricing, count_repricing
from tests.console.browser import console, make_usage, url
from tests.console.test_replays import worker
from tests.stage.backbone import operating
from tests.stage.books import forced
from tests.stage.cast import Tenant
from tests.stage.shelf import add_version, make_tariff


class Sent(list[Any]):
    """What was sent to workers."""

    def send_task(self, name: str, args: tuple[Any, ...], **_: Any) -> None:
        self.append((name, *args))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """The broker, which no worker listens to."""
    found = Sent()
    monkeypatch.setattr("billing.console.repricings.current_app", found)
    return found


def test_a_second_person_applies_it_where_that_is_set(sent: Sent, settings: Any) -> None:
    settings.SECOND_PERSON = ["repricing"]
    ann, ben, today = console(), console(), timezone.now().date()
    version = make_tariff(input=("1", "2")).versions.get()
    ann.post(
        url(Repricing, "add"), {"version": version.pk, "first": f"{today - timedelta(days=1)}", "until": f"{today}"}
    )
    run = Repricing.objects.get(version=version)
    sent.clear()
    page = ann.post(reverse("admin:billing_repricing_apply", args=[run.pk]), follow=True)
    assert "Somebody else has to apply it." in page.content.decode() and sent == []
    ben.post(reverse("admin:billing_repricing_apply", args=[run.pk]))
    assert [one[:2] for one in sent] == [("billing.apply_repricing", run.pk)]


def test_it_is_asked_for_counted_looked_at_and_applied(alice: Tenant, sent: Sent) -> None:
    tariff = make_tariff(input=("0.4", "0.44"), output=("1.6", "1.76"))
    row = make_usage(alice, timezone.now() - timedelta(days=2), tariff_version=tariff.versions.get().pk)
    forced("select billing_close(array[%s::uuid])", row.pk)
    version = add_version(tariff, timezone.now() - timedelta(minutes=1), input=("0.4", "10"), output=("1.6", "1.76"))
    client, today = console(), timezone.now().date()
    asked = {"version": version.pk, "first": f"{today - timedelta(days=9)}", "until": f"{today}"}
    refused = client.post(url(Repricing, "add"), {**asked, "until": asked["first"]})
    assert "It ends before it begins." in refused.content.decode() and sent == []
    made = client.post(url(Repricing, "add"), asked)
    run = Repricing.objects.get(version=version)
    page = url(Repricing, "change", run.pk)
    assert (made.status_code, made["Location"]) == (302, page)
    assert sent == [("billing.count_repricing", run.pk)]
    assert client.get(page)["Refresh"] == "2"
    assert client.post(reverse("admin:billing_repricing_stop", args=[run.pk])).status_code == 302
    with worker():
        count_repricing(run.pk)
    assert Repricing.objects.get(pk=run.pk).state == "counting"
    client.post(reverse("admin:billing_repricing_count", args=[run.pk]))
    with worker():
        count_repricing(run.pk)
    shown = client.get(page).content.decode()
    assert alice.organization.slug in shown and "$0.00956" in shown and "apply_form" in shown
    assert not LedgerEntry.objects.filter(kind="reprice", organization=alice.organization.pk).exists()
    client.post(reverse("admin:billing_repricing_apply", args=[run.pk]))
    name, *args = sent[-1]
    assert name == "billing.apply_repricing"
    with worker():
        apply_repricing(*args)
        apply_repricing(*args)
    (entry,) = LedgerEntry.objects.filter(kind="reprice", organization=alice.organization.pk)
    assert (entry.debit, entry.amount) == (f"repriced:{alice.organization.pk}", Decimal("0.00956"))
    shown = client.get(page).content.decode()
    assert "apply_form" not in shown and Repricing.objects.get(pk=run.pk).applied_by == args[1]


@pytest.mark.parametrize("wish", ["stop", "count", "apply"])
def test_staff_and_a_mere_look_move_nothing(alice: Tenant, sent: Sent, wish: str) -> None:
    version = make_tariff(input="1", output="2").versions.get()
    today = timezone.now().date()
    run = Repricing.objects.create(version=version, first=today, until=today + timedelta(days=1), stop=True)
    address = reverse(f"admin:billing_repricing_{wish}", args=[run.pk])
    assert console().get(address).status_code == 405
    assert console(superuser=False).post(address).status_code == 404
    assert console().post(reverse(f"admin:billing_repricing_{wish}", args=[10**9])).status_code == 404
    assert sent == [] and Repricing.objects.get(pk=run.pk).stop


def test_the_consoles_role_says_stop_and_nothing_else_of_a_run(alice: Tenant) -> None:
    version = make_tariff(input="1", output="2").versions.get()
    today = timezone.now().date()
    run = Repricing.objects.create(version=version, first=today, until=today + timedelta(days=1))
    with operating() as connection:
        connection.execute("update billing_repricing set stop = true where id = %s", [run.pk])
        for statement in ("update billing_repricing set state = 'applied'", "select billing_apply_repricing(1, '')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
