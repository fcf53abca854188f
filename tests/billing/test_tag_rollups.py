"""What end users and values of tags spent: exactly, as far as they are told apart, and every cut comes to the same."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing import rollups
from billing.models import LateHour, Mark, ReportTags, TagRollup, Usage
from billing.rollups import SPENT, prune_usage, roll_up_usage
from billing.spending import Days, Sums, Whose, by_time, lines
from tests.console.browser import make_usage
from tests.stage.cast import Tenant, make_key, make_tenant

DAY = timedelta(days=1)
CUTS = (
    ("end_user",), ("tag",), ("key",), ("model",), ("day",), ("month", "end_user"), ("tag", "provider"),
    ("day", "key", "end_user"), ("model", "tag", "day"), ("organization", "project", "tag"),
)  # fmt: skip
NAMES = {name: {"provider_cost": "cost"}.get(name, name) for name in SPENT}


def tags(tenant: Tenant, *names: str) -> None:
    """The tenant's reports are by these."""
    ReportTags.objects.create(organization=tenant.organization, names=list(names))


def again() -> None:
    """All is rolled up from the beginning, whatever other tests have done."""
    Mark.objects.filter(name="tags").delete()
    assert roll_up_usage()


def days() -> Days:
    """All that tests use."""
    today = datetime.now(UTC).date()
    return Days(today - 70 * DAY, today)


def told(tenant: Tenant, by: Sequence[str], **whose: Any) -> dict[tuple[str, ...], tuple[int, Decimal]]:
    """Requests and charge, by what a line is called."""
    asked = Whose(organization=tenant.organization.pk, **whose)
    return {line.names: (line.sums.requests, line.sums.charge) for line in lines(days(), asked, by, 1000)}


def added(found: Sequence[Sums]) -> dict[str, Any]:
    """All of them together."""
    return {name: sum(getattr(sums, name) for sums in found) for name in NAMES.values()}


def of_rows(tenant: Tenant) -> dict[str, Any]:
    """The same of the usage rows."""
    rows = list(Usage.objects.filter(organization=tenant.organization.pk))
    found = {name: sum(getattr(row, name, None) or 0 for row in rows) for name in SPENT}
    found |= {
        "requests": len(rows), "unpriced": sum(row.charge is None for row in rows),
        "uncosted": sum(row.provider_cost is None for row in rows),
    }  # fmt: skip
    return {NAMES[name]: value for name, value in found.items()}


