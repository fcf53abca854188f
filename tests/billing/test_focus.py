"""FOCUS files: every column of the specification by its rules, restated here, and costs that are the charge exactly."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.exports.csv_file import CsvFile
from billing.exports.focus import focus
from billing.exports.manifest import READERS
from billing.exports.pages import FORMATS, chunks, tails
from billing.issuing import credit_note, issue
from billing.models import ClosedMonth, Repricing, RepricingSum, Statement, Tariff, Usage
from tests.console.browser import make_usage
from tests.stage.books import forced, stated
from tests.stage.cast import Tenant

Row = dict[str, str]
DAY = timedelta(days=1)
AT = datetime(2026, 7, 31, 23, 59, 59, 999000, tzinfo=UTC)


def is_text(value: str) -> bool:
    return bool(value.strip())


def is_decimal(value: str) -> bool:
    """A number with one point at most, no sign but a minus, no exponent, no separators."""
    return re.fullmatch(r"-?\d+(\.\d+)?", value) is not None


def is_not_negative(value: str) -> bool:
    return is_decimal(value) and Decimal(value) >= 0


def is_moment(value: str) -> bool:
    """UTC, ISO 8601 in its extended form, in whole seconds."""
    return re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value) is not None


def is_currency(value: str) -> bool:
    """Of ISO 4217."""
    return re.fullmatch(r"[A-Z]{3}", value) is not None


def is_flat(value: str) -> bool:
    """A JSON object of keys that are there once, whose values are neither objects nor arrays."""
    pairs = json.loads(value, object_pairs_hook=list)
    names = [name for name, _ in pairs]
    return len(names) == len(set(names)) and all(not isinstance(inner, dict | list) for _, inner in pairs)


def is_unit(value: str) -> bool:
    """Things in the plural, or so many of them."""
    return re.fullmatch(r"(\d+ )?[A-Z][A-Za-z]*s", value) is not None


@dataclass(frozen=True)
class Rule:
    """What a column's cells must be, whether it may have none, and the version it came or went with."""

    check: Callable[[str], bool]
    null: bool = False
    among: set[str] = field(default_factory=set)
    of: tuple[str, ...] = ("1.2", "1.4")


# The specification's columns of its Cost and Usage dataset that are mandatory, recommended with something to say, or
# conditional on what there is here: measured usage, unit prices on a list that is agreed on, sub accounts, tags.
RULES = {
    "BilledCost": Rule(is_decimal),
    "BillingAccountId": Rule(is_text),
    "BillingAccountName": Rule(is_text),
    "BillingCurrency": Rule(is_currency),
    "BillingPeriodEnd": Rule(is_moment),
    "BillingPeriodStart": Rule(is_moment),
    "ChargeCategory": Rule(is_text, among={"Usage", "Purchase", "Tax", "Credit", "Adjustment"}),
    "ChargeClass": Rule(is_text, null=True, among={"Correction"}),
    "ChargeDescription": Rule(is_text),
    "ChargeFrequency": Rule(is_text, among={"One-Time", "Recurring", "Usage-Based"}),
    "ChargePeriodEnd": Rule(is_moment),
    "ChargePeriodStart": Rule(is_moment),
    "ConsumedQuantity": Rule(is_decimal, null=True),
    "ConsumedUnit": Rule(is_unit, null=True),
    "ContractedCost": Rule(is_decimal),
    "ContractedUnitPrice": Rule(is_not_negative, null=True),
    "EffectiveCost": Rule(is_decimal),
    "HostProviderName": Rule(is_text, of=("1.4",)),
    "InvoiceIssuerName": Rule(is_text),
    "ListCost": Rule(is_decimal),
    "ListUnitPrice": Rule(is_not_negative, null=True),
    "PricingCategory": Rule(is_text, null=True, among={"Standard", "Dynamic", "Committed", "Other"}),
    "PricingQuantity": Rule(is_decimal, null=True),
    "PricingUnit": Rule(is_unit, null=True),
    "ProviderName": Rule(is_text, of=("1.2",)),
    "PublisherName": Rule(is_text, of=("1.2",)),
    "ServiceCategory": Rule(is_text, among={"AI and Machine Learning"}),
    "ServiceName": Rule(is_text),
    "ServiceProviderName": Rule(is_text, of=("1.4",)),
    "ServiceSubcategory": Rule(is_text, among={"Generative AI"}),
    "SkuId": Rule(is_text, null=True),
    "SkuMeter": Rule(is_text, null=True),
    "SkuPriceDetails": Rule(is_flat, null=True),
    "SkuPriceId": Rule(is_text, null=True),
    "SubAccountId": Rule(is_text, null=True),
    "SubAccountName": Rule(is_text, null=True),
    "Tags": Rule(is_flat, null=True),
}
MAY_BE_NULL = {"ChargeClass", "SkuPriceDetails", "Tags"}  # of usage


