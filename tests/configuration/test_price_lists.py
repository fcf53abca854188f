"""A price list from an address, over real sockets: looked at before it counts; whatever goes wrong changes nothing."""

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from threading import Event
from typing import Any, BinaryIO

import pytest
from django.conf import LazySettings
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone

from billing.models import PriceList, PriceProposal, Rate, TariffVersion
from routing.egress import Egress, parse_allow
from routing.models import Model, Offer, Provider
from routing.outside import Outside, outside
from routing.starter import fetching, wanted
from routing.starter.fetching import Changed, fetch, import_
from routing.starter.vendors import VENDORS
from routing.starter.wanted import ask, ask_if_due, decline
from tests.console.browser import app_role
from tests.stage.hook import Hook, hook, says

VENDOR = "ovhcloud"


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    """All tests here touch what is everybody's, and begin without what others left: what they do is rolled back."""
    with transaction.atomic():
        PriceList.objects.all().delete()
        yield
        transaction.set_rollback(True)


@pytest.fixture
def server(settings: LazySettings) -> Iterator[Hook]:
    """Whoever is at PRICES_URL."""
    with hook() as found:
        settings.PRICES_URL = f"{found.url}/prices/data.json"
        settings.EGRESS_ALLOW = [found.url]
        outside.cache_clear()
        yield found
    outside.cache_clear()


def swift(**prices: Any) -> bytes:
    """A list with one model, a dollar in and two out."""
    row = {"id": "swift", "match": {"equals": "swift"}, "prices": {"input_mtok": 1, "output_mtok": 2, **prices}}
    return json.dumps([{"id": VENDOR, "name": "OVH", "api_pattern": "", "models": [row]}]).encode()


def fetched(server: Hook, body: bytes = b"", by: str = "ann", **said: Any) -> PriceList:
    """The list, once a worker has fetched it; `said` is the whole answer, where `body` is not."""
    answer = said.get("answer", says(200, body=body))
    server.answers = lambda got, out: out.write(answer)
    row = ask(by, [VENDOR])
    with app_role():
        fetch(row.pk, outside())
    row.refresh_from_db()
    return row


def catalog() -> list[Any]:
    """All that an import could change."""
    tables = (Provider, Model, Offer, TariffVersion, Rate, PriceProposal)
    return [list(table.objects.order_by("pk").values()) for table in tables]


def test_it_is_looked_at_and_then_imported_once(server: Hook) -> None:
    before = catalog()
    row = fetched(server, swift())
    slug = f"{VENDOR}/swift"
    offer = f"+ offer {slug} at {VENDOR} as swift: input 1, output 2"
    assert (row.state, row.lines[-2:], row.bytes) == ("fetched", [f"+ model {slug}", offer], len(swift()))
    assert (catalog(), row.error) == (before, "")
    assert server.got[0].line == "GET /prices/data.json HTTP/1.1"
    assert import_(row, "ann") is not None
    version = TariffVersion.objects.get(tariff__slug=slug)
    assert version.note == f"genai-prices published {row.asked_at:%Y-%m-%d}, SHA-256 {row.sha256[:16]}"
    assert dict(version.rates.values_list("item", "charge")) == {"input": Decimal(1), "output": Decimal(2)}
    row.refresh_from_db()
    assert (row.state, row.decided_by, row.content) == ("imported", "ann", None)
    after = catalog()
    assert import_(row, "bob") is None and not decline(row, "bob")
    fetch(row.pk, outside())  # a task that is delivered again
    assert (len(server.got), catalog()) == (1, after)
    assert fetched(server, swift()).state == "same"


