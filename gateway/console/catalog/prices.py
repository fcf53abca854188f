"""Prices as the catalog's pages show them: the rows of the grid, and one price beside others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.formats import dollars, short
from billing.pricing import EACH, PARTS_OF_INPUT, PARTS_OF_OUTPUT, Prices, Rates

# The rows that every grid has, each with its items; then those that it has where somebody prices them.
ROWS = (
    (gettext_lazy("Input"), ("input",)),
    (gettext_lazy("Cached read"), ("cached_input",)),
    (gettext_lazy("Cache write, 5 minutes"), ("cache_write_5m",)),
    (gettext_lazy("Cache write, 1 hour"), ("cache_write_1h",)),
    (gettext_lazy("Output"), ("output",)),
    (gettext_lazy("Reasoning"), ("reasoning",)),
    (gettext_lazy("Audio in"), ("audio_input",)),
    (gettext_lazy("Audio out"), ("audio_output",)),
    (gettext_lazy("Image in"), ("image_input",)),
    (gettext_lazy("Image out"), ("image_output",)),
    (gettext_lazy("Video"), ("video_input",)),
    (gettext_lazy("Each request, each search"), ("request", "web_search")),
)
MORE_ROWS = ((gettext_lazy("Each image"), ("image",)), (gettext_lazy("Each second"), ("second",)))


@dataclass(frozen=True, slots=True)
class Price:
    """What one cell says: `text`, exact in `title`, and `note` where it depends on the size of the prompt."""

    text: str
    title: str = ""
    note: str = ""


def charge(prices: Prices, item: str) -> Decimal | None:
    """Dollars for an item in the shortest prompt, per million tokens or each. None: it has no price that is known."""
    return prices.rates[item].charge if item in prices.rates else None


def price(prices: Prices, *items: str) -> Price:
    """A cell of the grid. An item without a rate of its own is billed as what it is part of, which the title says."""
    found = [(item, changes) for item in items if (changes := _changes(prices, item))]
    if not found:
        needed = items[0] in ("input", "output")
        return Price(_("unknown") if needed else "-", _without(prices, items[0]))
    texts, titles, notes = [], [], []
    for item, changes in found:
        unit = _unit(item)
        (_from, first), *later = changes
        texts.append(_short(first) + (unit if item in EACH and len(items) > 1 else ""))
        titles.append(_exact(first) + (unit or _(" for a million tokens")))
        for above, value in later:
            words = _("%(price)s for what is beyond %(size)s tokens") if _is_marginal(prices, item) else _(
                "%(price)s for prompts of more than %(size)s tokens"
            )  # fmt: skip
            notes.append(words % {"price": _short(value), "size": f"{above:,}"})
    return Price(", ".join(texts), "; ".join(titles), "; ".join(notes))


def grid(offers: Sequence[Prices]) -> list[tuple[str, list[Price]]]:
    """The rows of the grid, each with a cell for each of `offers`."""
    shown = [*ROWS, *(row for row in MORE_ROWS if any(charge(one, row[1][0]) is not None for one in offers))]
    return [(str(title), [price(one, *items) for one in offers]) for title, items in shown]


def classes(offers: Iterable[Prices]) -> list[str]:
    """The classes of service that have rates of their own."""
    return sorted({service for one in offers for service in one.classes})


def _changes(prices: Prices, item: str) -> list[tuple[int, Decimal | None]]:
    """The charge from each size of prompt on (exclusive) at which it becomes another one. None: unknown."""
    found: list[tuple[int, Decimal | None]] = []
    for above, rates in ((0, prices.rates), *((step.above, step.rates) for step in prices.steps)):
        if not found or _of(rates, item) != found[-1][1]:
            found.append((above, _of(rates, item)))
    return [] if all(value is None for _above, value in found) and item not in prices.rates else found


def _of(rates: Rates, item: str) -> Decimal | None:
    return rates[item].charge if item in rates else None


def _is_marginal(prices: Prices, item: str) -> bool:
    return prices.marginal.charge and (item == "input" or item in PARTS_OF_INPUT)


def _without(prices: Prices, item: str) -> str:
    whole = "input" if item in PARTS_OF_INPUT else "output" if item in PARTS_OF_OUTPUT else ""
    if whole and charge(prices, whole) is not None:
        return _("Billed as input") if whole == "input" else _("Billed as output")
    return _("No price")


def _unit(item: str) -> str:
    if item not in EACH:
        return ""
    words = {"request": _(" a request"), "web_search": _(" a search"), "image": _(" an image")}
    return words.get(item, _(" a second"))


def _short(value: Decimal | None) -> str:
    return _("unknown") if value is None else short(value)


def _exact(value: Decimal | None) -> str:
    return _("unknown") if value is None else dollars(value)
