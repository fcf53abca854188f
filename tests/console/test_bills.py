"""Bills that are fetched, in the console: an admin key goes in and never comes out; a fetch is watched."""

from datetime import date, timedelta
from typing import Any

import pytest
from django.utils import timezone

from billing.models import BillFetch, BillPage, BillSource
from routing.models import Provider
from tests.console.browser import console, filled, submit, url
from tests.stage.shelf import make_provider

SECRET = "sk-admin-that-nobody-reads"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was sent to workers."""

    class Broker(list[Any]):
        def send_task(self, name: str, args: tuple[int], **_: Any) -> None:
            self.append((name, *args))

    found = Broker()
    monkeypatch.setattr("routing.console.bills.current_app", found)
    return found


@pytest.fixture
def provider(database: None) -> Provider:
    return make_provider("https://vendor.example/v1", "sk-secret-of-a-vendor")


def test_an_admin_key_goes_in_and_never_comes_out(provider: Provider) -> None:
    client, add = console(), url(BillSource, "add")

    def added(**fields: str) -> Any:
        given = filled(client.get(add).content.decode(), "billsource_form")
        return client.post(add, {**given, "provider": provider.slug, "form": "anthropic", **fields})

    refused = added()
    assert "A new source needs one." in refused.content.decode()
    wrong = added(secret=SECRET, endpoint="https://x.example/v1?a=b")
    assert wrong.status_code == 200 and SECRET not in wrong.content.decode()
    assert not BillSource.objects.filter(provider=provider.slug).exists()
    assert added(secret=SECRET).status_code == 302
    made = BillSource.objects.get(provider=provider.slug)
    assert (made.endpoint, made.secret(), made.hint) == ("https://api.anthropic.com/v1", SECRET, "eads")
    assert SECRET not in made.sealed
    change = url(BillSource, "change", made.pk)
    for page in (change, url(BillSource, "changelist"), url(BillSource, "history", made.pk)):
        html = client.get(page).content.decode()
        assert SECRET not in html and made.sealed not in html
    assert "…eads" in client.get(change).content.decode()
    # Its address stays, whatever is sent; another secret takes its place, none leaves it.
    submit(client, change, "billsource_form", endpoint="https://evil.example/v1", secret="")
    made.refresh_from_db()
    assert (made.endpoint, made.secret()) == ("https://api.anthropic.com/v1", SECRET)
    submit(client, change, "billsource_form", secret="sk-admin-2")
    made.refresh_from_db()
    assert made.secret() == "sk-admin-2"
    assert "cannot be opened" not in client.get(change).content.decode()
    BillSource.objects.filter(pk=made.pk).update(endpoint="https://evil.example/v1")
    assert "cannot be opened" in client.get(change).content.decode()


def test_a_fetch_is_asked_for_watched_stopped_and_gone_on_with(provider: Provider, sent: list[Any]) -> None:
    client, add = console(), url(BillFetch, "add")
    source = BillSource.objects.create(provider=provider.slug, endpoint="https://api.openai.com/v1")
    today = timezone.now().date()
    for first, last, why in (
        (today, today, "This day is not over yet."),
        (today - timedelta(days=1), today - timedelta(days=2), "It ends before it begins."),
        (today - timedelta(days=500), today - timedelta(days=2), "At most 400 days."),
    ):
        page = submit(client, add, "billfetch_form", source=str(source.pk), first=str(first), last=str(last))
        assert why in page.content.decode()
    assert sent == [] and not source.fetches.exists()
    days = {"first": str(today - timedelta(days=40)), "last": str(today - timedelta(days=1))}
    answer = submit(client, add, "billfetch_form", source=str(source.pk), **days)
    made = source.fetches.get()
    change = url(BillFetch, "change", made.pk)
    assert (answer["Location"], sent) == (change, [("routing.fetch_bill", made.pk)])
    shown = client.get(change)
    assert shown["Refresh"] == "2" and "0 of about 4 pages" in shown.content.decode()
    base = change.removesuffix("change/")
    assert client.post(f"{base}go_on/").status_code == 302 and len(sent) == 1  # it waits already
    client.post(f"{base}stop/")
    made.refresh_from_db()
    assert made.state == "stopped" and "Refresh" not in client.get(change)
    client.post(f"{base}go_on/")
    made.refresh_from_db()
    assert (made.state, len(sent)) == ("waiting", 2)
    assert client.get(f"{base}stop/").status_code == 405
    assert console(superuser=False).post(f"{base}stop/").status_code == 404


def test_what_was_fetched_is_there_as_a_file(provider: Provider) -> None:
    source = BillSource.objects.create(provider=provider.slug, endpoint="https://api.openai.com/v1")
    made = source.fetches.create(first=date(2026, 10, 1), last=date(2026, 10, 2), asked_by="ann", state="failed",
                                 error="cost: status 500")  # fmt: skip
    for number in (1, 0):
        BillPage.objects.create(fetch=made, part="usage", number=number, content=b'{"data": [%d]}' % number)
    client, base = console(), url(BillFetch, "change", made.pk).removesuffix("change/")
    answer = client.get(f"{base}file/usage/")
    assert (answer.content, answer["Content-Type"]) == (b'[{"data": [0]},\n{"data": [1]}]', "application/json")
    assert f'filename="{provider.slug}-usage-2026-10-01-2026-10-02.json"' in answer["Content-Disposition"]
    assert [client.get(f"{base}file/{part}/").status_code for part in ("cost", "other")] == [404, 404]
    assert console(superuser=False).get(f"{base}file/usage/").status_code == 404
    html = client.get(url(BillFetch, "change", made.pk)).content.decode()
    assert "cost: status 500" in html and "2 of about 2 pages" in html