def test_a_price_that_is_hard_to_believe_waits_for_somebody_else(server: Hook) -> None:
    import_(fetched(server, swift()), "ann")
    row = fetched(server, swift(input_mtok=100))
    assert (row.held, row.lines) == (1, [f"? tariff version {VENDOR}/swift is held for approval: input 1 -> 100"])
    import_(row, "ann")
    held = PriceProposal.objects.get(tariff__slug=f"{VENDOR}/swift")
    assert (held.proposed_by, held.decision, held.rates) == (
        "ann",
        "",
        [["input", 0, *2 * ["100.000000"]], ["output", 0, *2 * ["2.000000"]]],
    )
    assert TariffVersion.objects.filter(tariff__slug=f"{VENDOR}/swift").count() == 1


def test_what_was_not_shown_is_not_imported(server: Hook) -> None:
    row = fetched(server, swift())
    Model.objects.create(slug=f"{VENDOR}/swift", name="Made meanwhile")
    before = catalog()
    with pytest.raises(Changed):
        import_(row, "ann")
    row.refresh_from_db()
    assert (catalog(), row.state) == (before, "fetched")
    assert not [line for line in row.lines if line.startswith("+ model")]
    assert decline(row, "bob") and not decline(row, "cid") and import_(row, "cid") is None
    row.refresh_from_db()
    assert (row.state, row.decided_by, catalog()) == ("declined", "bob", before)


LIES: dict[str, tuple[bytes, str]] = {
    "moved": (says(302, "Location: https://elsewhere.example/"), "status 302"),
    "gone": (says(404), "status 404"),
    "not whole": (says(200, body=swift())[:-1], "peer closed connection"),
    "wrong JSON": (says(200, body=b"<html>"), "it is no JSON"),
    "another list": (says(200, body=b'{"data": []}'), "the list is no list"),
    "NaN": (says(200, body=swift().replace(b": 1,", b": NaN,")), "NaN is no number"),
    "a name twice": (says(200, body=swift().replace(b": 1,", b': 1, "input_mtok": 2,')), "a name stands twice"),
    "below nothing": (says(200, body=swift(input_mtok=-1)), "is not within 0 and 1,000,000"),
    "compressed": (says(200, "Content-Encoding: gzip", body=b"\x1f\x8b\x08"), "it is not UTF-8"),
    "no HTTP": (b"\x00\x00\x00", "illegal request line"),
}


@pytest.mark.parametrize("lie", LIES)
def test_whatever_the_other_side_says_nothing_changes(server: Hook, lie: str) -> None:
    answer, why = LIES[lie]
    before = catalog()
    row = fetched(server, answer=answer)
    assert (row.state, row.content, row.lines) == ("failed", None, [])
    assert why in row.error
    assert (catalog(), len(server.got)) == (before, 1)
    assert import_(row, "ann") is None
    with pytest.raises(CommandError, match="Nothing was changed"):
        call_command("import_catalog", "--fetch", "--yes", stdout=StringIO())
    assert catalog() == before


def test_a_list_without_an_end_is_read_so_far_and_so_long(server: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"

    def pours(got: Any, out: BinaryIO) -> None:
        out.write(head)
        while True:
            out.write(b" " * 65536)

    def rests(got: Any, out: BinaryIO) -> None:
        out.write(head)
        out.flush()
        done.wait(20)

    done = Event()
    before = catalog()
    server.answers = pours
    row = ask("ann", [VENDOR])
    fetch(row.pk, outside())
    row.refresh_from_db()
    assert (row.state, row.error) == ("failed", "the answer is longer than 8,388,608 bytes")
    monkeypatch.setattr(fetching, "SECONDS", 0.2)
    server.answers = rests
    row = ask("ann", [VENDOR])
    fetch(row.pk, outside())
    done.set()
    row.refresh_from_db()
    assert (row.state, row.error, catalog()) == ("failed", "no answer within 0.2 s", before)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://127.0.0.1/data.json", "its address may not be dialled"),
        ("https://169.254.169.254/latest/meta-data", "its address may not be dialled"),
        ("https://[::1]/data.json", "its address may not be dialled"),
        ("http://prices.example/data.json", "its address may not be dialled"),
        ("file:///etc/passwd", "its address is none"),
        ("https://user:pass@prices.example/data.json", "its address is none"),
    ],
)
def test_what_the_dialler_does_not_dial_is_not_fetched(settings: LazySettings, url: str, why: str) -> None:
    settings.PRICES_URL = url
    row = ask("ann", [VENDOR])
    fetch(row.pk, Outside(Egress(parse_allow([]))))
    row.refresh_from_db()
    assert row.state == "failed" and why in row.error
    assert "pass" not in row.error.replace("password", "")


