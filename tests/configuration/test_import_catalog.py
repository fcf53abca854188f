"""The starter catalog: what the installed price list says is what a generation is billed, to the last digit."""

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import CommandParser
from django.db import transaction
from genai_prices import Usage
from genai_prices import types as listed
from genai_prices.data import providers as price_list

from accounts.by import add_by
from billing.console.proposals import decide
from billing.imports.proposals import Decision
from billing.models import PriceProposal, Tariff, TariffVersion, rate_name
from billing.pricing import Rate, by_size
from billing.tokens import Tokens
from routing.models import Credential, Model, Offer, Provider
from routing.starter.progress import Progress
from routing.starter.starter import NOTE, Starter, UnknownVendor, plan, vendors_named
from routing.starter.vendors import Vendor

NOW = datetime(2026, 6, 15, 12, 30, 45, tzinfo=UTC)
D = Decimal


@pytest.fixture
def undone() -> Iterator[None]:
    """For tests that touch what is everybody's: all they do is rolled back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@dataclass
class Market:
    """A vendor of the test's own and its price list. NAME stands for its slug."""

    slug: str
    models: list[listed.ModelInfo] = field(default_factory=list)

    def sells(self, id: str, prices: object, /, **more: object) -> None:
        """Puts a model on the list, or other prices to it."""
        match = listed.ClauseEquals(equals=id)
        self.models = [model for model in self.models if model.id != id]
        self.models.append(listed.ModelInfo(id=id, match=match, prices=prices, **more))  # type: ignore[arg-type]

    def plan(self, now: datetime = NOW) -> Starter:
        """What importing the list would do."""
        vendor = Vendor(self.slug, self.slug, "https://llm.example.com/v1")
        provider = listed.Provider(id=self.slug, name="Example", api_pattern="", models=self.models)
        return plan([vendor], [provider], now, "importer")

    def import_(self, now: datetime = NOW) -> list[str]:
        """Imports the list; gives the difference."""
        starter = self.plan(now)
        with transaction.atomic():
            starter.write(Progress("", starter.size(), StringIO()))
        return [line.replace(self.slug, "NAME") for line in starter.lines]

    def skipped(self) -> list[tuple[str, str]]:
        """What the list holds that is not imported, and why, but for the vendors that are not the test's."""
        items = self.plan().skipped
        return [(item.name.replace(self.slug, "NAME"), item.reason) for item in items if self.slug in item.name]

    def offer(self, name: str) -> Offer:
        """The offer of a model."""
        return Offer.objects.select_related("tariff", "model").get(provider__slug=self.slug, upstream_model=name)

    def versions(self, name: str) -> list[tuple[datetime, dict[str, Decimal | None]]]:
        """A model's prices by start."""
        rows = TariffVersion.objects.filter(tariff__slug=f"{self.slug}/{name}").order_by("effective_from")
        return [
            (row.effective_from, {rate_name(rate.item, rate.above): rate.charge for rate in row.rates.all()})
            for row in rows
        ]


@pytest.fixture
def market() -> Market:
    return Market(f"vendor-{secrets.token_hex(4)}")


def tokens_price(**prices: str | listed.TieredPrices) -> listed.ModelPrice:
    """A price of one dollar a million in and two out, and whatever else is said."""
    given = {name: D(price) if isinstance(price, str) else price for name, price in prices.items()}
    return listed.ModelPrice(**{"input_mtok": D(1), "output_mtok": D(2), **given})


def test_it_works(market: Market) -> None:
    market.sells("swift", tokens_price(cache_read_mtok="0.125"), name="Swift", context_window=128_000)
    assert market.import_() == [
        "+ provider NAME: https://llm.example.com/v1",
        "+ model NAME/swift",
        "+ offer NAME/swift at NAME as swift: input 1, output 2, cached_input 0.125",
    ]
    offer = market.offer("swift")
    assert (offer.model.slug, offer.model.name, offer.model.context_length) == (
        f"{market.slug}/swift",
        "Swift",
        128_000,
    )
    assert (offer.active, offer.tariff and offer.tariff.slug) == (True, f"{market.slug}/swift")
    (version,) = TariffVersion.objects.filter(tariff=offer.tariff)
    assert (version.effective_from, version.note) == (NOW, NOTE)
    assert {rate.item: (rate.cost, rate.charge) for rate in version.rates.all()} == {
        "input": (D(1), D(1)),
        "output": (D(2), D(2)),
        "cached_input": (D("0.125"), D("0.125")),
    }
    assert not Credential.objects.filter(provider__slug=market.slug).exists()


