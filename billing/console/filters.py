"""Filters of the list of generations: time as a range of ids, tenants and states by choice, names by text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django.contrib.admin import FieldListFilter
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_time
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.contrib.filters.admin import DropdownFilter, TextFilter
from unfold.contrib.filters.forms import RangeDateTimeForm

from accounts.access.access import access_of
from accounts.access.table import Verb
from accounts.console import RelatedForm
from accounts.models import ApiKey, Organization, Project
from billing.ids import CLOCKS_APART, first_id
from billing.models import Basis, Status, Usage

LOOK_BACK = timedelta(days=7)
SLOW_MS, SLOW_TO_BEGIN_MS = 30_000, 5_000
# For what has no index, since one of metadata would halve the rate at which usage is written.
LOOK_BACK_THROUGH_ALL = timedelta(days=1)
UNINDEXED = ("metadata", "session", "end_user", "odd")
# Under which names of metadata clients say which session or conversation a request is of.
SESSIONS = ("session_id", "session", "conversation_id", "thread_id")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME_INPUTS = ("created_at_from_0", "created_at_from_1", "created_at_to_0", "created_at_to_1")


@dataclass(frozen=True, slots=True)
class Range:
    """A range of time, UTC: `start` inclusive, `end` exclusive; None is open."""

    start: datetime | None
    end: datetime | None

    def narrow(self, generations: QuerySet[Usage]) -> QuerySet[Usage]:
        """Those of `generations` that were admitted in this range, by the database's clock.

        The range of ids, which the index and the partitions need, is wider: an id is of its maker's clock.
        """
        if self.start:
            earliest = first_id(max(self.start, EPOCH + CLOCKS_APART) - CLOCKS_APART)
            generations = generations.filter(id__gte=earliest, created_at__gte=self.start)
        if self.end:
            latest = first_id(max(self.end, EPOCH) + CLOCKS_APART)
            generations = generations.filter(id__lt=latest, created_at__lt=self.end)
        return generations


def asked_range(asked: Mapping[str, str]) -> Range:
    """The range a query string asks for: a day alone is meant whole; the last days when it says nothing and
    searches for nothing (the last one for what has no index). Raises ValueError for what is no date or time.
    """
    from_day, from_time, to_day, to_time = (asked.get(name, "").strip() for name in TIME_INPUTS)
    start, end = _moment(from_day, from_time), _moment(to_day, to_time)
    if end and not to_time:
        end += timedelta(days=1)
    if not start and not end and not asked.get("q"):
        start = timezone.now() - (LOOK_BACK_THROUGH_ALL if any(map(asked.get, UNINDEXED)) else LOOK_BACK)
    return Range(start, end)


def _moment(day: str, clock: str) -> datetime | None:
    if not day:
        return None
    date, at = parse_date(day), parse_time(clock) if clock else time()
    if date is None or at is None or date.year == 9999:  # no day follows the last
        raise ValueError("not a date and time")
    return datetime.combine(date, at, UTC)


class TimeFilter(FieldListFilter):
    """Generations of a range of time."""

    template = "unfold/filters/filters_datetime_range.html"
    form_class = RangeDateTimeForm

    def __init__(self, field: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(field, request, *args, **kwargs)
        self.title = _("time (UTC)")
        self.asked = {name: request.GET.get(name, "") for name in TIME_INPUTS}

    def expected_parameters(self) -> list[str | None]:
        return list(TIME_INPUTS)

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: Any) -> Iterator[Any]:
        # Shown as it was typed, not judged: a day without a time is meant whole, which the form would call an error.
        from_day, from_time, to_day, to_time = (self.asked[name] for name in TIME_INPUTS)
        typed = {"created_at_from": [from_day, from_time], "created_at_to": [to_day, to_time]}
        yield {"form": self.form_class(name="created_at", initial=typed)}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Usage]) -> QuerySet[Usage]:
        try:
            return asked_range(request.GET.dict()).narrow(queryset)
        except ValueError:
            return queryset.none()


class ChosenFilter(DropdownFilter):
    """Generations by one of the values on offer, and by nothing else."""

    def has_output(self) -> bool:
        """Also without an offer: a filter that is asked for but left out would show, and export, too much."""
        return bool(self.lookup_choices) or bool(self.value())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Usage]) -> QuerySet[Usage]:
        value = self.value()
        if not value:
            return queryset
        if value not in {choice for choice, _name in self.lookup_choices}:
            return queryset.none()
        return self.narrow(queryset, value)

    def narrow(self, generations: QuerySet[Usage], value: str) -> QuerySet[Usage]:
        """Those of `generations` with the chosen value."""
        return generations.filter(**{str(self.parameter_name): value})


class StatusFilter(ChosenFilter):
    """By how they ended."""

    title = gettext_lazy("status")
    parameter_name = "status"
    BAD = "bad"
    FAILED = (Status.FAILED, Status.ABANDONED)

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return [*Status.choices, (self.BAD, _("Failed or abandoned"))]

    def narrow(self, generations: QuerySet[Usage], value: str) -> QuerySet[Usage]:
        """Those that ended so."""
        if value == self.BAD:
            return generations.filter(status__in=self.FAILED)
        return super().narrow(generations, value)


class BasisFilter(ChosenFilter):
    """By what the charge rests on."""

    title = gettext_lazy("basis")
    parameter_name = "basis"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return Basis.choices


class OddFilter(ChosenFilter):
    """Those with something of unknown price, or that took long. No index knows them: of the last day, unless a time is
    given.
    """

    title = gettext_lazy("what is odd")
    parameter_name = "odd"
    UNPRICED, SLOW = "unpriced", "slow"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return [(self.UNPRICED, _("Unpriced")), (self.SLOW, _("Slow: above 30 s, or 5 s to the first token"))]

    def narrow(self, generations: QuerySet[Usage], value: str) -> QuerySet[Usage]:
        """Those that are so."""
        if value == self.UNPRICED:
            return generations.filter(Q(charge=None) | Q(arithmetic__contains=[{"charge": None}]))
        return generations.filter(Q(duration_ms__gt=SLOW_MS) | Q(ttft_ms__gt=SLOW_TO_BEGIN_MS))


class OrganizationFilter(ChosenFilter):
    """By tenant, of whom there may be thousands: the browser asks for those whose slug begins as typed."""

    title = gettext_lazy("organization")
    parameter_name = "organization"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        self.asked = {"request": request, "model_admin": model_admin}
        chosen = access_of(request).rows(Organization.objects.filter(asked_for(request, organization="pk")))
        return [(str(pk), slug) for pk, slug in chosen.values_list("pk", "slug")]

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: Any) -> Iterator[Any]:
        shown = self.value() if self.lookup_choices else None  # what is no tenant's id cannot be looked up
        yield {
            "form": RelatedForm(
                name=str(self.parameter_name),
                label=_(" By %(title)s ") % {"title": self.title},
                choices=(),
                field=Project._meta.get_field("organization"),  # any column that leads to tenants
                data={self.parameter_name: shown},
                **self.asked,
            )
        }


class ProjectFilter(ChosenFilter):
    """By project; on offer are those of the chosen organization."""

    title = gettext_lazy("project")
    parameter_name = "project"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        asked = asked_for(request, organization="organization", project="pk")
        projects = access_of(request).rows(Project.objects.filter(asked))
        return [(str(pk), slug) for pk, slug in projects.order_by("slug").values_list("pk", "slug")]

    def narrow(self, generations: QuerySet[Usage], value: str) -> QuerySet[Usage]:
        """By its organization too, which the index starts with."""
        organization = Project.objects.values_list("organization", flat=True).get(pk=value)
        return super().narrow(generations.filter(organization=organization), value)


class KeyFilter(ChosenFilter):
    """By key; on offer are those of the chosen project."""

    title = gettext_lazy("key")
    parameter_name = "key"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        asked = ApiKey.objects.filter(asked_for(request, project="project", key="pk"))
        if not access_of(request).everywhere(Usage, Verb.VIEW):  # who sees all generations sees whose they are
            asked = access_of(request).rows(asked)
        keys = asked.select_related("project__organization").order_by("name")
        return [(str(key.pk), str(key)) for key in keys]


def asked_for(request: HttpRequest, **columns: str) -> Q:
    """The condition that one of the named parameters, as far as they are ids, stands in its column."""
    condition = Q(pk__in=())
    for parameter, column in columns.items():
        try:
            condition |= Q(**{column: UUID(request.GET[parameter])})
        except (KeyError, ValueError):
            continue
    return condition


class NameFilter(TextFilter):
    """Generations by a whole name, typed."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Usage]) -> QuerySet[Usage]:
        text = (self.value() or "").strip().replace("\0", "")
        return self.narrow(queryset, text) if text else queryset

    def narrow(self, generations: QuerySet[Usage], text: str) -> QuerySet[Usage]:
        """Those of `generations` with this name."""
        return generations.filter(**{str(self.parameter_name): text})


