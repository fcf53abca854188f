"""What somebody looks for in the catalog: words, filters and an order, as the query string says them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from gateway.console.catalog.facts import About, surfaces, takes
from gateway.console.catalog.prices import charge
from gateway.console.catalog.shelf import Entry
from gateway.console.health_board import Figures

LONGEST = 100  # characters of a word of the query string
NEVER = date.min


@dataclass(frozen=True, slots=True)
class Line:
    """A model of the list. `tokens`: a day; `did`: in the last 30 days; None: not known."""

    entry: Entry
    about: About
    tokens: int | None
    did: Figures | None

    @property
    def first_token(self) -> float | None:
        """Milliseconds, the median."""
        return self.did.ttft_p50 if self.did else None


def _last(value: Any) -> tuple[bool, Any]:
    """What is not known comes after what is."""
    return value is None, value if value is not None else 0


ORDERS: Mapping[str, tuple[Any, Callable[[Line], Any]]] = {
    "name": (_("Name"), lambda line: line.entry.model.name.casefold()),
    "price": (_("Cheapest input"), lambda line: _last(charge(line.entry.prices, "input"))),
    "context": (_("Longest context"), lambda line: -line.entry.model.context_length),
    "newest": (_("Newest"), lambda line: -(line.entry.model.published_on or NEVER).toordinal()),
    "tokens": (_("Tokens a day"), lambda line: -(line.tokens or 0)),
    "latency": (_("First token"), lambda line: _last(line.first_token)),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One look at the list. Empty and None: any. `order`: of `ORDERS`; `everything`: also what may not be used."""

    words: str = ""
    author: str = ""
    modality: str = ""
    surface: str = ""
    parameter: str = ""
    context: int | None = None
    price: Decimal | None = None
    order: str = "name"
    everything: bool = False

    def finds(self, line: Line) -> bool:
        """Whether a line is one of those looked for."""
        model, about = line.entry.model, line.about
        if line.entry.why and not self.everything:
            return False
        if self.author and line.entry.author != self.author:
            return False
        if self.modality and self.modality not in (*model.input_modalities, *model.output_modalities):
            return False
        if self.context is not None and model.context_length < self.context:
            return False
        if self.price is not None:
            found = charge(line.entry.prices, "input")
            if found is None or found > self.price:
                return False
        if self.surface and not any(one.name == self.surface and one.by for one in surfaces(model)):
            return False
        if self.parameter and not takes(model, self.parameter):
            return False
        said = " ".join((model.slug, model.name, about.author, about.description, *model.aliases)).casefold()
        return all(word in said for word in self.words.casefold().split())

    def chosen(self, lines: Iterable[Line]) -> list[Line]:
        """Those that are looked for, in their order; equals by slug."""
        key = ORDERS[self.order][1]
        return sorted(filter(self.finds, lines), key=lambda line: (key(line), line.entry.model.slug))


def asked(query: QueryDict) -> Asked:
    """What a query string asks for; what it says wrongly is passed over."""

    def text(name: str) -> str:
        return query.get(name, "").replace("\0", "").strip()[:LONGEST]

    order = text("order")
    return Asked(
        words=text("q"),
        author=text("author"),
        modality=text("modality"),
        surface=text("surface"),
        parameter=text("parameter"),
        context=_whole(text("context")),
        price=_amount(text("price")),
        order=order if order in ORDERS else "name",
        everything=text("show") == "all",
    )


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _amount(text: str) -> Decimal | None:
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return found if found.is_finite() and found >= 0 else None