def test_what_the_list_says_of_a_model_is_taken_over_and_what_an_operator_says_stays(market: Market) -> None:
    market.sells("swift", tokens_price(), description="Good at\n  short answers.")
    market.sells("elsewhere/deep", tokens_price(), description="x" * 5000)
    market.import_()
    swift, deep = market.offer("swift").model, market.offer("elsewhere/deep").model
    assert (swift.author, swift.description) == ("Example", "Good at short answers.")
    assert (deep.author, deep.description) == ("", "x" * 1000)  # the vendor has not made it
    Model.objects.filter(pk=swift.pk).update(author="", description="Ours.")
    market.import_()
    swift.refresh_from_db()
    assert (swift.author, swift.description) == ("", "Ours.")


def test_a_second_time_changes_nothing(market: Market) -> None:
    market.sells("swift", tokens_price())
    market.sells("deep", tokens_price(input_mtok=listed.TieredPrices(base=D(1), tiers=[listed.Tier(200_000, D(2))])))
    market.sells("odd", tokens_price(cache_write_mtok="0.0833333"))
    market.import_()
    assert market.import_(NOW + timedelta(days=1)) == []


def as_listed(tokens: Tokens) -> Usage:
    """The same counts as the price list's package takes them."""
    return Usage(
        input_tokens=tokens.prompt,
        cache_read_tokens=tokens.cached,
        cache_write_tokens=tokens.cache_write_5m + tokens.cache_write_1h,
        cache_write_5m_tokens=tokens.cache_write_5m,
        cache_write_1h_tokens=tokens.cache_write_1h,
        output_tokens=tokens.completion,
        output_reasoning_tokens=tokens.reasoning,
    )


def test_every_imported_price_bills_what_the_list_bills(undone: None) -> None:
    out = StringIO()
    call_command("import_catalog", "--yes", stdout=out)
    models = {(provider.id, model.id): model for provider in price_list for model in provider.models}
    inside = {"cached": 20_000, "cache_write_5m": 1_000, "cache_write_1h": 2_000, "reasoning": 4_000}
    compared, sizes = 0, set()
    versions = TariffVersion.objects.filter(note=NOTE).select_related("tariff").prefetch_related("rates")
    for version in versions.order_by("-effective_from"):
        vendor, _, upstream_model = version.tariff.slug.partition("/")
        model = models.get((vendor, upstream_model))
        if model is None:
            continue  # the list's own id is not the name to call it by
        rates = version.rates.all()
        prices = by_size((rate.item, rate.above, Rate(rate.cost, rate.charge)) for rate in rates)
        borders = {rate.above for rate in rates} - {0}
        for prompt in {100_000, 10**7} | borders | {border + 1 for border in borders}:
            tokens = Tokens(prompt=prompt, completion=7_000, **inside)
            expected = model.get_prices(version.effective_from).calc_price(as_listed(tokens))["total_price"]
            priced = prices.price(tokens)
            assert (version.tariff.slug, prompt, priced.charge) == (version.tariff.slug, prompt, expected)
            assert priced.cost == expected
        compared += 1
        sizes |= borders
    assert compared > 1000
    assert {199_999, 200_000, 272_000} <= sizes  # "from 200k on", "above 200k", "above 272k"
    assert not Offer.objects.filter(
        tariff=None, active=True, provider__slug__in=[v.slug for v in vendors_named([])]
    ).exists()


def test_the_whole_list_a_second_time_changes_nothing(undone: None) -> None:
    call_command("import_catalog", "--yes", stdout=StringIO())
    out = StringIO()
    call_command("import_catalog", "--yes", stdout=out)
    assert out.getvalue().endswith(f"No difference to {NOTE}.\n")


