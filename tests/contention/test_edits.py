"""Two operators at one page: X9. Who saves second is told of the first, and overwrites nothing of what they did."""

import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from django.db import connections, models
from django.urls import reverse

from accounts.models import ApiKey, Organization
from billing.models import Budget
from routing.models import Model, Policy
from tests.console.browser import Console, console, filled
from tests.contention.conftest import Figures
from tests.contention.scale import scaled
from tests.stage.backbone import database, owner_url
from tests.stage.cast import Tenant
from tests.stage.product import until
from tests.stage.shelf import make_model, make_provider

pytestmark = pytest.mark.backbone

CONFLICT = "Somebody else has changed this since you opened it."


class Editor:
    """An operator who has opened the page of a row."""

    def __init__(self, row: models.Model) -> None:
        meta = row._meta
        self._client: Console = console()
        self._path = reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])
        self._form = f"{meta.model_name}_form"
        self.open()

    def open(self) -> None:
        """Opens it anew."""
        self.fields = filled(self._client.get(self._path).content.decode(), self._form)

    def save(self, **changes: Any) -> str:
        """Sends it with these changes: `saved`, `conflict`, or what else is on the page."""
        answer = self._client.post(self._path, {**self.fields, **changes})
        if answer.status_code == 302:
            return "saved"
        page = answer.content.decode()
        return "conflict" if CONFLICT in page else page


def made(kind: str, tenant: Tenant) -> tuple[models.Model, str, tuple[str, str, str]]:
    """A row of a kind, a field of its page, and three things to write into it."""
    if kind == "organization":
        return tenant.organization, "name", ("First", "Second", "Third")
    if kind == "budget":
        rule = Budget.objects.create(organization=tenant.organization, period="day", amount=Decimal(1))
        return rule, "amount", ("2", "3", "4")
    if kind == "policy":
        return Policy.objects.create(level="key", key=tenant.key, max_attempts=1), "max_attempts", ("2", "3", "4")
    model = make_model(make_provider("https://vendor.example/v1"))
    assert kind == "rows of a page"
    return model, "offers-0-upstream_model", ("first", "second", "third")


def value(row: models.Model, field: str) -> str:
    """What a field has come to."""
    if "-" in field:
        assert isinstance(row, Model)
        return row.offers.get().upstream_model
    row.refresh_from_db()
    found = getattr(row, field)
    return f"{found.normalize():f}" if isinstance(found, Decimal) else str(found)


@pytest.mark.parametrize("kind", ["organization", "budget", "policy", "rows of a page"])
def test_who_saves_second_is_told_of_the_first(alice: Tenant, figures: Figures, kind: str) -> None:
    row, field, (first, second, third) = made(kind, alice)
    one, other = Editor(row), Editor(row)
    assert one.save(**{field: first}) == "saved"
    assert value(row, field) == first
    assert [other.save(**{field: second}), other.save(**{field: second})] == ["conflict", "conflict"]
    assert value(row, field) == first
    other.open()
    assert (other.fields[field], other.save(**{field: third})) == ([first], "saved")
    assert value(row, field) == third
    figures("X9", lost_updates=0)


def test_of_many_who_save_at_once_one_does(alice: Tenant, figures: Figures) -> None:
    operators = scaled(4, 16)
    editors = [Editor(alice.organization) for _ in range(operators)]
    together = threading.Barrier(operators)

    def save(number: int) -> str:
        try:
            together.wait(30)
            return editors[number].save(name=f"By {number}")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(operators) as threads:
        found = list(threads.map(save, range(operators)))
    assert sorted(found) == ["conflict"] * (operators - 1) + ["saved"]
    winner = found.index("saved")
    assert Organization.objects.get(pk=alice.organization.pk).name == f"By {winner}"
    figures("X9", saved=found.count("saved"), lost_updates=0)


def test_a_key_that_is_revoked_while_its_page_is_saved_stays_revoked(alice: Tenant) -> None:
    editor = Editor(alice.key)

    def save() -> str:
        try:
            return editor.save(name="renamed")
        finally:
            connections.close_all()

    with database(owner_url()) as other, ThreadPoolExecutor(1) as threads:
        with other.transaction():
            other.execute("update accounts_apikey set revoked_at = now() where id = %s", [alice.key.pk])
            saving = threads.submit(save)
            until(lambda: waits_for_a_lock() or saving.done(), 20)
        assert saving.result() == "saved"
    key = ApiKey.objects.get(pk=alice.key.pk)
    assert key.name == "renamed"
    assert key.revoked_at is not None


def waits_for_a_lock() -> bool:
    """Whether a session waits for another one's row."""
    query = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with database(owner_url()) as owner:
        ((count,),) = owner.execute(query).fetchall()
    return bool(count)
