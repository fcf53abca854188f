"""A vendor's bill that is fetched, over real sockets: what is planted in it comes out with its exact amount."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, BinaryIO
from uuid import UUID

import pytest
from django.db import connection

from accounts.sealing import CannotOpen
from billing.bills.files import Form
from billing.bills.reconciling import reconcile
from billing.bills.sources import file_of
from billing.models import BillFetch, BillPage, BillSource, Reconciliation
from routing.bills import fetching
from routing.bills.fetching import go_on, run, stop
from routing.egress import Egress, parse_allow
from routing.models import Credential, Provider
from routing.outside import Outside
from tests.billing.bills.test_reconciling import COST, parts, used
from tests.console.browser import app_role, make_attempt, make_usage
from tests.routing.bills.account import Account, Used, account
from tests.stage.cast import Tenant
from tests.stage.hook import Got, says
from tests.stage.shelf import make_provider

FIRST, LAST = date(2026, 10, 1), date(2026, 11, 9)  # forty days: two pages a part
NOON = datetime(2026, 10, 5, 12, tzinfo=UTC)
SECRET = "sk-admin-of-ours"
KEYS = ("group_by", "api_key_id")


@pytest.fixture
def vendor() -> Iterator[Account]:
    with account() as found:
        yield found


@pytest.fixture
def provider(database: None) -> Provider:
    return make_provider("https://vendor.example/v1", "sk-secret-of-a-vendor")


def wanted(vendor: Account, provider: Provider, form: str = "openai", first: date = FIRST) -> BillFetch:
    """A fetch that waits for a worker."""
    source = BillSource(provider=provider.slug, form=form, endpoint=vendor.url)
    source.put(SECRET)
    source.save()
    return BillFetch.objects.create(source=source, first=first, last=LAST, asked_by="finance")


def fetched(vendor: Account, fetch: BillFetch, allow: bool = True) -> BillFetch:
    """The same once a worker has run it, with a worker's rights."""
    client = Outside(Egress(parse_allow([vendor.server.url] if allow else [])))
    with app_role():
        run(fetch.pk, client)
    fetch.refresh_from_db()
    return fetch


def plant(alice: Tenant, vendor: Account, provider: Provider, model: str = "model-1") -> None:
    """Two calls a day in the books; in the bill a call more, tokens more, dearer, and one less on the last day."""
    days = [NOON + timedelta(days=number) for number in range(4)] + [datetime(2026, 11, 9, 23, 59, 59, tzinfo=UTC)]
    for day in days:
        for _ in range(2):
            used(alice, provider, day, upstream_model=model)
    told = [Used(3, 3000, 1500, "0.0036"), Used(2, 2000, 1100, "0.00256"), Used(2, 2000, 1000, "0.0025"),
            Used(2, 2000, 1000, "0.0024"), Used(1, 1000, 500, "0.0012")]  # fmt: skip
    vendor.bill = {(day.date(), model): what for day, what in zip(days, told, strict=True)}


def lines(made: Reconciliation) -> dict[str, Any]:
    """The parts of each line that has a gap."""
    found = {f"{one.day:%m-%d}": (one.missing, one.tokens, one.price) for one in made.lines.all()}
    return {day: amounts for day, amounts in found.items() if any(amounts)}


def test_openais_bill_is_fetched_in_pages_and_each_planted_gap_found(
    alice: Tenant, vendor: Account, provider: Provider
) -> None:
    plant(alice, vendor, provider)
    fetch = fetched(vendor, wanted(vendor, provider))
    assert (fetch.state, fetch.error, fetch.pages.count()) == ("done", "", 4)
    assert fetch.made is not None
    assert (fetch.made.first, fetch.made.last, fetch.made.made_by) == (FIRST, LAST, "finance")
    assert lines(fetch.made) == {
        "10-05": (COST, 0, 0),
        "10-06": (0, Decimal("0.00016"), 0),
        "10-07": (0, 0, Decimal("0.0001")),
        "11-09": (-COST, 0, 0),
    }
    assert parts(fetch.made) == (0, Decimal("0.00016"), Decimal("0.0001"))
    span = [("start_time", "1790812800"), ("end_time", "1794268800"), ("bucket_width", "1d"), ("limit", "31")]
    usage, costs = "/v1/organization/usage/completions", "/v1/organization/costs"
    assert vendor.asked == [
        (usage, [*span, ("group_by", "model")]),
        (usage, [*span, ("group_by", "model"), ("page", "page_31")]),
        (costs, [*span, ("group_by", "line_item")]),
        (costs, [*span, ("group_by", "line_item"), ("page", "page_31")]),
    ]
    assert {got.headers["authorization"] for got in vendor.server.got} == {f"Bearer {SECRET}"}
    # It is there as an uploaded one would be: the same files are read by the same reader.
    files = [file_of(fetch, part) for part in fetching.PARTS]
    assert files[0][0] == f"{provider.slug}-usage-2026-10-01-2026-11-09.json"
    again = reconcile(provider.slug, Form.OPENAI, files, {}, "finance")
    assert (parts(again), again.files) == (parts(fetch.made), fetch.made.files)
    fetched(vendor, fetch)  # a task that is delivered again
    assert not go_on(fetch.pk)
    assert (len(vendor.asked), Reconciliation.objects.filter(provider=provider.slug).count()) == (4, 2)