INEXPRESSIBLE = {
    "a price has more than six decimals (0.3333333)": tokens_price(
        output_mtok=listed.TieredPrices(base=D(1), tiers=[listed.Tier(200_000, D("0.3333333"))])
    ),
    "a price has more than six decimals (0.0833333333333333)": tokens_price(cache_write_mtok="0.0833333333333333"),
    "it has a price of its own for cache audio read": tokens_price(cache_audio_read_mtok="1"),
    "it has a price of its own for output video": tokens_price(output_video_mtok="1"),
    "its price depends on the hour": [
        listed.ConditionalPrice(prices=tokens_price()),
        listed.ConditionalPrice(listed.TimeOfDateConstraint(time(1), time(2)), prices=tokens_price(input_mtok="9")),
    ],
}


@pytest.mark.parametrize("reason", INEXPRESSIBLE)
def test_a_price_that_rates_cannot_say_gives_an_offer_that_is_off(market: Market, reason: str) -> None:
    market.sells("odd", INEXPRESSIBLE[reason])
    assert market.import_()[-1] == f"+ offer NAME/odd at NAME as odd: off, without a tariff, since {reason}"
    offer = market.offer("odd")
    assert (offer.active, offer.tariff) == (False, None)
    assert not Tariff.objects.filter(slug__startswith=market.slug).exists()


def test_what_is_not_a_chat_model_or_has_no_name_is_skipped(market: Market) -> None:
    market.sells("embed", listed.ModelPrice(input_mtok=D(1)))
    market.sells("speech", listed.ModelPrice(audio_hours=D(1)))
    market.sells("unknown", listed.ModelPrice())
    market.sells("two words", tokens_price())
    market.sells("ft:tuned", tokens_price())
    assert market.skipped() == [
        ("NAME: embed", "no price for input and output tokens"),
        ("NAME: speech", "no price for input and output tokens"),
        ("NAME: unknown", "no price for input and output tokens"),
        ("NAME: two words", "its name makes no model slug"),
        ("NAME: ft:tuned", "the list gives a pattern, not a name to call it by"),
    ]
    assert market.import_() == ["+ provider NAME: https://llm.example.com/v1"]


def test_a_model_is_called_by_a_name_the_list_spells_out(market: Market) -> None:
    match = listed.ClauseOr(or_=[listed.ClauseStartsWith("long/"), listed.ClauseEquals("long/path/swift")])
    market.models = [listed.ModelInfo(id="swift", match=match, prices=tokens_price())]
    assert market.import_()[-1] == "+ offer NAME/swift at NAME as long/path/swift: input 1, output 2"


def test_one_model_at_two_vendors_is_one_model_with_two_offers(market: Market) -> None:
    other = Market(f"vendor-{secrets.token_hex(4)}")
    name = f"{market.slug}/Swift"
    market.sells("swift", tokens_price())
    other.sells(name, tokens_price(input_mtok="0.9"))
    market.import_()
    other.import_()
    offers = Offer.objects.filter(model__slug=f"{market.slug}/swift")
    assert {(offer.provider.slug, offer.upstream_model) for offer in offers} == {
        (market.slug, "swift"),
        (other.slug, name),
    }


def test_units_per_thousand_become_dollars_each(market: Market) -> None:
    market.sells("search", tokens_price(web_searches_kcount="10", requests_kcount="5", storage_searches_kcount="2.5"))
    market.import_()
    assert market.versions("search") == [
        (NOW, {"input": D(1), "output": D(2), "request": D("0.005"), "web_search": D("0.01")})
    ]


def test_a_changed_price_is_a_new_version_and_never_an_edit(market: Market) -> None:
    market.sells("swift", tokens_price())
    market.import_()
    before = TariffVersion.objects.get(tariff__slug=f"{market.slug}/swift")
    market.sells("swift", tokens_price(input_mtok="0.75"))
    later = NOW + timedelta(days=30)
    assert market.import_(later) == [
        "+ tariff version NAME/swift from now: input 0.75, output 2, was input 1, output 2"
    ]
    assert market.versions("swift") == [
        (NOW, {"input": D(1), "output": D(2)}),
        (later, {"input": D("0.75"), "output": D(2)}),
    ]
    assert TariffVersion.objects.filter(pk=before.pk, effective_from=NOW).exists()