def exported(tenant: Tenant, version: str) -> list[Row]:
    """The file of all of `tenant`'s generations, and of what was made of them since."""
    layout = focus(version)
    found = Usage.objects.filter(organization=tenant.organization.pk)
    text = b"".join(chunks(found, CsvFile(layout), layout, 2)).decode()
    text += "".join(tails(layout, CsvFile(layout), AT, datetime.now(UTC) + DAY, tenant.organization.pk))
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


@pytest.fixture
def spent(alice: Tenant, charlie: Tenant) -> list[Usage]:
    """What Alice has used: ordinary, of every item, cut by a budget, of no charge, of an unknown price in part."""
    make_usage(charlie, AT)
    every = [
        {"item": "input", "quantity": 700, "cost": "0.4", "charge": "0.440001"},
        {"item": "cached_input", "quantity": 300, "cost": "0.1", "charge": "0"},
        {"item": "reasoning", "quantity": 1, "cost": "1.6", "charge": "0.000001"},
        {"item": "request", "quantity": 1, "cost": "0", "charge": "0.01"},
        {"item": "web_search", "quantity": 3, "cost": None, "charge": "0.02"},
    ]
    return [
        make_usage(alice, AT, metadata={"team": 'é "x"'}),
        make_usage(alice, AT, arithmetic=every, charge=Decimal("0.070308000701")),
        make_usage(alice, AT, charge=Decimal("0.0005"), overrun=Decimal("0.00082"), basis="capped"),
        make_usage(alice, AT, charge=Decimal(0), arithmetic=[], basis="nothing"),
        make_usage(alice, AT, charge=None, arithmetic=[{"item": "output", "quantity": 5, "cost": "1", "charge": None}]),
    ]


@pytest.mark.parametrize("version", ["1.2", "1.4"])
def test_every_column_is_as_the_specification_has_it(spent: list[Usage], alice: Tenant, version: str) -> None:
    rows = exported(alice, version)
    rules = {name: rule for name, rule in RULES.items() if version in rule.of}
    assert [name for name in rows[0] if not name.startswith("x_")] == list(rules)
    assert [name for name in rows[0] if name.startswith("x_")] == ["x_KeyName", "x_Model", "x_GenerationId"]
    assert list(rows[0])[-3:] == ["x_KeyName", "x_Model", "x_GenerationId"]
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", name) and len(name) <= 50 for name in rules)
    for row in rows:
        for name, rule in rules.items():
            if row[name] == "":
                assert rule.null, name
                assert row["ChargeCategory"] == "Adjustment" or name in MAY_BE_NULL, name
                continue
            assert rule.check(row[name]), (name, row[name])
            assert not rule.among or row[name] in rule.among, (name, row[name])


def test_what_depends_on_each_other(spent: list[Usage], alice: Tenant) -> None:
    for row in exported(alice, "1.2"):
        assert Decimal(row["ListUnitPrice"]) * Decimal(row["PricingQuantity"]) == Decimal(row["ListCost"])
        assert Decimal(row["ContractedUnitPrice"]) * Decimal(row["PricingQuantity"]) == Decimal(row["ContractedCost"])
        assert row["BilledCost"] == row["EffectiveCost"]
        assert Decimal(row["BilledCost"]) <= Decimal(row["ListCost"])
        assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]


