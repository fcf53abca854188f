"""The price list of the installed `genai-prices` package, as rates of ours. No database, no network.

Exact or not at all: a price that our rates cannot say to the last digit is given as a reason instead.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal

from django.core.exceptions import ValidationError
from genai_prices import types as listed

from billing.models import Item
from routing.models import model_slug_validator
from routing.starter.vendors import Vendor

Rates = dict[tuple[str, int], Decimal]  # by item and `above`, the size of prompt; cost and charge are the same

# The list's unit, and the items it prices. Its cache writes without a lifetime stand for both of ours.
UNITS: Mapping[str, tuple[str, ...]] = {
    "input_mtok": (Item.INPUT,),
    "output_mtok": (Item.OUTPUT,),
    "cache_read_mtok": (Item.CACHED_INPUT,),
    "cache_write_mtok": (Item.CACHE_WRITE_5M, Item.CACHE_WRITE_1H),
    "cache_write_5m_mtok": (Item.CACHE_WRITE_5M,),
    "cache_write_1h_mtok": (Item.CACHE_WRITE_1H,),
    "input_audio_mtok": (Item.AUDIO_INPUT,),
    "input_image_mtok": (Item.IMAGE_INPUT,),
    "input_video_mtok": (Item.VIDEO_INPUT,),
    "output_audio_mtok": (Item.AUDIO_OUTPUT,),
    "output_image_mtok": (Item.IMAGE_OUTPUT,),
    "output_reasoning_mtok": (Item.REASONING,),
    "requests_kcount": (Item.REQUEST,),
    "web_searches_kcount": (Item.WEB_SEARCH,),
}
PER_THOUSAND = {"requests_kcount", "web_searches_kcount"}  # ours are dollars each
# What a chat completion cannot use: searches in a store of files belong to another endpoint.
UNUSED = {"storage_searches_kcount"}
PLACES = Decimal("0.000001")
LARGEST = Decimal(10) ** 12


class Inexpressible(Exception):
    """Our rates cannot say this price exactly. The message says why."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A model at a vendor, and its rates by the moment they start, now first; or the `reason` for none."""

    vendor: str
    upstream_model: str
    slug: str
    name: str
    context_length: int  # 0: unknown
    prices: tuple[tuple[datetime, Rates], ...]
    reason: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something on the list that is not imported at all."""

    name: str
    reason: str


def read(vendor: Vendor, models: Iterable[listed.ModelInfo], now: datetime) -> tuple[list[Listing], list[Skipped]]:
    """A vendor's models that are chat models and have a name of ours, and the others. `now` is in UTC."""
    found: list[Listing] = []
    skipped: list[Skipped] = []
    for model in models:
        name = f"{vendor.slug}: {model.id}"
        upstream_model = _upstream_model(model)
        slug = (model.id if "/" in model.id else f"{vendor.author}/{model.id}").lower()
        if vendor.only and not model.id.startswith(vendor.only):
            skipped.append(Skipped(name, "not sold at the vendor's OpenAI-compatible endpoint"))
        elif upstream_model is None:
            skipped.append(Skipped(name, "the list gives a pattern, not a name to call it by"))
        elif not _is_slug(slug):
            skipped.append(Skipped(name, "its name makes no model slug"))
        elif not _is_chat(model, now):
            skipped.append(Skipped(name, "no price for input and output tokens"))
        else:
            found.append(_listing(vendor, model, upstream_model, slug, now))
    return found, skipped


def _listing(vendor: Vendor, model: listed.ModelInfo, upstream_model: str, slug: str, now: datetime) -> Listing:
    prices: tuple[tuple[datetime, Rates], ...] = ()
    reason = ""
    try:
        prices = tuple(_changes((start, rates(model.get_prices(start))) for start in _starts(model, now)))
    except Inexpressible as error:
        reason = str(error)
    context = model.context_window or 0
    words = " ".join((model.description or "").split())
    return Listing(vendor.slug, upstream_model, slug, model.name or model.id, context, prices, reason, words)


def _upstream_model(model: listed.ModelInfo) -> str | None:
    """The name to call it by: its id if that matches itself, else the first name that is spelled out."""
    if model.id.startswith("ft:"):
        return None  # a fine-tune's price, whatever the fine-tune is called
    if model.is_match(model.id):
        return model.id
    clauses = model.match.or_ if isinstance(model.match, listed.ClauseOr) else [model.match]
    return next((clause.equals for clause in clauses if isinstance(clause, listed.ClauseEquals)), None)


def _is_slug(slug: str) -> bool:
    try:
        model_slug_validator(slug)
    except ValidationError:
        return False
    return True


def _is_chat(model: listed.ModelInfo, now: datetime) -> bool:
    price = _values(model.get_prices(now))
    return "input_mtok" in price and "output_mtok" in price


def _starts(model: listed.ModelInfo, now: datetime) -> list[datetime]:
    """Now, and the moments in the future from which other prices hold."""
    if isinstance(model.prices, listed.ModelPrice):
        return [now]
    starts = [now]
    for price in model.prices:
        match price.constraint:
            case None:
                pass
            case listed.StartDateConstraint(start_date=day):
                starts.append(datetime.combine(day, time(), UTC))
            case _:
                raise Inexpressible("its price depends on the hour")
    return sorted(start for start in set(starts) if start >= now)


def _changes(prices: Iterable[tuple[datetime, Rates]]) -> Iterator[tuple[datetime, Rates]]:
    before: Rates | None = None
    for start, now in prices:
        if now != before:
            yield start, now
        before = now


def _values(price: listed.ModelPrice) -> dict[str, Decimal | listed.TieredPrices]:
    return {unit: value for unit, value in vars(price).items() if value is not None}


def rates(price: listed.ModelPrice) -> Rates:
    """The rates that say exactly what `price` says of a chat completion. Raises `Inexpressible`."""
    found: dict[str, dict[int, Decimal]] = {}
    # What names a lifetime overrides what does not, whatever the order.
    for unit, value in sorted(_values(price).items(), key=lambda entry: -len(UNITS.get(entry[0], ()))):
        if unit in UNUSED:
            continue
        if unit not in UNITS:
            raise Inexpressible(f"it has a price of its own for {unit.rpartition('_')[0].replace('_', ' ')}")
        amounts = {above: _amount(unit, price) for above, price in _by_size(value)}
        found.update({str(item): amounts for item in UNITS[unit]})
    return {(item, above): amount for item, amounts in found.items() for above, amount in amounts.items()}


def _by_size(value: Decimal | listed.TieredPrices) -> Iterable[tuple[int, Decimal]]:
    """The list's tiers are ours: a threshold on the whole prompt, exclusive, for every token of the request."""
    if isinstance(value, Decimal):
        return [(0, value)]
    return [(0, value.base), *((tier.start, tier.price) for tier in value.tiers)]


def _amount(unit: str, price: Decimal) -> Decimal:
    amount = price / 1000 if unit in PER_THOUSAND else price
    if not 0 <= amount < LARGEST or amount != amount.quantize(PLACES):
        raise Inexpressible(f"a price has more than six decimals ({price})")
    return amount.quantize(PLACES)
