"""Price lists in the console: asked for, looked at, and imported or declined."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from billing.models import PriceList, TariffVersion
from routing.models import Model, Provider
from tests.console.browser import console, filled, url

FORM = "pricelist_form"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was sent to workers."""

    class Broker(list[Any]):
        def send_task(self, name: str, args: tuple[int], **_: Any) -> None:
            self.append((name, *args))

    found = Broker()
    monkeypatch.setattr("routing.console.price_lists.current_app", found)
    return found


def listed(name: str) -> PriceList:
    """A list of one model, fetched: it is new."""
    row = {"id": name, "match": {"equals": name}, "prices": {"input_mtok": 1, "output_mtok": 2}}
    return PriceList.objects.create(
        url="https://prices.example/data.json",
        vendors="ovhcloud",
        asked_by="ann",
        state="fetched",
        content=json.dumps([{"id": "ovhcloud", "name": "OVH", "models": [row]}]).encode(),
        lines=["+ model ovhcloud/old"],
    )


def test_one_is_asked_for(sent: list[Any]) -> None:
    client = console()
    page = url(PriceList, "add")
    known = Provider.objects.filter(slug="groq").exists()
    assert ("groq" in filled(client.get(page).content.decode(), FORM).get("wanted", [])) is known
    assert client.post(page, {}).status_code == 200 and sent == []  # somebody's
    answer = client.post(page, {"wanted": ["groq", "mistral"]})
    made = PriceList.objects.latest("pk")
    assert answer["Location"] == url(PriceList, "change", made.pk)
    assert (made.vendors, made.state, made.url[:5]) == ("groq,mistral", "waiting", "https")
    assert sent == [("routing.fetch_price_list", made.pk)]
    shown = client.get(answer["Location"])
    assert shown["Refresh"] == "2" and "Waiting for a worker" in shown.content.decode()


@pytest.fixture
def undone() -> Iterator[None]:
    """For what is everybody's: it is rolled back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_what_it_changes_is_shown_and_then_imported(undone: None) -> None:
    client, name = console(), "swift-of-console"
    row = listed(name)
    page = url(PriceList, "change", row.pk)
    assert "+ model ovhcloud/old" in client.get(page).content.decode()
    answer = client.post(f"{page.removesuffix('change/')}import/", follow=True)  # it says something else by now
    html = answer.content.decode()
    assert "The catalog was changed meanwhile" in html and f"+ model ovhcloud/{name}" in html
    assert not Model.objects.filter(slug=f"ovhcloud/{name}").exists()
    done = client.post(f"{page.removesuffix('change/')}import/", follow=True).content.decode()
    assert "Imported." in done and 'id="import_form"' not in done
    (version,) = TariffVersion.objects.filter(tariff__slug=f"ovhcloud/{name}")
    assert version.note.startswith("genai-prices published")
    again = client.post(f"{page.removesuffix('change/')}import/", follow=True).content.decode()
    assert "Somebody has decided on it meanwhile" in again
    assert TariffVersion.objects.filter(tariff__slug=f"ovhcloud/{name}").count() == 1
    row.refresh_from_db()
    history = client.get(url(PriceList, "history", row.pk)).content.decode()
    assert f"Imported {len(row.lines)} differences." in history and len(row.lines) in (2, 3)


def test_it_is_declined_and_nobody_else_decides() -> None:
    row = listed("never")
    page = url(PriceList, "change", row.pk).removesuffix("change/")
    assert console(superuser=False).post(f"{page}import/").status_code == 404
    client = console()
    assert client.get(f"{page}import/").status_code == 405
    assert client.post(f"{page}decline/").status_code == 302
    row.refresh_from_db()
    assert (row.state, row.content) == ("declined", None)
    assert not Model.objects.filter(slug="ovhcloud/never").exists()
    assert client.get(url(PriceList, "changelist") + "?content__startswith=a").status_code == 400
