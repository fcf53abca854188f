"""Generations as a file over the API: for an export key, of its own organization, without what is the operator's."""

import csv
import gzip
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from billing.exports.generations import COLUMNS
from billing.exports.manifest import READERS
from billing.issuing import credit_note, issue
from billing.models import DroppedMonth
from tests.console.browser import make_usage
from tests.stage.books import stated
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize
from tests.stage.speech import error

PATH = "/v1/exports/generations"
JULY = {"starting_at": "2026-07-01", "ending_at": "2026-07-31"}
BORDER = datetime(2026, 8, 1, tzinfo=UTC)
OPERATORS = {"provider", "upstream_model", "upstream_id", "provider_cost", "tariff_version"}


def key(gateway: Gateway, tenant: Tenant, *scopes: str) -> str:
    _, secret = make_key(tenant.project, name="for finance", scopes=list(scopes))
    synchronize(gateway)
    return secret


def get(gateway: Gateway, secret: str, **asked: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {secret}", "Accept-Encoding": asked.pop("coding", "gzip")}
    return gateway.client.get(PATH, params=asked, headers=headers)


def rows(answer: httpx.Response) -> list[dict[str, str]]:
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text, newline=""), strict=True))


def test_a_month_of_one_s_own(gateway: Gateway, alice: Tenant, charlie: Tenant) -> None:
    secret, theirs = key(gateway, alice, "export"), key(gateway, charlie, "export")
    at = [
        BORDER - timedelta(days=31),
        BORDER - timedelta(milliseconds=1),
        BORDER,
        BORDER - timedelta(days=31, seconds=1),
    ]
    made = [make_usage(alice, at=when, charge=Decimal("0.000000000007"), end_user="=cmd()") for when in at]
    answer = get(gateway, secret, **JULY)
    found = rows(answer)
    assert [row["id"] for row in found] == [made[0].pk.hex, made[1].pk.hex]
    assert sum(Decimal(row["charge"]) for row in found) == Decimal("0.000000000014")
    assert {row["end_user"] for row in found} == {"'=cmd()"}
    assert list(found[0]) == [name for name in COLUMNS if name not in OPERATORS]
    assert answer.headers["content-disposition"] == 'attachment; filename="generations-2026-07-01-2026-07-31.csv"'
    assert (answer.headers["content-encoding"], answer.headers["vary"]) == ("gzip", "accept-encoding")
    plain = get(gateway, secret, **JULY, coding="identity")
    assert "content-encoding" not in plain.headers and plain.content == answer.content
    assert rows(get(gateway, theirs, **JULY)) == []


def test_it_goes_on_after_the_last_whole_line(gateway: Gateway, alice: Tenant) -> None:
    secret = key(gateway, alice, "export")
    made = [make_usage(alice, at=BORDER - timedelta(minutes=n)) for n in (3, 2, 1)]
    whole = get(gateway, secret, **JULY).text.splitlines(keepends=True)
    for number, usage in enumerate(made, 2):
        assert get(gateway, secret, **JULY, after=usage.pk.hex).text == "".join(whole[number:])
    # Whatever it names, what comes is of the span that was asked for.
    assert len(get(gateway, secret, **JULY, after="0" * 32).text.splitlines()) == 3
    assert get(gateway, secret, **JULY, after="f" * 32).text == ""


def test_the_running_month_is_there_without_being_asked_for(gateway: Gateway, alice: Tenant) -> None:
    usage = make_usage(alice)
    make_usage(alice, at=datetime.now(UTC) + timedelta(hours=1))  # a file ends at the moment that it is asked for
    assert [row["id"] for row in rows(get(gateway, key(gateway, alice, "export")))] == [usage.pk.hex]


def test_more_rows_than_a_page_are_all_there_once(gateway: Gateway, alice: Tenant) -> None:
    secret, first = key(gateway, alice, "export"), make_usage(alice, at=BORDER - timedelta(hours=1))
    ids = [first.pk.hex]
    for _ in range(2500):
        first.pk = UUID(int=first.pk.int + (1 << 80))
        ids.append(first.pk.hex)
        first.save(force_insert=True)
    with gateway.client.stream(
        "GET", PATH, params=JULY, headers={"Authorization": f"Bearer {secret}", "Accept-Encoding": "gzip"}
    ) as answer:
        text = gzip.decompress(b"".join(answer.iter_raw())).decode()
    found = [row["id"] for row in csv.DictReader(io.StringIO(text, newline=""))]
    assert found == ids


