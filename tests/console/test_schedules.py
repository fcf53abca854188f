"""Exports on a schedule, in the console: an access key goes in and never comes out, what is written where stays."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.sealing import CannotOpen
from billing.models import ExportSchedule, StoredExport
from tests.console.browser import console, context_of, filled, submit
from tests.stage.cast import Tenant

FORM = "exportschedule_form"
ADD = reverse("admin:billing_exportschedule_add")
KEY = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"


def add(client: Client, name: str, **fields: Any) -> Any:
    """Sends the form of a new schedule, and follows to the page that comes next."""
    fields = {"name": name, "endpoint": "https://s3.eu-central-1.amazonaws.com", "region": "eu-central-1",
              "bucket": "ledgers", "secret": KEY, **fields}  # fmt: skip
    untouched: dict[str, Any] = dict(filled(client.get(ADD).content.decode(), FORM))
    return client.post(ADD, {**untouched, **fields}, follow=True)


@pytest.fixture(autouse=True)
def nothing_is_due() -> Iterator[None]:
    """No worker of other tests stores what a test has made here."""
    yield
    ExportSchedule.objects.update(active=False)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was sent to workers."""

    class Broker(list[Any]):
        def send_task(self, name: str, **_: Any) -> None:
            self.append(name)

    found = Broker()
    monkeypatch.setattr("gateway.console.schedules.current_app", found)
    return found


def test_one_is_made_shown_and_run_and_its_key_never_comes_out(alice: Tenant, sent: list[Any]) -> None:
    client, name = console(), alice.organization.slug
    page = add(client, name, organization=str(alice.organization.pk))
    made = ExportSchedule.objects.get(name=name)
    assert made.secret() == KEY and made.hint == "MPLE" and "wJalr" not in made.sealed
    assert made.first == timezone.now().date().replace(day=1)
    now = timezone.now()
    StoredExport.objects.create(
        schedule=made, start=made.first, tries=3, next_try_at=now, last_error="status 403 AccessDenied"
    )
    change = reverse("admin:billing_exportschedule_change", args=[made.pk])
    lists = [reverse(f"admin:billing_{model}_changelist") for model in ("exportschedule", "storedexport")]
    shown = [page.content.decode(), *(client.get(path).content.decode() for path in (change, *lists))]
    shown.append(client.get(reverse("admin:billing_exportschedule_history", args=[made.pk])).content.decode())
    assert all("wJalr" not in html and made.sealed not in html for html in shown)
    assert all("status 403 AccessDenied" in html for html in shown[1:4])
    assert "…MPLE" in shown[1] and f"{made.first} failed" in shown[2]
    assert sent == []
    run = reverse("admin:billing_exportschedule_run", args=[made.pk])
    StoredExport.objects.update(next_try_at=now + timedelta(hours=4))
    assert client.post(run)["Location"] == change and sent == ["gateway.store_exports"]
    assert StoredExport.objects.get(schedule=made).next_try_at < now + timedelta(hours=1)
    assert client.get(run).status_code == 405
    StoredExport.objects.update(last_error="")
    assert f"waits for {made.first}" in client.get(lists[0]).content.decode()


def test_what_is_written_where_stays_and_its_key_is_for_that_bucket(alice: Tenant) -> None:
    client, name = console(), alice.organization.slug
    add(client, name)
    made = ExportSchedule.objects.get(name=name)
    change = reverse("admin:billing_exportschedule_change", args=[made.pk])
    forged = {"name": "another", "bucket": "eves", "endpoint": "https://eve.test", "prefix": "x", "every": "month",
              "organization": str(alice.organization.pk), "first": "2020-01-01"}  # fmt: skip
    assert submit(client, change, FORM, active=[], **forged).status_code == 302
    after = ExportSchedule.objects.get(pk=made.pk)
    same = {key: value for key, value in vars(made).items() if key not in ("_state", "active")}
    assert {key: vars(after)[key] for key in same} == same and not after.active
    assert submit(client, change, FORM, secret="AKID:another").status_code == 302
    assert ExportSchedule.objects.get(pk=made.pk).secret() == "AKID:another"
    ExportSchedule.objects.filter(pk=made.pk).update(bucket="eves")  # behind the console's back
    with pytest.raises(CannotOpen):
        ExportSchedule.objects.get(pk=made.pk).secret()
    assert "cannot be opened" in client.get(change).content.decode()


def test_what_would_not_work_is_told_when_it_is_saved(alice: Tenant, settings: LazySettings) -> None:
    client, name = console(), alice.organization.slug
    settings.EXPORT_DIR = None
    for fields, field in (
        ({"secret": ""}, "secret"),
        ({"secret": "no colon"}, "secret"),
        ({"endpoint": "https://user@s3.test"}, "endpoint"),
        ({"endpoint": ""}, "endpoint"),
        ({"prefix": "../x"}, "prefix"),
        ({"kind": "folder"}, "kind"),
    ):
        assert field in context_of(add(client, name, **fields))["adminform"].form.errors
    assert not ExportSchedule.objects.filter(name=name).exists()
    page = add(client, name, endpoint="https://169.254.169.254", path_style="on")
    assert any("not dialled" in str(one) or "dial" in str(one) for one in get_messages(page.wsgi_request))


def test_staff_and_strangers_move_nothing(alice: Tenant, sent: list[Any]) -> None:
    made = ExportSchedule.objects.create(name=alice.organization.slug, kind="folder", active=False)
    run = reverse("admin:billing_exportschedule_run", args=[made.pk])
    assert console(superuser=False).post(run).status_code in (302, 403, 404)
    assert Client().post(run).status_code == 302
    assert console(enforce_csrf_checks=True).post(run).status_code == 403
    assert sent == [] and not StoredExport.objects.filter(schedule=made).exists()
    assert console().post(run, follow=True).status_code == 200 and len(sent) == 1