def test_anthropics_bill_is_fetched_in_pages_and_each_planted_gap_found(
    alice: Tenant, vendor: Account, provider: Provider
) -> None:
    plant(alice, vendor, provider, "claude-opus-5-20260101")
    vendor.buckets = 7  # fewer a page than were asked for
    fetch = fetched(vendor, wanted(vendor, provider, "anthropic"))
    assert (fetch.state, fetch.error, fetch.pages.count()) == ("done", "", 12)
    assert fetch.made is not None
    token = Decimal("0.0000004")
    assert lines(fetch.made) == {  # calls are not counted: a call more is its tokens
        "10-05": (0, COST, 0),
        "10-06": (0, 100 * 4 * token, 0),
        "10-07": (0, 0, Decimal("0.0001")),
        "11-09": (0, -COST, 0),
    }
    assert [path for path, _ in vendor.asked] == [
        *6 * ["/v1/organizations/usage_report/messages"],
        *6 * ["/v1/organizations/cost_report"],
    ]
    span = [("starting_at", "2026-10-01T00:00:00Z"), ("ending_at", "2026-11-10T00:00:00Z"), ("bucket_width", "1d")]
    assert vendor.asked[0][1] == [*span, ("limit", "31"), ("group_by[]", "model")]
    assert vendor.asked[-1][1] == [*span, ("limit", "31"), ("group_by[]", "description"), ("page", "page_35")]
    headers = [(got.headers["x-api-key"], got.headers["anthropic-version"]) for got in vendor.server.got]
    assert set(headers) == {(SECRET, "2023-06-01")} and "authorization" not in vendor.server.got[0].headers


def test_openais_bill_is_compared_by_key_where_it_was_said_which_is_which(
    alice: Tenant, vendor: Account, provider: Provider
) -> None:
    """A call too many of one key and a call too few of another are not one another's."""
    first = provider.credentials.get()
    first.billed_as = "key_1"
    first.save()
    second = Credential.objects.create(provider=provider, name="key_2", active=False)  # called as the bill does
    day = NOON.date()
    for credential in (first, first, second, second, None):
        row = make_usage(alice, NOON, provider=provider.slug, upstream_model="model-1-2026-01-01")
        make_attempt(row, id=UUID(int=row.pk.int + 1), credential=credential and credential.pk)
    vendor.bill = {
        (day, "model-1", "key_1"): Used(3, 3000, 1500, "0.0036"),
        (day, "model-1", "key_2"): Used(1, 1000, 500, "0.0012"),
        (day, "model-1", "key_of_others"): Used(1, 1000, 500, "0.0012"),
        (day, "model-2", ""): Used(1, 1000, 500, "0.0012"),
    }
    fetch = fetched(vendor, wanted(vendor, provider))
    assert (fetch.state, fetch.error, fetch.by_key) == ("done", "", True)
    assert [asked[4:6] for _, asked in vendor.asked] == [
        *2 * [[("group_by", "model"), KEYS]],
        *2 * [[("group_by", "line_item"), KEYS]],
    ]
    assert fetch.made is not None
    found = {(one.model, one.credential): one.missing for one in fetch.made.lines.all()}
    assert found == {
        ("model-1", "key_1"): COST,
        ("model-1", "key_2"): -COST,
        ("model-1", "key_of_others"): COST,
        ("model-1", ""): -COST,
        ("model-2", ""): COST,
    }