def test_it_is_fetched_by_itself_as_often_as_the_setting_says(settings: LazySettings, server: Hook) -> None:
    Provider.objects.filter(slug__in=[vendor.slug for vendor in VENDORS]).delete()
    assert settings.PRICES_HOURS == 0 and ask_if_due() is None
    settings.PRICES_HOURS = 24
    assert ask_if_due() is None  # there is nothing whose prices could change
    Provider.objects.create(slug=VENDOR, name="OVH", base_url="https://ovh.example/v1")
    with app_role():
        first = ask_if_due()
    assert first is not None and (first.vendors, first.asked_by) == (VENDOR, "")
    assert ask_if_due() is None
    server.answers = lambda got, out: out.write(says(200, body=swift()))
    fetch(first.pk, outside())
    PriceList.objects.filter(pk=first.pk).update(asked_at=timezone.now() - timedelta(hours=24))
    second = ask_if_due()
    assert second is not None
    fetch(second.pk, outside())
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, first.decided_by, second.state) == ("declined", "a newer list", "fetched")
    assert not Offer.objects.filter(model__slug=f"{VENDOR}/swift").exists()


def test_only_the_newest_lists_are_kept_and_a_lost_worker_is_told() -> None:
    rows = [ask("ann", [VENDOR]) for _ in range(wanted.KEPT + 3)]
    assert PriceList.objects.filter(pk__in=[row.pk for row in rows]).count() == wanted.KEPT
    PriceList.objects.filter(pk=rows[-1].pk).update(state="fetching", began_at=timezone.now() - fetching.LOST)
    fetch(rows[0].pk, outside())  # which is not kept any more
    rows[-1].refresh_from_db()
    assert (rows[-1].state, rows[-1].error) == ("failed", "its worker was lost")


def test_the_command_shows_the_fetched_list_and_imports_it(server: Hook) -> None:
    server.answers = lambda got, out: out.write(says(200, body=swift()))
    out = StringIO()
    call_command("import_catalog", "--provider", VENDOR, "--fetch", "--yes", stdout=out)
    assert f"+ offer {VENDOR}/swift at {VENDOR} as swift: input 1, output 2\n" in out.getvalue()
    assert "differences to genai-prices published" in out.getvalue()
    assert Offer.objects.filter(model__slug=f"{VENDOR}/swift", active=True).exists()
    call_command("import_catalog", "--provider", VENDOR, f"--fetch={server.url}/other.json", "--yes", stdout=out)
    assert server.got[-1].line == "GET /other.json HTTP/1.1" and "No difference to" in out.getvalue()


def test_a_worker_that_began_a_moment_ago_is_not_lost(server: Hook) -> None:
    long_ago, now = timezone.now() - timedelta(minutes=11), timezone.now()
    waited = ask("", [VENDOR])
    PriceList.objects.filter(pk=waited.pk).update(state="fetching", asked_at=long_ago, began_at=now)
    fetched(server, swift())  # another worker looks for lost ones
    waited.refresh_from_db()
    assert (waited.state, waited.error) == ("fetching", "")


def test_what_somebody_is_still_to_look_at_is_kept(server: Hook) -> None:
    theirs = fetched(server, swift())
    for _ in range(wanted.KEPT + 2):
        ask("", [VENDOR])
    assert PriceList.objects.get(pk=theirs.pk).state == "fetched"
    assert PriceList.objects.count() == wanted.KEPT + 1