def test_a_price_that_is_hard_to_believe_waits_for_a_second_person(market: Market) -> None:
    market.sells("swift", tokens_price())
    market.import_()
    market.sells("swift", tokens_price(input_mtok="3.01", output_mtok="6"))
    later = NOW + timedelta(days=30)
    assert market.import_(later) == ["? tariff version NAME/swift is held for approval: input 1 -> 3.01"]
    assert market.versions("swift") == [(NOW, {"input": D(1), "output": D(2)})]
    row = PriceProposal.objects.get(tariff__slug=f"{market.slug}/swift")
    assert (row.rates, row.proposed_by) == (
        [["input", 0, *2 * ["3.010000"]], ["output", 0, *2 * ["6.000000"]]],
        "importer",
    )
    assert market.import_(later) == []
    assert ("NAME/swift", "its price is held for approval") in market.skipped()

    assert decide(row, Decision.APPROVED, "second")
    assert not decide(row, Decision.DECLINED, "third")
    row.refresh_from_db()
    assert (row.decision, row.decided_by) == ("approved", "second")
    assert market.versions("swift") == [
        (NOW, {"input": D(1), "output": D(2)}),
        (row.decided_at, {"input": D("3.01"), "output": D(6)}),
    ]
    assert row.decided_at is not None
    assert market.import_(row.decided_at + timedelta(days=1)) == []


@pytest.mark.parametrize(
    ("after", "leap"),
    [
        ({"input_mtok": "3"}, None),
        ({"input_mtok": "0.34"}, None),
        ({"input_mtok": "0.33"}, "input 1 -> 0.33"),
        ({"input_mtok": "0"}, "input 1 -> 0"),
        ({"output_mtok": "20"}, "output 2 -> 20"),
        ({"cache_read_mtok": "0.01"}, None),  # which had no price of its own
    ],
)
def test_what_is_hard_to_believe(market: Market, after: dict[str, str], leap: str | None) -> None:
    market.sells("swift", tokens_price())
    market.import_()
    market.sells("swift", tokens_price(**after))
    held = [line for line in market.import_(NOW + timedelta(days=1)) if line.startswith("?")]
    assert held == ([f"? tariff version NAME/swift is held for approval: {leap}"] if leap else [])
    assert len(market.versions("swift")) == (1 if leap else 2)


def test_who_proposed_a_price_does_not_decide_on_it_and_what_was_declined_stays(market: Market) -> None:
    market.sells("swift", tokens_price())
    market.import_()
    market.sells("swift", tokens_price(input_mtok="100"))
    market.import_(NOW + timedelta(days=1))
    row = PriceProposal.objects.get(tariff__slug=f"{market.slug}/swift")
    with pytest.raises(PermissionError):
        decide(row, Decision.APPROVED, "importer")
    assert decide(row, Decision.DECLINED, "second")
    assert len(market.versions("swift")) == 1
    assert market.import_(NOW + timedelta(days=2)) == []
    assert ("NAME/swift", "its price is declined") in market.skipped()


def tiered(base: str, *tiers: tuple[int, str]) -> listed.TieredPrices:
    """A price by size of prompt."""
    return listed.TieredPrices(base=D(base), tiers=[listed.Tier(start, D(price)) for start, price in tiers])


def test_a_price_by_size_of_prompt_is_imported_and_its_offer_is_on(market: Market) -> None:
    market.sells(
        "long",
        tokens_price(
            input_mtok=tiered("1.25", (200_000, "2.5")),
            output_mtok=tiered("10", (200_000, "15"), (500_000, "20")),
            cache_write_mtok=tiered("3", (200_000, "6")),
            cache_write_1h_mtok="4",
        ),
    )
    assert market.import_()[-1] == (
        "+ offer NAME/long at NAME as long: "
        "cache_write_5m 3, cache_write_5m (above 200000) 6, cache_write_1h 4, input 1.25, input (above 200000) 2.5, "
        "output 10, output (above 200000) 15, output (above 500000) 20"
    )
    assert market.offer("long").active
    rates = {
        "input": D("1.25"),
        "input (above 200000)": D("2.5"),
        "output": D(10),
        "output (above 200000)": D(15),
        "output (above 500000)": D(20),
        "cache_write_5m": D(3),
        "cache_write_5m (above 200000)": D(6),
        "cache_write_1h": D(4),
    }
    assert market.versions("long") == [(NOW, rates)]
    assert market.import_(NOW + timedelta(days=1)) == []


