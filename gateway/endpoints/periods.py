"""Spans of UTC days in a query string, and the buckets they fall into. What makes no sense is refused by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.http import HttpRequest

from gateway.wire.errors import InvalidRequest

DAY, WEEK = timedelta(days=1), timedelta(weeks=1)


@dataclass(frozen=True, slots=True)
class Days:
    """UTC days, both inclusive."""

    first: date
    last: date

    def __len__(self) -> int:
        """How many."""
        return (self.last - self.first).days + 1

    @property
    def begin(self) -> datetime:
        """When the first begins."""
        return datetime.combine(self.first, time(), UTC)

    @property
    def end(self) -> datetime:
        """When the last has ended."""
        return datetime.combine(self.last, time(), UTC) + DAY


def day(request: HttpRequest, name: str, *, required: bool = False) -> date | None:
    """The parameter `name`, a day like 2026-01-31; None when it is absent or empty and not required."""
    text = request.GET.get(name)
    if not text:
        if required:
            raise InvalidRequest(f"{name} is required.", param=name, code="invalid_value")
        return None
    try:
        found = date.fromisoformat(text)
        if not 2000 <= found.year <= 2200 or found.isoformat() != text:
            raise ValueError
    except ValueError as error:
        raise InvalidRequest(f"{name} must be a day like 2026-01-31.", param=name, code="invalid_value") from error
    return found


def span(first: date, last: date, most: int | None = None) -> Days:
    """The days from `first` to `last`, at most `most`. Raises `InvalidRequest` for a span that is none."""
    if first > last:
        raise InvalidRequest("starting_at must not be after ending_at.", param="starting_at", code="invalid_value")
    if most is not None and (last - first).days >= most:
        raise InvalidRequest(f"Ask for at most {most} days at once.", param="starting_at", code="invalid_value")
    return Days(first, last)


def past_days(request: HttpRequest, most: int) -> Days:
    """The span that a query must name, at most `most` days and none that is still to come."""
    first, last = day(request, "starting_at", required=True), day(request, "ending_at", required=True)
    assert first is not None and last is not None
    if last > today():
        raise InvalidRequest("ending_at must not be in the future.", param="ending_at", code="invalid_value")
    return span(first, last, most)


def today() -> date:
    """The running day."""
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class Buckets:
    """The days or weeks of a span; weeks begin on Monday (ISO 8601), and `last` is the last one's first day.

    `unit` is PostgreSQL's name of the width.
    """

    unit: str
    first: date
    last: date

    @property
    def width(self) -> timedelta:
        """How long one is."""
        return WEEK if self.unit == "week" else DAY

    @property
    def days(self) -> Days:
        """The days in them."""
        return Days(self.first, self.last + self.width - DAY)

    def __len__(self) -> int:
        """How many."""
        return (self.last - self.first) // self.width + 1

    def __iter__(self) -> Iterator[date]:
        """Their first days."""
        return (self.first + place * self.width for place in range(len(self)))

    def period(self, start: date) -> str:
        """The name of the one that begins `start`: YYYYMMDD, or year and number of the ISO week, YYYYWW."""
        year, week, _ = start.isocalendar()
        return f"{year}{week:02}" if self.unit == "week" else f"{start:%Y%m%d}"


def buckets(request: HttpRequest, widths: dict[str, int], most: int) -> Buckets:
    """The buckets that `bucket_width`, `starting_at` and `ending_at` ask for, at most `most`.

    `widths` says how many of a width there are when no start is given; without an end the last one holds today.
    """
    width = choice(request, "bucket_width", tuple(widths))
    unit = "week" if width == "1w" else "day"
    step = WEEK if unit == "week" else DAY
    last = _snapped(day(request, "ending_at") or today(), unit)
    given = day(request, "starting_at")
    first = last - (widths[width] - 1) * step if given is None else _snapped(given, unit)
    found = Buckets(unit, first, last)
    if first > last:
        raise InvalidRequest("starting_at must not be after ending_at.", param="starting_at", code="invalid_value")
    if len(found) > most:
        raise InvalidRequest(f"Ask for at most {most} buckets at once.", param="starting_at", code="invalid_value")
    return found


def choice(request: HttpRequest, name: str, values: tuple[str, ...], usual: str = "") -> str:
    """The parameter `name`, which must be one of `values`; `usual` when it is absent or empty."""
    text = request.GET.get(name) or usual
    if text not in values:
        said = f"{', '.join(values[:-1])} or {values[-1]}"
        raise InvalidRequest(f"{name} must be {said}.", param=name, code="invalid_value")
    return text


def limit(request: HttpRequest, usual: int, most: int) -> int:
    """The parameter `limit`, from 1 to `most`."""
    text = request.GET.get("limit") or str(usual)
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= most):
        raise InvalidRequest(f"limit must be from 1 to {most}.", param="limit", code="invalid_value")
    return int(text)


def _snapped(day: date, unit: str) -> date:
    return day - timedelta(days=day.weekday()) if unit == "week" else day