FORMATS = {
    "csv": ("text/csv; charset=utf-8", "gzip"),
    "xlsx": ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", None),
    "parquet": ("application/vnd.apache.parquet", None),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("layout", ["generations", "focus-1.2", "focus-1.4"])
def test_each_layout_in_each_format(
    gateway: Gateway, alice: Tenant, charlie: Tenant, layout: str, format: str, tmp_path: Path
) -> None:
    make_usage(charlie, at=BORDER - timedelta(hours=1))
    made = [make_usage(alice, at=BORDER - timedelta(minutes=n)) for n in (3, 2)]
    answer = get(gateway, key(gateway, alice, "export"), **JULY, layout=layout, format=format)
    assert answer.status_code == 200, answer.text
    assert (answer.headers["content-type"], answer.headers.get("content-encoding")) == FORMATS[format]
    name = f"{layout}-2026-07-01-2026-07-31.{format}"
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    file = tmp_path / name
    file.write_bytes(answer.content)
    shown = list(READERS[format](file, ("id" if layout == "generations" else "x_GenerationId",)))
    ids = [row[name] for row in shown for name in row if name in ("id", "x_GenerationId")]
    each = 1 if layout == "generations" else 2
    assert ids == [usage.pk.hex for usage in made for _ in range(each)]
    for told in ("vendor", "0.0012", "model-1"):  # what the operator pays, and to whom
        assert format != "csv" or told not in answer.text


def test_a_focus_file_goes_on_after_a_whole_generation(gateway: Gateway, alice: Tenant) -> None:
    secret = key(gateway, alice, "export")
    made = [make_usage(alice, at=BORDER - timedelta(minutes=n)) for n in (3, 2, 1)]
    whole = get(gateway, secret, **JULY, layout="focus-1.2").text.splitlines(keepends=True)
    assert len(whole) == 1 + 2 * 3
    for number, usage in enumerate(made, 1):
        rest = get(gateway, secret, **JULY, layout="focus-1.2", after=usage.pk.hex).text
        assert rest == "".join(whole[1 + 2 * number :])


@pytest.mark.parametrize("scope", ["inference", "files", "management"])
def test_no_other_key_reads_it(gateway: Gateway, alice: Tenant, scope: str) -> None:
    refused = get(gateway, key(gateway, alice, scope), **JULY)
    assert (refused.status_code, error(refused)["code"]) == (403, "missing_scope")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/files"),
        ("GET", "/v1/management/usage"),
        ("GET", "/v1/management/generation?id=" + "0" * 32),
        ("GET", "/v1/models"),
    ],
)
def test_its_key_reads_nothing_else(gateway: Gateway, alice: Tenant, method: str, path: str) -> None:
    secret = key(gateway, alice, "export")
    refused = gateway.client.request(method, path, headers={"Authorization": f"Bearer {secret}"})
    assert (refused.status_code, error(refused)["code"]) == (403, "missing_scope")


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"starting_at": "2026-07-02", "ending_at": "2026-07-01"}, "starting_at"),
        ({"starting_at": "2025-01-01", "ending_at": "2026-07-01"}, "starting_at"),
        ({"starting_at": "yesterday"}, "starting_at"),
        ({"ending_at": "2026-02-30"}, "ending_at"),
        ({**JULY, "after": "x"}, "after"),
        ({**JULY, "layout": "focus"}, "layout"),
        ({**JULY, "layout": "focus-1.4'; drop table billing_usage; --"}, "layout"),
        ({**JULY, "format": "XLSX"}, "format"),
        ({**JULY, "format": "../csv"}, "format"),
        ({**JULY, "format": "parquet", "after": "0" * 32}, "after"),
        ({**JULY, "format": "xlsx", "after": "0" * 32}, "after"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    gateway: Gateway, alice: Tenant, asked: dict[str, str], param: str
) -> None:
    refused = get(gateway, key(gateway, alice, "export"), **asked)
    assert (refused.status_code, error(refused)["param"]) == (400, param)


def test_days_that_are_not_kept_are_refused_not_left_out(gateway: Gateway, alice: Tenant) -> None:
    secret = key(gateway, alice, "export")
    dropped = DroppedMonth.objects.create(table="usage", month=BORDER.date().replace(month=7), rows=0)
    try:
        answer = get(gateway, secret, **JULY)
        assert (answer.status_code, error(answer)["param"]) == (400, "starting_at")
        assert "kept since 2026-08-01" in error(answer)["message"]
        assert rows(get(gateway, secret, starting_at="2026-08-01", ending_at="2026-08-31")) == []
    finally:
        dropped.delete()
    assert rows(get(gateway, secret, **JULY)) == []


def test_a_focus_file_ends_with_the_credit_notes_of_its_days(gateway: Gateway, alice: Tenant, charlie: Tenant) -> None:
    for tenant in (alice, charlie):
        issue(credit_note(str(stated(tenant)), "0.5", "An outage", "finance"))
        make_usage(tenant)
    for layout in ("focus-1.2", "focus-1.4"):
        found = rows(get(gateway, key(gateway, alice, "export"), layout=layout))
        assert [(row["ChargeCategory"], row["BilledCost"]) for row in found] == [
            ("Usage", "0.000440000000"), ("Usage", "0.000880000000"), ("Adjustment", "-0.500000000000"),
        ]  # fmt: skip
        assert {row["BillingAccountId"] for row in found} == {alice.organization.pk.hex}
    # Going on after the last generation: what is behind it, whole. And of other days nothing.
    rest = get(gateway, key(gateway, alice, "export"), layout="focus-1.2", after=found[0]["x_GenerationId"]).text
    assert rest.count("\r\n") == 1 and "Credit note" in rest
    assert rows(get(gateway, key(gateway, alice, "export"), layout="focus-1.2", **JULY)) == []