def test_a_price_that_comes_to_depend_on_the_size_is_a_new_version(market: Market) -> None:
    market.sells("long", tokens_price())
    market.import_()
    market.sells("long", tokens_price(input_mtok=tiered("1", (199_999, "2"))))
    later = NOW + timedelta(days=30)
    assert market.import_(later) == [
        "+ tariff version NAME/long from now: input 1, input (above 199999) 2, output 2, was input 1, output 2"
    ]
    flat = {"input": D(1), "output": D(2)}
    assert market.versions("long") == [(NOW, flat), (later, {**flat, "input (above 199999)": D(2)})]
    assert market.offer("long").active


def from_day(day: date, **prices: str) -> listed.ConditionalPrice:
    """A price from a day on."""
    return listed.ConditionalPrice(listed.StartDateConstraint(day), prices=tokens_price(**prices))


def test_an_announced_price_waits_for_its_day(market: Market) -> None:
    past = from_day(date(2026, 3, 1), input_mtok="5")
    market.sells(
        "swift", [listed.ConditionalPrice(prices=tokens_price()), past, from_day(date(2026, 7, 1), input_mtok="4")]
    )
    assert market.import_()[-1] == (
        "+ offer NAME/swift at NAME as swift: input 5, output 2; from 2026-07-01: input 4, output 2"
    )
    july, august = datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 8, 1, tzinfo=UTC)
    now = (NOW, {"input": D(5), "output": D(2)})
    assert market.versions("swift") == [now, (july, {"input": D(4), "output": D(2)})]

    market.sells(
        "swift", [past, from_day(date(2026, 7, 1), input_mtok="3"), from_day(date(2026, 8, 1), input_mtok="2")]
    )
    assert market.import_(NOW + timedelta(days=1)) == [
        "+ tariff version NAME/swift from 2026-07-01: input 3, output 2",
        "+ tariff version NAME/swift from 2026-08-01: input 2, output 2",
    ]
    assert market.versions("swift") == [
        now,
        (july, {"input": D(3), "output": D(2)}),
        (august, {"input": D(2), "output": D(2)}),
    ]

    market.sells("swift", [past, from_day(date(2026, 8, 1), input_mtok="2")])
    assert market.import_(NOW + timedelta(days=2)) == ["- tariff version NAME/swift from 2026-07-01: no longer listed"]
    assert market.versions("swift") == [now, (august, {"input": D(2), "output": D(2)})]
    assert market.import_(august + timedelta(days=1)) == []


def test_a_price_that_became_one_rates_cannot_say_turns_the_offer_off(market: Market) -> None:
    market.sells("swift", tokens_price())
    market.import_()
    market.sells("swift", tokens_price(output_video_mtok="1"))
    assert market.import_() == [
        "~ offer NAME/swift at NAME as swift: active true -> false, since it has a price of its own for output video"
    ]
    assert market.offer("swift").active is False
    assert market.import_() == []


def test_a_price_that_rates_can_say_at_last_gives_a_tariff_to_an_offer_that_stays_off(market: Market) -> None:
    market.sells("swift", tokens_price(output_video_mtok="1"))
    market.import_()
    market.sells("swift", tokens_price())
    assert market.import_() == ["~ offer NAME/swift at NAME as swift: tariff none -> NAME/swift (it stays off)"]
    assert market.versions("swift") == [(NOW, {"input": D(1), "output": D(2)})]
    assert market.offer("swift").active is False