def test_one_that_has_begun_goes_on_as_it_was_grouped(alice: Tenant, vendor: Account, provider: Provider) -> None:
    plant(alice, vendor, provider)
    fetch = wanted(vendor, provider)

    def stops(got: Got, out: BinaryIO) -> None:
        if len(vendor.asked) == 1:
            stop(fetch.pk)
            Credential.objects.filter(provider=provider).update(billed_as="key_1")
            connection.close()  # this thread's
        vendor.answer(got, out)

    vendor.server.answers = stops
    fetched(vendor, fetch)
    assert go_on(fetch.pk)
    fetched(vendor, fetch)
    assert (fetch.state, fetch.by_key) == ("done", False)
    assert not any(KEYS in asked for _, asked in vendor.asked)
    assert fetch.made is not None and set(fetch.made.lines.values_list("credential", flat=True)) == {""}


def test_nothing_is_locked_while_a_bill_is_read(alice: Tenant, vendor: Account, provider: Provider) -> None:
    plant(alice, vendor, provider)
    fetch = wanted(vendor, provider)
    inside = list[bool]()

    def watch(execute: Any, statement: str, *args: Any) -> Any:
        if "from billing_usage u" in statement and not inside:  # the books are read, as the bill has been
            inside.append(connection.in_atomic_block)
            stop(fetch.pk)
        return execute(statement, *args)

    with connection.execute_wrapper(watch):
        fetched(vendor, fetch)
    assert (inside, fetch.state, fetch.made) == ([False], "stopped", None)
    assert not Reconciliation.objects.filter(provider=provider.slug).exists()


def test_it_is_stopped_after_a_page_and_goes_on_after_it(alice: Tenant, vendor: Account, provider: Provider) -> None:
    plant(alice, vendor, provider)
    fetch = wanted(vendor, provider)

    def stops(got: Got, out: BinaryIO) -> None:
        if len(vendor.asked) == 1:  # while the second page is asked for
            stop(fetch.pk)
            connection.close()  # this thread's
        vendor.answer(got, out)

    vendor.server.answers = stops
    fetched(vendor, fetch)
    assert (fetch.state, fetch.made, fetch.pages.count()) == ("stopped", None, 2)
    fetched(vendor, fetch)  # a task that is delivered again
    assert (fetch.state, len(vendor.asked)) == ("stopped", 2)
    assert go_on(fetch.pk) and not go_on(fetch.pk)
    fetched(vendor, fetch)
    assert (fetch.state, fetch.stop, fetch.pages.count(), len(vendor.asked)) == ("done", False, 4, 4)
    assert fetch.made is not None and parts(fetch.made) == (0, Decimal("0.00016"), Decimal("0.0001"))
    stop(fetch.pk)
    fetch.refresh_from_db()
    assert (fetch.state, fetch.stop) == ("done", False)


def test_a_worker_that_was_lost_keeps_nothing_once_another_has_it(
    alice: Tenant, vendor: Account, provider: Provider
) -> None:
    plant(alice, vendor, provider)
    fetch = wanted(vendor, provider)
    inside: list[str] = []

    def takes(got: Got, out: BinaryIO) -> None:
        if not inside:  # the first worker waits for its first page; it is taken for lost
            inside.append("begun")
            assert not go_on(fetch.pk)
            BillFetch.objects.filter(pk=fetch.pk).update(moved_at=datetime(2026, 1, 1, tzinfo=UTC))
            assert go_on(fetch.pk)
            run(fetch.pk, Outside(Egress(parse_allow([vendor.server.url]))))
            inside.append(BillFetch.objects.get(pk=fetch.pk).state)
            connection.close()
        vendor.answer(got, out)

    vendor.server.answers = takes
    fetched(vendor, fetch)
    assert inside == ["begun", "done"]
    assert (fetch.state, fetch.error, fetch.run, fetch.pages.count()) == ("done", "", 2, 4)
    assert Reconciliation.objects.filter(provider=provider.slug).count() == 1


def page(**page: Any) -> bytes:
    """An answer."""
    return says(200, body=json.dumps({"data": [], "has_more": False, **page}).encode())


def result(**amounts: Any) -> bytes:
    """A page with a bucket of 2026-10-05, which reads as usage or as cost."""
    row = {"model": "m", "num_model_requests": 1, "input_tokens": 1, "output_tokens": 1, "line_item": "m",
           "amount": {"value": 1, "currency": "usd"}, **amounts}  # fmt: skip
    return page(data=[{"start_time": 1791158400, "results": [row]}])


