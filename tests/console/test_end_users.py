"""Spend by end user and by tag, and the page of an organization's end users with what their budgets have left."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from billing.models import Budget, Mark, ReportTags, Usage
from billing.rollups import roll_up_usage
from tests.billing.test_export_formats import sheets
from tests.console.browser import console, context_of, exact, make_usage, url
from tests.console.test_spend import EXPORT, SPEND, follow, of, shown, table
from tests.stage.cast import Tenant

USERS = reverse("end_users")
NOW = datetime.now(UTC)


@pytest.fixture
def spent(alice: Tenant, charlie: Tenant) -> Tenant:
    """Alice: ann and bob, of teams; Charlie's ann is dearer."""
    for tenant in (alice, charlie):
        ReportTags.objects.create(organization=tenant.organization, names=["team", "cost center"])
    make_usage(alice, NOW, end_user="ann", metadata={"team": "red"}, charge=Decimal(3), provider_cost=Decimal(1))
    make_usage(alice, NOW, end_user="bob", metadata={"team": "=red"}, charge=Decimal(2), model="lab/b", images=2)
    make_usage(alice, NOW, charge=Decimal("0.000000000001"), metadata={"cost center": "7"}, provider_cost=Decimal(0))
    make_usage(charlie, NOW, end_user="ann", metadata={"team": "red"}, charge=Decimal(1000))
    Mark.objects.filter(name="tags").delete()
    assert roll_up_usage()
    return alice


def users(asked: dict[str, Any]) -> dict[str, Any]:
    """What the page of end users is told."""
    response = console().get(USERS, asked)
    assert response.status_code == 200
    return context_of(response)


def digits(shown: str) -> str:
    return exact(shown)[1:] if shown else ""


def test_spend_is_told_apart_by_end_user_and_by_tag(spent: Tenant) -> None:
    by_user = table({**of(spent), "by": "end_user"})
    assert [(row[0], row[1], row[3], row[5]) for row in by_user] == [
        ("ann", "1", "$3", "$2"), ("bob", "1", "$2", "$1.9988"), ("(none)", "1", "$0.000000000001", "$0.000000000001"),
    ]  # fmt: skip
    # Without a name the tag is the organization's first.
    found = shown({**of(spent), "by": ["tag", "model"]})
    assert found["heads"][0] == ("Tag team", False) and found["tags"] == ["team", "cost center"]
    assert [row[0:2] for row in table({**of(spent), "by": ["tag", "model"]})] == [
        ("red", "lab/model"), ("=red", "lab/b"), ("(none)", "lab/model"),
    ]  # fmt: skip
    assert [row[0] for row in table({**of(spent), "by": "tag", "tag": "cost center"})] == ["(none)", "7"]
    assert found["lines"][1]["further"] == "2 images"
    totals = {exact(shown({**of(spent), "by": by})["total"]["charge"]) for by in ("end_user", "tag", "key", "day")}
    assert totals == {"$5.000000000001"}


def test_their_links_narrow(spent: Tenant) -> None:
    ann = follow(shown({**of(spent), "by": "end_user"})["lines"][0]["cells"][0][1])
    assert (ann["asked"].by, exact(ann["total"]["charge"])) == (("model",), "$3")
    assert [one["title"] for one in ann["chosen"]] == ["Organization", "End user"]
    assert "end_user=ann" in ann["generations"] and console().get(ann["generations"]).status_code == 200
    generations = console().get(ann["generations"]).content.decode()
    assert len(re.findall(r'class="field-created_at', generations)) <= 1
    wider = follow(ann["chosen"][1]["query"])
    assert exact(wider["total"]["charge"]) == "$5.000000000001"
    assert follow(ann["chosen"][0]["query"])["asked"].whose.end_user is None
    red = follow(shown({**of(spent), "by": "tag"})["lines"][0]["cells"][0][1])
    assert (red["asked"].whose.value, exact(red["total"]["charge"])) == ("red", "$3")
    assert red["chosen"][1]["title"] == "Tag team" and "metadata=team%3Dred" in red["generations"]
    nobody = shown({**of(spent), "by": "end_user"})["lines"][2]["cells"][0]
    assert nobody[:2] == ("(none)", "")


def test_the_file_is_what_is_seen(spent: Tenant) -> None:
    asked = {**of(spent), "by": ["tag", "end_user"]}
    assert console().get(EXPORT, asked).status_code == 302  # one at a time
    client = console()
    answer = client.get(EXPORT, {**of(spent), "by": "tag", "tag": "team"})
    rows = list(csv.DictReader(io.StringIO(answer.content.decode(), newline=""), strict=True))
    assert [(row["tag"], row["tag_is"], row["charge"], row["images"]) for row in rows] == [
        ("red", "named", "3.000000000000", "0"), ("'=red", "named", "2.000000000000", "2"),
        ("", "none", "0.000000000001", "0"),
    ]  # fmt: skip
    book = client.get(EXPORT, {**of(spent), "by": "tag", "tag": "team", "format": "xlsx"})
    (cells,) = sheets(book.content).values()
    assert [row[0][2] for row in cells] == ["tag", "red", "=red", ""]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"by": "end_user"}, "within one organization"),
        ({"end_user": "ann"}, "within one organization"),
        ({"by": ["end_user", "tag"], "tag": "team", "organization": "{slug}"}, "one at a time"),
        ({"value": "red", "organization": "{slug}"}, "Choose the tag"),
    ],
)
def test_what_is_not_told_apart_is_said(spent: Tenant, asked: dict[str, Any], words: str) -> None:
    slug = spent.organization.slug
    told = {name: value.format(slug=slug) if isinstance(value, str) else value for name, value in asked.items()}
    response = console().get(SPEND, told)
    assert words in context_of(response)["wrong"] and "lines" not in context_of(response)