class ModelFilter(NameFilter):
    """By the model's public name."""

    title = gettext_lazy("model")
    parameter_name = "model"


class ProviderFilter(NameFilter):
    """By the provider's slug."""

    title = gettext_lazy("provider")
    parameter_name = "provider"


class EndUserFilter(NameFilter):
    """By whom the client acts for, as requests name him."""

    title = gettext_lazy("end user")
    parameter_name = "end_user"


class AppFilter(NameFilter):
    """By the application that called, as it names itself."""

    title = gettext_lazy("application")
    parameter_name = "app"


class MetadataFilter(NameFilter):
    """By what the client sent along: a pair as `name=value`, or a name alone."""

    title = gettext_lazy("metadata (name=value)")
    parameter_name = "metadata"

    def narrow(self, generations: QuerySet[Usage], text: str) -> QuerySet[Usage]:
        """Those with the pair, or with any value under the name."""
        name, equals, value = text.partition("=")
        if equals:
            return generations.filter(metadata__contains={name: value})
        return generations.filter(metadata__has_key=name)


class SessionFilter(NameFilter):
    """By the session or conversation that the client says in its metadata, under any of the usual names."""

    title = gettext_lazy("session")
    parameter_name = "session"

    def narrow(self, generations: QuerySet[Usage], text: str) -> QuerySet[Usage]:
        """Those of that session."""
        found = Q(pk__in=())
        for name in SESSIONS:
            found |= Q(metadata__contains={name: text})
        return generations.filter(found)