def test_the_rows_of_a_generation_add_up_to_its_charge(spent: list[Usage], alice: Tenant) -> None:
    rows = exported(alice, "1.4")
    for usage in spent:
        mine = [Decimal(row["BilledCost"]) for row in rows if row["x_GenerationId"] == usage.pk.hex]
        assert sum(mine, Decimal(0)) == (usage.charge or 0)
    assert [len([row for row in rows if row["x_GenerationId"] == usage.pk.hex]) for usage in spent] == [2, 5, 2, 0, 0]
    # A hard budget had no more: the last item is the one that was not charged whole.
    cut = [row["BilledCost"] for row in rows if row["x_GenerationId"] == spent[2].pk.hex]
    assert cut == ["0.000440000000", "0.000060000000"]


def test_a_row_to_the_letter(spent: list[Usage], alice: Tenant) -> None:
    row = next(row for row in exported(alice, "1.2") if row["x_GenerationId"] == spent[0].pk.hex)
    expected: dict[str, Any] = {
        "BilledCost": "0.000440000000",
        "BillingAccountId": alice.organization.pk.hex,
        "BillingAccountName": alice.organization.slug,
        "BillingCurrency": "USD",
        "BillingPeriodEnd": "2026-08-01T00:00:00Z",
        "BillingPeriodStart": "2026-07-01T00:00:00Z",
        "ChargeCategory": "Usage",
        "ChargeClass": "",
        "ChargeDescription": "Input tokens of lab/model",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": "2026-08-01T00:00:00Z",
        "ChargePeriodStart": "2026-07-31T23:00:00Z",
        "ConsumedQuantity": "1000.0",
        "ConsumedUnit": "Tokens",
        "ContractedCost": "0.000440000000",
        "ContractedUnitPrice": "0.44",
        "EffectiveCost": "0.000440000000",
        "InvoiceIssuerName": "Meterline",
        "ListCost": "0.000440000000",
        "ListUnitPrice": "0.44",
        "PricingCategory": "Standard",
        "PricingQuantity": "0.001000",
        "PricingUnit": "1000000 Tokens",
        "ProviderName": "Meterline",
        "PublisherName": "lab",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": "Model inference",
        "ServiceSubcategory": "Generative AI",
        "SkuId": "lab/model:input",
        "SkuMeter": "Input tokens",
        "SkuPriceDetails": "",
        "SkuPriceId": "lab/model:input",
        "SubAccountId": alice.project.pk.hex,
        "SubAccountName": "main",
        "Tags": '{"team": "é \\"x\\""}',
        "x_KeyName": "key",
        "x_Model": "lab/model",
        "x_GenerationId": spent[0].pk.hex,
    }
    assert row == expected


def test_what_is_priced_each_is_not_counted_by_the_million(spent: list[Usage], alice: Tenant) -> None:
    rows = [row for row in exported(alice, "1.2") if row["x_GenerationId"] == spent[1].pk.hex]
    assert [
        (row["SkuMeter"], row["ConsumedQuantity"], row["ConsumedUnit"], row["PricingQuantity"], row["PricingUnit"])
        for row in rows[2:]
    ] == [
        ("Reasoning tokens", "1.0", "Tokens", "0.000001", "1000000 Tokens"),
        ("A request", "1.0", "Requests", "1", "Requests"),
        ("A web search", "3.0", "Searches", "3", "Searches"),
    ]
    assert [row["BilledCost"] for row in rows] == [
        "0.000308000700",
        "0.000000000000",
        "0.000000000001",
        "0.010000000000",
        "0.060000000000",
    ]


def test_no_name_is_a_formula(alice: Tenant) -> None:
    make_usage(alice, AT, model="=1+1/x", key_name="@SUM(A1)", project_slug="-2")
    row = exported(alice, "1.2")[0]
    assert (row["x_Model"], row["x_KeyName"], row["SubAccountName"]) == ("'=1+1/x", "'@SUM(A1)", "'-2")
    assert (row["SkuId"], row["PublisherName"]) == ("'=1+1/x:input", "'=1+1")