LIES: dict[str, tuple[bytes, str]] = {
    "moved": (says(302, "Location: https://elsewhere.example/"), "usage: status 302"),
    "refused": (says(401, body=SECRET.encode()), "usage: status 401"),
    "busy": (says(429), "usage: status 429"),
    "not whole": (page()[:-1], "peer closed connection"),
    "no JSON": (says(200, body=b"<html>"), "an answer is no JSON"),
    "deep": (says(200, body=b"[" * 100_000), "an answer is no JSON"),
    "no page": (says(200, body=b"[]"), "an answer is no page of buckets"),
    "whether there is more": (page(has_more="no"), "a page does not say whether there are more"),
    "where more is": (page(has_more=True), "a page says that there are more, and not where"),
    "a long way": (page(has_more=True, next_page="x" * 2001), "a page says that there are more, and not where"),
    "a circle": (page(has_more=True, next_page="page_1"), "a page leads back to one before it"),
    "nothing": (page(), "Line 1 has not all of the columns"),
    "a negative count": (result(input_tokens=-1, amount=None), "input_tokens is no count: '-1'"),
    "NaN": (result(amount={"value": float("nan"), "currency": "usd"}), "amount_value is no amount: 'NaN'"),
}


@pytest.mark.parametrize("lie", LIES)
def test_whatever_the_other_side_says_nothing_is_compared(vendor: Account, provider: Provider, lie: str) -> None:
    answer, why = LIES[lie]
    vendor.server.answers = lambda got, out: out.write(answer)
    fetch = fetched(vendor, wanted(vendor, provider))
    assert (fetch.state, fetch.made) == ("failed", None)
    assert why in fetch.error and SECRET not in fetch.error
    assert not Reconciliation.objects.filter(provider=provider.slug).exists()
    assert go_on(fetch.pk)


def test_a_bill_of_other_days_is_not_compared(alice: Tenant, vendor: Account, provider: Provider) -> None:
    plant(alice, vendor, provider)
    fetch = wanted(vendor, provider)
    BillFetch.objects.filter(pk=fetch.pk).update(first=date(2026, 11, 1))
    vendor.bill = {(place[0] + timedelta(days=40), place[1]): what for place, what in vendor.bill.items()}
    answered = vendor.answer

    def shifted(got: Got, out: BinaryIO) -> None:  # whatever it is asked for
        answered(
            Got(got.line.replace("1793491200", "1790812800").replace("1794268800", "1798761600"), got.headers, b""), out
        )

    vendor.server.answers = shifted
    vendor.buckets = 100
    fetched(vendor, fetch)
    assert fetch.state == "failed" and fetch.error.startswith("It has days beside those that were asked for")


def test_pages_and_bytes_are_bounded(vendor: Account, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MOST_PAGES", 3)
    vendor.buckets = 1
    fetch = fetched(vendor, wanted(vendor, provider))
    assert (fetch.error, fetch.pages.count()) == ("its usage has more than 3 pages", 3)
    monkeypatch.setattr(fetching, "MOST_PAGES", 1000)
    kept = sum(len(bytes(one.content)) for one in fetch.pages.all())
    monkeypatch.setattr(fetching, "MOST_BYTES", kept + 2000 + 100)
    assert go_on(fetch.pk)
    fetched(vendor, fetch)
    assert (fetch.error, fetch.pages.count()) == ("the answer is longer than 100 bytes", 3)
    monkeypatch.setattr(fetching, "MOST_SECONDS", -1.0)
    assert go_on(fetch.pk)
    assert fetched(vendor, fetch).error.startswith("it takes long: go on")
    assert len(vendor.asked) == 4


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("https://127.0.0.1/v1", "its address may not be dialled"),
        ("https://169.254.169.254/v1", "its address may not be dialled"),
        ("http://vendor.example/v1", "its address may not be dialled"),
        ("https://vendor.example/v1?key=1", "its address is none"),
    ],
)
def test_what_the_dialler_does_not_dial_is_not_asked(
    vendor: Account, provider: Provider, endpoint: str, why: str
) -> None:
    fetch = wanted(vendor, provider)
    source = fetch.source
    source.endpoint = endpoint
    source.put(SECRET)
    source.save()
    fetched(vendor, fetch, allow=False)
    assert fetch.state == "failed" and why in fetch.error and vendor.asked == []


def test_its_secret_is_for_its_address_alone(vendor: Account, provider: Provider) -> None:
    fetch = wanted(vendor, provider)
    BillSource.objects.filter(pk=fetch.source.pk).update(endpoint=f"{vendor.url}/elsewhere")
    with pytest.raises(CannotOpen):
        BillSource.objects.get(pk=fetch.source.pk).secret()
    fetched(vendor, fetch)
    assert (fetch.error, vendor.asked) == ("its secret cannot be opened: type it again", [])
    assert not BillPage.objects.filter(fetch=fetch).exists()
