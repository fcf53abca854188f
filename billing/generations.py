"""Console pages of generations: the list with its filters, one generation with its arithmetic, and the export.

The table may hold billions of rows, is partitioned by its time-ordered ids and has no index on `created_at`: a range of
time is a range of ids, nothing is counted, and without a range the list looks at the last days alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.contrib.admin import FieldListFilter
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_time
from unfold.contrib.filters.admin import DropdownFilter, TextFilter
from unfold.contrib.filters.forms import RangeDateTimeForm
from unfold.decorators import display

from accounts.console import Record, dollars, plain
from accounts.models import ApiKey, Organization, Project
from billing.exports import generations_csv
from billing.ids import first_id
from billing.models import Attempt, Basis, Item, LedgerEntry, Status, Usage
from billing.pricing import Line, Rate

LOOK_BACK = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Range:
    """A range of time, UTC: `start` inclusive, `end` exclusive; None is open."""

    start: datetime | None
    end: datetime | None

    @property
    def never(self) -> bool:
        """Whether nothing can lie in it."""
        return self.start is not None and self.end is not None and self.start >= self.end


def moment(day: str, hour: str, missing: time) -> datetime | None:
    """What two inputs say, UTC; a day alone is at `missing`. None when both are empty. Raises ValueError."""
    if not day.strip():
        return None
    date, clock = parse_date(day.strip()), parse_time(hour.strip()) if hour.strip() else missing
    if date is None or clock is None:
        raise ValueError("not a date and time")
    return datetime.combine(date, clock, UTC)