@pytest.fixture
def adjusted(spent: list[Usage], alice: Tenant, charlie: Tenant) -> tuple[str, str]:
    """Alice's statement, and the credit note that takes of it; her July priced anew; Charlie's credit note."""
    numbers = []
    for tenant in (charlie, alice):
        of = stated(tenant)
        numbers = [str(of), str(issue(credit_note(str(of), "0.5", "=An outage", "finance")))]
    version = Tariff.objects.create(slug=alice.organization.slug).versions.create(effective_from=AT)
    run = Repricing.objects.create(version=version, first=AT.date(), until=AT.date() + DAY, asked_by="finance")
    for day, after in ((date(2026, 7, 30), "0.3"), (date(2026, 7, 31), "0.00000000001")):
        RepricingSum.objects.create(
            run=run, organization=alice.organization.pk, day=day, rows=1, charge_before=Decimal("0.2"),
            charge_after=Decimal(after), charge_prior=Decimal(0),
        )  # fmt: skip
    Repricing.objects.create(version=version, first=AT.date(), until=AT.date() + DAY, asked_by="nobody applies it")
    Repricing.objects.filter(pk=run.pk).update(state="applied", applied_at=datetime.now(UTC))
    return numbers[0], numbers[1]


@pytest.mark.parametrize("version", ["1.2", "1.4"])
def test_adjustments_are_as_the_specification_has_them(
    adjusted: tuple[str, str], spent: list[Usage], alice: Tenant, version: str
) -> None:
    rows = [row for row in exported(alice, version) if row["ChargeCategory"] != "Usage"]
    now = datetime.now(UTC)
    this, of, note = f"{now:%Y-%m}-01T00:00:00Z", *adjusted
    month = Statement.objects.get(year=int(of[:4]), number=int(of[5:])).month
    told = (
        *("ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "BilledCost", "ChargePeriodStart"),
        *("BillingPeriodStart", "BillingAccountId", "BillingAccountName"),
    )
    whose = (alice.organization.pk.hex, alice.organization.slug)
    assert [tuple(row[name] for name in told) for row in rows] == [
        (
            "Adjustment", "Correction", f"Credit note {note} of statement {of}: =An outage", "One-Time",
            "-0.500000000000", f"{month}T00:00:00Z", this, *whose,
        ),
        (
            "Adjustment", "", "Usage of 2026-07 priced anew", "One-Time", "-0.099999999990", "2026-07-01T00:00:00Z",
            "2026-07-01T00:00:00Z", *whose,
        ),
    ]  # fmt: skip
    for row in rows:
        costs = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")
        assert len({row[name] for name in costs}) == 1
        assert row["ChargePeriodStart"] < row["ChargePeriodEnd"] and row["BillingPeriodStart"] < row["BillingPeriodEnd"]
        for name in ("ConsumedQuantity", "PricingQuantity", "SkuId", "SubAccountId", "Tags", "x_GenerationId"):
            assert row[name] == ""
        for name, rule in RULES.items():
            if version in rule.of and row[name]:
                assert rule.check(row[name]) and (not rule.among or row[name] in rule.among), name


def test_what_was_closed_before_is_corrected(adjusted: tuple[str, str], alice: Tenant) -> None:
    ClosedMonth.objects.create(month=date(2026, 7, 1), closed_by="finance")
    try:
        Repricing.objects.filter(state="applied").update(applied_at=datetime.now(UTC))
        row = exported(alice, "1.2")[-1]
        assert (row["ChargeClass"], row["ChargePeriodStart"]) == ("Correction", "2026-07-01T00:00:00Z")
        assert row["BillingPeriodStart"] == "2026-08-01T00:00:00Z"
    finally:
        forced("delete from billing_closedmonth where month = '2026-07-01'")


def test_other_formats_have_them_too(adjusted: tuple[str, str], alice: Tenant, tmp_path: Path) -> None:
    for format in ("xlsx", "parquet"):
        file = tmp_path / f"file.{format}"
        layout = focus("1.4").without({"x_KeyName"})
        writer = FORMATS[format](layout)
        texts = tails(layout, writer, AT, datetime.now(UTC) + DAY, alice.organization.pk)
        file.write_bytes(b"".join([writer.begin(), *map(writer.page, texts), writer.end()]))
        found = list(READERS[format](file, ("BilledCost", "ChargeCategory", "SkuId")))
        assert [(Decimal(row["BilledCost"]), row["ChargeCategory"], row["SkuId"] or "") for row in found] == [
            (Decimal("-0.5"), "Adjustment", ""), (Decimal("-0.09999999999"), "Adjustment", ""),
        ]  # fmt: skip