def test_a_tag_that_nobody_named_says_so(spent: Tenant) -> None:
    found = shown({**of(spent), "by": "tag", "tag": "random"})
    assert found["untold"] == "random" and [row["cells"][0][0] for row in found["lines"]] == ["(none)"]


def test_end_users_and_what_their_budgets_have_left(spent: Tenant, charlie: Tenant) -> None:
    organization = spent.organization
    Usage.objects.filter(organization=organization.pk, end_user="bob").update(charge=Decimal(2))
    each = Budget.objects.create(organization=organization, period="total", end_user="*", amount=Decimal(10))
    own = Budget.objects.create(organization=organization, period="total", end_user="ann", amount=Decimal("3.5"))
    Budget.objects.create(organization=organization, key=spent.key, period="total", end_user="zoe", amount=Decimal(1))
    Budget.objects.create(organization=charlie.organization, period="total", end_user="ann", amount=Decimal(7))
    Budget.objects.create(organization=organization, period="total", amount=Decimal(99))  # of all: not an end user's
    found = users(of(spent))
    assert [
        (
            user["name"], digits(user["charge"]),
            [(one["name"], digits(one["amount"]), digits(one["used"]), digits(one["left"])) for one in user["budgets"]],
        )
        for user in found["users"]
    ] == [
        ("ann", "3", [("In total", "3.5", "3", "0.5")]),
        ("bob", "2", [("In total", "10", "2", "8")]),
        ("(none)", "0.000000000001", [("In total", "10", "0.000000000001", "9.999999999999")]),
        ("zoe", "0", [("In total", "10", "0", "10"), ("In total at main/key", "1", "0", "1")]),
    ]  # fmt: skip
    assert found["users"][0]["budgets"][0]["link"] == url(Budget, "change", own.pk)
    assert exact(follow(found["users"][0]["link"].partition("?")[2])["total"]["charge"]) == "$3"
    html = console().get(USERS, of(spent)).content.decode()
    assert charlie.organization.slug not in html and "$1,000" not in html
    assert [user["name"] for user in users({**of(spent), "end_user": "zoe"})["users"]] == ["zoe"]
    # A budget of end users leads there, and the page of spending too.
    budgets = (
        console().get(url(Budget, "changelist"), {"organization__id__exact": str(organization.pk)}).content.decode()
    )
    assert f"{USERS}?organization={organization.pk}" in budgets
    assert f"organization={organization.pk}" in shown(of(spent))["end_users"]
    each.delete()
    assert users(of(spent))["users"][1]["budgets"] == []


def test_the_page_asks_as_often_whoever_there_is(spent: Tenant) -> None:
    client = console()
    counts = []
    for turn in range(2):
        with CaptureQueriesContext(connection) as captured:
            assert client.get(USERS, of(spent)).status_code == 200
        counts.append(len(captured.captured_queries))
        for name in range(5):
            Budget.objects.create(
                organization=spent.organization, period="day", end_user=f"{turn}{name}", amount=Decimal(1)
            )
    assert counts[0] == counts[1]


def test_a_hostile_address_shows_nothing_of_anybodys(spent: Tenant) -> None:
    client = console()
    for asked in (
        {}, {"organization": "nobody"}, {"organization": "\0"}, {"organization": "x" * 5000},
        {"from": "x", **of(spent)}, {**of(spent), "end_user": '"><script>alert(1)</script>'},
        {**of(spent), "end_user": "\0"},
    ):  # fmt: skip
        response = client.get(USERS, asked)
        assert response.status_code in (200, 400), asked
        html = response.content.decode()
        assert "<script>alert" not in html and "$1,000" not in html
    assert console(superuser=False).get(USERS, of(spent)).status_code in (302, 403)


def test_operators_name_tags(alice: Tenant) -> None:
    client, add = console(), url(ReportTags, "add")
    too_many = client.post(add, {"organization": alice.organization.pk, "names": "\n".join("abcdef")})
    assert too_many.status_code == 200 and not ReportTags.objects.filter(pk=alice.organization.pk).exists()
    twice = client.post(add, {"organization": alice.organization.pk, "names": "team\n team\n"})
    assert "Name each tag once." in twice.content.decode()
    for names in ([""], [" team"], ["team", "team"]):
        with pytest.raises(ValidationError):
            ReportTags(organization=alice.organization, names=names).full_clean()
    assert not ReportTags.objects.filter(pk=alice.organization.pk).exists()
    assert client.post(add, {"organization": alice.organization.pk, "names": "team\ncost, center"}).status_code == 302
    row = ReportTags.objects.get(pk=alice.organization.pk)
    assert (row.names, row.rolled_up) == (["team", "cost, center"], False)
    listed = url(ReportTags, "changelist") + f"?q={alice.organization.slug}"
    assert "waits for the worker" in client.get(listed).content.decode()
    for days in (20, 1):
        make_usage(alice, NOW - timedelta(days=days), metadata={"cost, center": "7"})
    assert not roll_up_usage(most_days=1)  # a worker that is stopped after its first day
    assert "UTC, going on" in client.get(listed).content.decode()
    assert roll_up_usage()
    assert "up to now" in client.get(listed).content.decode()
    row.refresh_from_db()
    assert row.rolled_up
    change = url(ReportTags, "change", row.pk)
    assert client.post(change, {"names": "team"}).status_code == 302
    row.refresh_from_db()
    assert (row.names, row.rolled_up) == (["team"], False)
