"""How amounts, counts and times are written, to the character."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.template import Context, Template
from django.utils import timezone, translation

from accounts.formats import dollars, moment, money, number, whose

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "exact", "short"),
    [
        ("0", "$0", "$0.00"),
        ("1", "$1", "$1.00"),
        ("1234567.891", "$1234567.891", "$1,234,567.89"),
        ("12.345", "$12.345", "$12.34"),
        ("0.99996", "$0.99996", "$1.00"),
        ("0.999949", "$0.999949", "$0.9999"),
        ("0.00132", "$0.00132", "$0.00132"),
        ("0.000000123456", "$0.000000123456", "$0.0000001235"),
        ("0.000000000001", "$0.000000000001", "$0.000000000001"),
        ("-0.125", "-$0.125", "-$0.125"),
        ("-1999.999999999999", "-$1999.999999999999", "-$2,000.00"),
    ],
)
def test_money_is_cents_from_a_dollar_on_and_four_digits_below(value: str, exact: str, short: str) -> None:
    assert dollars(Decimal(value)) == exact
    assert money(Decimal(value)) == f'<span class="number" title="{exact}">{short}</span>'


def test_a_price_nobody_knows_is_not_nothing() -> None:
    assert dollars(None) == "unknown"
    assert money(None) == '<span class="number" title="No price is known.">unknown</span>'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1234567, "1,234,567"), (-1234, "-1,234"), (None, "-"), (Decimal("1234.500"), "1,234.5"),
        (Decimal("-0.5"), "-0.5"), (2.5, "2.5"), (12345.0, "12,345"),
    ],
)  # fmt: skip
def test_numbers_are_grouped(value: int | float | Decimal | None, text: str) -> None:
    assert number(value) == f'<span class="number">{text}</span>'


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        (timedelta(0), "just now"),
        (timedelta(seconds=9), "just now"),
        (timedelta(seconds=10), "10 seconds ago"),
        (timedelta(seconds=59, milliseconds=999), "59 seconds ago"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(minutes=3, seconds=59), "3 minutes ago"),
        (timedelta(hours=1), "1 hour ago"),
        (timedelta(hours=23, minutes=59), "23 hours ago"),
        (timedelta(days=1), "1 day ago"),
        (timedelta(days=29, hours=23), "29 days ago"),
        (timedelta(days=30), "2026-01-30"),
        (timedelta(seconds=-9), "in a moment"),
        (timedelta(seconds=-30), "in 30 seconds"),
        (timedelta(hours=-2), "in 2 hours"),
        (timedelta(days=-31), "2026-04-01"),
    ],
)
def test_times_say_how_long_ago_and_exactly_when(ago: timedelta, words: str) -> None:
    at = NOW - ago
    exact = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    assert moment(at, NOW) == f'<time datetime="{at.isoformat()}" title="{exact}">{words}</time>'


def test_times_are_told_in_the_zone_that_is_in_force() -> None:
    at = datetime(2026, 1, 1, 23, 30, tzinfo=UTC)
    with timezone.override(ZoneInfo("Asia/Shanghai")):
        told = moment(at, NOW)
    assert told == ('<time datetime="2026-01-01T23:30:00+00:00" title="2026-01-02 07:30:00 CST">2026-01-02</time>')
    assert moment(None) == "-"


def test_whose_something_is_stands_in_one_cell() -> None:
    assert whose("acme", "web", "ci") == '<span class="whose">acme / web · ci</span>'
    assert whose("acme", "web") == '<span class="whose">acme / web</span>'
    assert whose("acme") == '<span class="whose">acme</span>'
    assert whose("", "web", "ci") == "-"
    assert whose("<b>", "&", '"') == '<span class="whose">&lt;b&gt; / &amp; · &quot;</span>'


def test_templates_have_the_same() -> None:
    page = Template("{% load formats %}{{ a|money }} {{ b|number }} {{ c|moment }} {{ c|exactly }} {{ a|dollars }}")
    long_ago = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    with translation.override("en"):
        told = page.render(Context({"a": Decimal("1.005"), "b": 1000, "c": long_ago}))
    assert told == (
        '<span class="number" title="$1.005">$1.00</span> <span class="number">1,000</span> '
        '<time datetime="2020-01-02T03:04:05+00:00" title="2020-01-02 03:04:05 UTC">2020-01-02</time> '
        "2020-01-02 03:04:05 UTC $1.005"
    )