def test_what_the_operator_changed_stays(market: Market) -> None:
    market.sells("swift", tokens_price(), name="Swift", context_window=1000)
    market.import_()
    Provider.objects.filter(slug=market.slug).update(base_url="https://proxy.example.com", active=False)
    Model.objects.filter(slug=f"{market.slug}/swift").update(name="Ours", context_length=500)
    tariff = Tariff.objects.get(slug=f"{market.slug}/swift")
    mine = TariffVersion.objects.create(tariff=tariff, effective_from=NOW + timedelta(hours=1), note="with our margin")
    mine.rates.create(item="input", cost=1, charge=3)
    market.sells("swift", tokens_price(input_mtok="0.5"), name="Swift II", context_window=2000)
    assert market.import_(NOW + timedelta(days=1)) == []
    assert market.skipped() == [("NAME/swift", "a tariff kept by hand, at other prices")]
    offer = market.offer("swift")
    assert (offer.model.name, offer.model.context_length) == ("Ours", 500)
    assert Provider.objects.get(slug=market.slug).base_url == "https://proxy.example.com"
    assert [start for start, _ in market.versions("swift")] == [NOW, NOW + timedelta(hours=1)]


def test_an_offer_under_the_operators_own_tariff_stays_there(market: Market) -> None:
    market.sells("swift", tokens_price())
    market.import_()
    own = Tariff.objects.create(slug=f"{market.slug}-own")
    Offer.objects.filter(provider__slug=market.slug).update(tariff=own)
    market.sells("swift", tokens_price(input_mtok="0.5"))
    assert market.import_(NOW + timedelta(days=1)) == []
    market.sells("swift", tokens_price(output_video_mtok="1"))
    assert market.import_(NOW + timedelta(days=1)) == []
    assert market.offer("swift").tariff == own


def test_a_name_that_is_an_alias_is_left_to_its_owner(market: Market) -> None:
    Model.objects.create(slug=f"{market.slug}/ours", name="Ours", aliases=[f"{market.slug}/swift"])
    market.sells("swift", tokens_price())
    assert market.skipped() == [("NAME: swift", f"its name is an alias of {market.slug}/ours")]
    assert market.import_() == ["+ provider NAME: https://llm.example.com/v1"]


def test_it_shows_and_asks_before_it_changes_anything(undone: None) -> None:
    Provider.objects.filter(slug="groq").delete()
    out = StringIO()
    call_command("import_catalog", "--provider", "groq", "--dry-run", stdout=out)
    assert "+ provider groq: https://api.groq.com/openai/v1\n" in out.getvalue()
    assert not Provider.objects.filter(slug="groq").exists()
    with pytest.raises(CommandError, match="Nobody to ask"):  # a test has no terminal
        call_command("import_catalog", "--provider", "groq", stdout=StringIO())
    assert not Provider.objects.filter(slug="groq").exists()
    call_command("import_catalog", "--provider", "groq", "--yes", stdout=StringIO())
    assert Provider.objects.filter(slug="groq").exists()


def test_an_unknown_vendor_is_named() -> None:
    with pytest.raises(CommandError, match="there is no vendor 'nobody' to import; there are openai, "):
        call_command("import_catalog", "--provider", "nobody", "--yes")
    with pytest.raises(UnknownVendor, match="'nobody' is not on the price list"):
        plan([Vendor("nobody", "nobody", "https://x.example")], [], NOW)


class Terminal(StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_for_those_who_look() -> None:
    terminal, pipe = Terminal(), StringIO()
    for stream in (terminal, pipe):
        progress = Progress("Working", 4, stream)
        progress.step()
        progress.step(3)
    assert terminal.getvalue().startswith(f"\rWorking [{'#' * 10}{'.' * 30}] 1/4")
    assert terminal.getvalue().endswith(f"\rWorking [{'#' * 40}] 4/4\n")
    assert pipe.getvalue() == ""


@pytest.mark.parametrize("failure", [KeyError, OSError])
def test_a_user_without_a_name_runs_commands_too(failure: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> None:
        raise failure(uid)

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    parser = CommandParser()
    add_by(parser)
    assert parser.parse_args([]).by == f"uid {os.getuid()}"
    assert parser.parse_args(["--by", "ada"]).by == "ada"