MONEY = st.one_of(st.none(), st.decimals(0, 1000, places=12))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(
        st.tuples(
            st.integers(0, 40 * 24 * 60),
            st.booleans(),
            st.sampled_from(["lab/a", "lab/b"]),
            st.sampled_from(["", "a", "b", "ü" * 512]),
            st.sampled_from([{}, {"team": "red"}, {"team": ""}, {"team": "blue", "other": "red"}, {"random": "x"}]),
            MONEY,
            MONEY,
            st.integers(0, 10**6),
        ),
        min_size=1,
        max_size=25,
    ),
    most=st.sampled_from([0, 1, 3, 2000]),
)
def test_every_cut_comes_to_the_same(
    calls: list[Any], most: int, charlie: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, now = make_tenant("alice"), datetime.now(UTC)
    other, _ = make_key(alice.project)
    tags(alice, "team")
    make_usage(charlie, now, end_user="a", metadata={"team": "red"})
    for minutes, another, model, end_user, metadata, charge, cost, count in calls:
        make_usage(
            alice, now - timedelta(minutes=minutes), model=model, end_user=end_user, metadata=metadata, charge=charge,
            provider_cost=cost, prompt_tokens=count, images=count // 3, seconds=count // 5,
            key=(other if another else alice.key).pk,
        )  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(rollups, "MOST_TOLD", most)
        again()
    expected, whose = of_rows(alice), Whose(organization=alice.organization.pk, tag="team")
    assert added([by_time(days(), whose, "day")[0]]) == expected
    for by in CUTS:
        found = lines(days(), whose, by, 1000)
        assert added([line.sums for line in found]) == expected, by
        assert lines(days(), whose, by, 2) == found[:2]
        for line in found:  # and nothing is told as of nobody because too much is told of somebody
            assert line.sums.requests >= 0 and line.sums.charge >= 0
    rows = TagRollup.objects.filter(organization=alice.organization.pk, span="day", value__gt="")
    for tag in ("", "team"):
        for day in rows.values_list("starts_at", flat=True).distinct():
            assert rows.filter(tag=tag, starts_at=day).count() <= most
    if most == 2000:
        for user in ("a", "ü" * 512):
            mine = Usage.objects.filter(organization=alice.organization.pk, end_user=user)
            sums = by_time(days(), Whose(organization=alice.organization.pk, end_user=user), "day")[0]
            assert (sums.requests, sums.charge) == (len(mine), sum(row.charge or 0 for row in mine))


def test_the_dearest_are_told_apart_and_the_others_are_one_line(alice: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "MOST_TOLD", 3)
    now = datetime.now(UTC)
    for user, charge in (("a", "5"), ("b", "4"), ("c", "3"), ("d", "2"), ("", "1")):
        make_usage(alice, now, end_user=user, charge=Decimal(charge))
    make_usage(alice, now, end_user="a", model="lab/two", charge=Decimal("0.5"))
    again()
    # Of a there are two lines in a day, of b one, and that is all there is room for.
    assert told(alice, ["end_user"]) == {
        ("a",): (2, Decimal("5.5")), ("b",): (1, Decimal(4)), ("(others)",): (2, Decimal(5)), ("",): (1, Decimal(1)),
    }  # fmt: skip
    assert told(alice, ["model"], end_user="a") == {("lab/model",): (1, Decimal(5)), ("lab/two",): (1, Decimal("0.5"))}
    assert told(alice, ["model"], end_user="c") == {}


def test_only_the_organizations_own_tags_are_told_apart(alice: Tenant, charlie: Tenant) -> None:
    now = datetime.now(UTC)
    tags(alice, "team", "team")
    for tenant in (alice, charlie):
        make_usage(tenant, now, metadata={"team": "red", "random": "1"}, charge=Decimal(1))
        make_usage(tenant, now, metadata={"random": "2"}, charge=Decimal(2))
    again()
    assert told(alice, ["tag"], tag="team") == {("red",): (1, Decimal(1)), ("",): (1, Decimal(2))}
    assert told(charlie, ["tag"], tag="team") == {("",): (2, Decimal(3))}
    mine = TagRollup.objects.filter(organization__in=[alice.organization.pk, charlie.organization.pk])
    assert set(mine.values_list("tag", flat=True)) == {"team"}


def test_a_tag_that_is_named_later_is_told_apart_since_the_month_before(alice: Tenant) -> None:
    now = datetime.now(UTC)
    this = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    before = (this - DAY).replace(day=1)
    make_usage(alice, before - 2 * DAY, metadata={"team": "red"}, charge=Decimal(1))
    make_usage(alice, before, metadata={"team": "red"}, charge=Decimal(2))
    make_usage(alice, now, metadata={"team": "red"}, charge=Decimal(4))
    again()
    marks = dict(Mark.objects.values_list("name", "until"))
    tags(alice, "team")
    steps = 1
    while not roll_up_usage(most_days=1):  # stopped after each
        assert all(until >= marks[name] for name, until in Mark.objects.values_list("name", "until") if name != "tags")
        steps += 1
        assert steps < 100
    assert steps > 1
    assert told(alice, ["tag"], tag="team") == {("red",): (2, Decimal(6)), ("",): (1, Decimal(1))}
    assert ReportTags.objects.get(pk=alice.organization.pk).rolled_up
    # Named no more, it stays told of what was; what is made again is of nobody, and it is no less.
    ReportTags.objects.filter(organization=alice.organization).delete()
    LateHour.objects.create(hour=before)
    assert roll_up_usage()
    assert sum(charge for _, charge in told(alice, ["tag"], tag="team").values()) == Decimal(7)


def test_hours_are_forgotten_and_days_are_not(alice: Tenant) -> None:
    then = datetime.now(UTC) - 5 * DAY
    make_usage(alice, then, end_user="a")
    again()
    prune_usage()
    mine = TagRollup.objects.filter(organization=alice.organization.pk)
    assert [row.span for row in mine] == ["day"]
    make_usage(alice, then, end_user="a")
    LateHour.objects.create(hour=then.replace(minute=0, second=0, microsecond=0))
    assert roll_up_usage()
    assert told(alice, ["end_user"]) == {("a",): (2, Decimal("0.00264"))}


@pytest.mark.parametrize(
    ("whose", "by", "words"),
    [
        ({"organization": None}, ("end_user",), "within one organization"),
        ({"organization": None, "end_user": "a"}, ("model",), "within one organization"),
        ({"tag": "team"}, ("end_user", "tag"), "one at a time"),
        ({"end_user": "a", "tag": "team"}, ("tag",), "one at a time"),
        ({}, ("tag",), "Choose the tag"),
    ],
)
def test_what_is_not_told_apart_is_refused(
    alice: Tenant, whose: dict[str, Any], by: tuple[str, ...], words: str
) -> None:
    asked = Whose(**{"organization": alice.organization.pk, **whose})
    with pytest.raises(ValueError, match=words):
        lines(days(), asked, by, 10)
