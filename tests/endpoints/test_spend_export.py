"""What an organization spent as a file over the API: its own, told apart as it asks, without what the operator pays."""

import csv
import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest

from billing.models import Mark, ReportTags
from billing.rollups import roll_up_usage
from tests.console.browser import make_usage
from tests.endpoints.test_exports import key
from tests.stage.cast import Tenant
from tests.stage.product import Gateway
from tests.stage.speech import error

PATH = "/v1/exports/spend"


def get(gateway: Gateway, secret: str, **asked: Any) -> httpx.Response:
    return gateway.client.get(PATH, params=asked, headers={"Authorization": f"Bearer {secret}"})


def rows(answer: httpx.Response) -> list[dict[str, str]]:
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text, newline=""), strict=True))


@pytest.fixture
def spent(alice: Tenant, charlie: Tenant) -> Tenant:
    """Alice by two end users and nobody, of two teams and none; Charlie by one of the same names."""
    for tenant in (alice, charlie):
        ReportTags.objects.create(organization=tenant.organization, names=["team"])
    now = datetime.now(UTC)
    make_usage(alice, now, end_user="=ann", metadata={"team": "red"}, charge=Decimal("0.000000000001"), images=2)
    make_usage(alice, now, end_user="bob", metadata={"team": "red"}, charge=Decimal(2))
    make_usage(alice, now, metadata={"team": "blue"}, charge=Decimal(1))
    make_usage(charlie, now, end_user="bob", metadata={"team": "red"}, charge=Decimal(1000))
    Mark.objects.filter(name="tags").delete()
    assert roll_up_usage()
    return alice


def test_it_is_told_apart_by_end_user_and_by_tag(gateway: Gateway, spent: Tenant) -> None:
    secret = key(gateway, spent, "export")
    answer = get(gateway, secret, by="end_user")
    found = rows(answer)
    assert [(row["end_user"], row["end_user_is"], row["requests"], row["charge"], row["images"]) for row in found] == [
        ("bob", "named", "1", "2.000000000000", "0"), ("", "none", "1", "1.000000000000", "0"),
        ("'=ann", "named", "1", "0.000000000001", "2"),
    ]  # fmt: skip
    assert not {"provider_cost", "margin", "uncosted", "provider_cost_before", "provider"} & set(found[0])
    today = datetime.now(UTC).date()
    named = f'attachment; filename="spend-{today.replace(day=1)}-{today}-by-end_user.csv"'
    assert answer.headers["content-disposition"] == named and "no-store" in answer.headers["cache-control"]
    by_team = rows(get(gateway, secret, by="tag,model", tag="team"))
    assert [(row["tag"], row["model"], row["charge"]) for row in by_team] == [
        ("red", "lab/model", "2.000000000001"), ("blue", "lab/model", "1.000000000000"),
    ]  # fmt: skip
    for asked in ({}, {"by": "day"}, {"by": "project,key"}, {"by": "month"}, {"by": "tag", "tag": "no-such"}):
        assert [row["charge"] for row in rows(get(gateway, secret, **asked))] == ["3.000000000001"], asked


def test_nothing_is_of_another_one(gateway: Gateway, spent: Tenant, charlie: Tenant) -> None:
    for by in ("end_user", "tag"):
        found = rows(get(gateway, key(gateway, charlie, "export"), by=by, tag="team"))
        assert [row["charge"] for row in found] == ["1000.000000000000"]


def test_other_formats(gateway: Gateway, spent: Tenant) -> None:
    import pyarrow.parquet

    secret = key(gateway, spent, "export")
    table = pyarrow.parquet.read_table(io.BytesIO(get(gateway, secret, by="end_user", format="parquet").content))
    assert table.column("end_user").to_pylist() == ["bob", "", "=ann"]
    assert sum(table.column("charge").to_pylist()) == Decimal("3.000000000001")
    assert get(gateway, secret, by="end_user", format="xlsx").content.startswith(b"PK")


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"by": "provider"}, "by"),
        ({"by": "organization"}, "by"),
        ({"by": "model,model"}, "by"),
        ({"by": "tag"}, "by"),
        ({"by": "end_user,tag", "tag": "team"}, "by"),
        ({"by": "model,"}, "by"),
        ({"format": "json"}, "format"),
        ({"starting_at": "2026-07-01", "ending_at": "2027-07-02"}, "starting_at"),
    ],
)
def test_what_makes_no_sense_is_refused(gateway: Gateway, spent: Tenant, asked: dict[str, str], param: str) -> None:
    answer = get(gateway, key(gateway, spent, "export"), **asked)
    assert (answer.status_code, error(answer)["param"]) == (400, param)


def test_it_is_for_export_keys(gateway: Gateway, spent: Tenant) -> None:
    for scope in ("inference", "management"):
        assert get(gateway, key(gateway, spent, scope)).status_code == 403


@pytest.mark.parametrize(("by", "most"), [("model", 366), ("end_user", 93), ("day,tag", 93)])
def test_so_many_days_are_told_apart_so(gateway: Gateway, alice: Tenant, by: str, most: int) -> None:
    secret, last = key(gateway, alice, "export"), date(2026, 3, 31)
    for days, status in ((most, 200), (most + 1, 400)):
        first = last - timedelta(days=days - 1)
        answer = get(gateway, secret, by=by, tag="team", starting_at=str(first), ending_at=str(last))
        assert answer.status_code == status, answer.text
