"""What one organization pays: a mark-up or a price list of its own, from a second on, beside the provider's cost."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from psycopg.errors import InsufficientPrivilege

from billing.models import Budget, Terms, Usage
from billing.pricing import Prices, Rate, by_size, charged_as, marked_up
from billing.tokens import Tokens
from routing.catalog import Model, TariffVersion
from routing.planning.policy import DEFAULT
from routing.planning.prospect import prospect
from routing.terms import Term, priced
from tests.billing.test_pricing import rates, sized_rates, tokens
from tests.billing.test_roles import speaking_as
from tests.console.browser import console, submit
from tests.routing.offers import make_offer
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import LONG_AGO, make_model, make_provider, make_tariff
from tests.stage.speech import error, nothing_happened

SECOND = timedelta(seconds=1)
known = st.decimals(min_value=0, max_value=Decimal("999999.999999"), places=6, allow_nan=False)
known_rate = st.builds(Rate, cost=known, charge=known)


def agree(tenant: Tenant, **fields: Any) -> Terms:
    """Terms of a tenant, in force since long ago."""
    fields.setdefault("effective_from", LONG_AGO)
    return Terms.objects.create(organization=tenant.organization, **fields)


# --- arithmetic -----------------------------------------------------------------------------------------------------


@given(tokens(), sized_rates(known_rate), sized_rates(known_rate))
def test_each_side_is_what_its_own_list_makes_of_it(counted: Tokens, ours: Any, theirs: Any) -> None:
    counted = Tokens(counted.prompt, counted.completion, cached=counted.cached, reasoning=counted.reasoning)
    costs, charges = by_size(ours), by_size(theirs)
    both = charged_as(costs, charges).price(counted)
    assert both.cost == costs.price(counted).cost
    assert both.charge == charges.price(counted).charge


@given(tokens(), rates(known_rate), st.decimals(min_value=-100, max_value=Decimal("9999.99"), places=2))
def test_a_mark_up_is_exact_to_the_decimals_of_a_rate(counted: Tokens, version: Any, percent: Decimal) -> None:
    dearer = marked_up(Prices(version), percent)
    for item, rate in dearer.rates.items():
        exact = Fraction(version[item].cost) * (1 + Fraction(percent) / 100)
        assert rate.cost == version[item].cost
        assert rate.charge is not None and rate.charge == round(rate.charge, 6)
        assert abs(Fraction(rate.charge) - exact) <= Fraction(1, 2_000_000)
    bill = dearer.price(counted)
    if bill.charge is not None:
        amounts = [line.amount(line.rate.charge) for line in bill.lines]
        assert bill.charge == sum(amount for amount in amounts if amount is not None)
        assert bill.charge == round(bill.charge, 12) >= 0


def test_what_a_price_list_has_no_price_for_is_unknown_and_never_free() -> None:
    costs = by_size([("input", 0, Rate(Decimal(1), Decimal(1))), ("web_search", 0, Rate(Decimal(1), Decimal(1)))])
    charges = by_size([("input", 0, Rate(None, Decimal(3)))])
    bill = charged_as(costs, charges).price(Tokens(prompt=10, web_searches=2))
    assert (bill.cost, bill.charge) == (Decimal("2.00001"), None)


# --- dates ----------------------------------------------------------------------------------------------------------

START = datetime(2026, 6, 1, tzinfo=UTC)


def one_rate(input: str) -> Prices:
    """A tariff of one price for everything."""
    return Prices(dict.fromkeys(("input", "output"), Rate(Decimal(input), Decimal(input))))


def charges(model: Model, moments: list[datetime]) -> list[Decimal | None]:
    """What a million tokens of input are charged at these moments, as a plan sees it, and as it bills them."""
    found = []
    for moment in moments:
        prices = prospect(model, DEFAULT).prices_at(moment, 0)
        version = prices.versions[0]
        found.append(version.prices.price(Tokens(prompt=1_000_000)).charge if version else None)
    return found


def test_versions_and_terms_switch_on_the_second() -> None:
    versions = (TariffVersion(1, LONG_AGO, one_rate("1")), TariffVersion(2, START, one_rate("2")))
    model = Model(1, "m", "M", (), (), (), 0, 0, (), (), None, 0, 0, 0, 50, (make_offer(versions=versions, tariff=7),))
    assert charges(model, [START - SECOND, START, START - SECOND]) == [1, 2, 1]
    listed = (
        (3, "2020-01-01T00:00:00+00:00", False, "1", [("input", 0, "", "9", "9"), ("output", 0, "", "9", "9")]),
        (4, (START + 9 * SECOND).isoformat(), False, "1", [("input", 0, "", "8", "8"), ("output", 0, "", "8", "8")]),
    )
    terms = (
        Term(None, LONG_AGO, Decimal(10), None),
        Term(None, START + 3 * SECOND, Decimal(50), None),
        Term(7, START + 6 * SECOND, None, listed),
        Term(8, START + 6 * SECOND, Decimal(900), None),
        Term(7, START + 12 * SECOND, None, None),
    )
    mine = priced(model, terms)
    assert priced(model, terms) is mine
    seconds = [-1, 0, 2, 3, 5, 6, 8, 9, 11, 12]
    amounts = charges(mine, [START + second * SECOND for second in seconds])
    assert amounts == [Decimal(text) for text in ("1.1", "2.2", "2.2", "3", "3", "9", "9", "8", "8", "2")]
    cost = prospect(mine, DEFAULT).prices_at(START + 6 * SECOND, 0).versions[0]
    assert cost is not None
    assert (cost.id, cost.prices.rates["input"].cost) == (2, Decimal(2))


# --- through a gateway ----------------------------------------------------------------------------------------------


def test_one_pays_the_mark_up_and_another_the_tariff(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    tariff = make_tariff(input=("1", "5"), output=("2", "10"))
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=100", tariff)
    agree(alice, markup=Decimal("12.5"))
    synchronize(gateway)
    rows = {}
    for tenant in (alice, charlie):
        answer = gateway.chat(tenant.secret, model.slug)
        rows[tenant.secret] = Usage.objects.get(id=answer.json()["id"])
    mine, theirs = rows[alice.secret], rows[charlie.secret]
    assert (mine.provider_cost, mine.charge) == (Decimal("0.000106"), Decimal("0.00011925"))
    assert (theirs.provider_cost, theirs.charge) == (Decimal("0.000106"), Decimal("0.00053"))
    assert mine.arithmetic == [
        {"item": "input", "quantity": 100, "cost": "1.000000", "charge": "1.125000"},
        {"item": "output", "quantity": 3, "cost": "2.000000", "charge": "2.250000"},
    ]
    assert mine.tariff_version == theirs.tariff_version == tariff.versions.get().pk
    assert books(alice.organization, charlie.organization).problems() == []
    for tenant, price in ((alice, 1.125), (charlie, 5)):
        for path in ("/v1/models", f"/v1/models/{model.slug}"):
            listed = gateway.client.get(path, headers={"x-api-key": tenant.secret}).json()
            entry = next(one for one in listed.get("data", [listed]) if one["id"] == model.slug)
            assert entry["pricings"]["prompt"][0]["value"] == price


def test_a_price_list_is_held_and_charged_and_the_cost_is_the_providers(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    tariff = make_tariff(input="1", output="1")
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=1&prompt=40", tariff)
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.1"))
    agree(alice, price_list=make_tariff(input="1000", output="0"), tariff=tariff)
    synchronize(gateway)
    # 300 bytes may be 300 tokens, at $1000 a million. The tariff's own charge would fit.
    long = [{"role": "user", "content": "word " * 60}]
    refused = gateway.chat(alice.secret, model.slug, max_tokens=1, messages=long)
    assert (refused.status_code, error(refused)["code"]) == (402, "insufficient_credit")
    assert nothing_happened(alice)
    answer = gateway.chat(alice.secret, model.slug, max_tokens=1, messages=[{"role": "user", "content": "hi"}])
    row = Usage.objects.get(id=answer.json()["id"])
    assert (row.provider_cost, row.charge) == (Decimal("0.000041"), Decimal("0.04"))


# --- who may change them --------------------------------------------------------------------------------------------


def test_terms_are_made_in_the_console_and_never_changed_once_in_force(alice: Tenant) -> None:
    tariff = make_tariff(input="1", output="1")
    page = reverse("admin:billing_terms_add")
    client = console()
    given = {"organization": str(alice.organization.pk), "tariff": str(tariff.pk)}
    before = timezone.now()
    both = submit(client, page, "terms_form", **given, markup="20", price_list=str(tariff.pk))
    assert "Either a mark-up or a price list." in both.content.decode()
    past = {"effective_from_0": "2020-01-01", "effective_from_1": "00:00:00"}
    assert "not before now" in submit(client, page, "terms_form", **given, **past).content.decode()
    assert not Terms.objects.filter(organization=alice.organization).exists()
    assert submit(client, page, "terms_form", **given, markup="20").status_code == 302
    row = Terms.objects.get(organization=alice.organization)
    assert (row.tariff, row.markup, row.price_list) == (tariff, Decimal(20), None)
    assert before <= row.effective_from <= timezone.now()
    shown = client.get(reverse("admin:billing_terms_change", args=[row.pk])).content.decode()
    assert 'name="_save"' not in shown
    for statement in ("update billing_terms set markup = 0 where id = %s", "delete from billing_terms where id = %s"):
        with speaking_as("console") as connection, pytest.raises(InsufficientPrivilege, match="in force"):
            connection.execute(statement, [row.pk])
    later = agree(alice, effective_from=timezone.now() + timedelta(days=1))
    with speaking_as("console") as connection:
        connection.execute("update billing_terms set markup = 1 where id = %s", [later.pk])
