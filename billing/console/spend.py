"""The console's page Spend: what was spent, by whom and on what, and whether the other books say so too.

Everything on it is a link that narrows: a tenant leads to its projects, a project to its keys, a month to its days, an
end user, or a value of a tag, to the models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.console import dollars, money, number, sees_books
from accounts.exact import plain
from accounts.models import ApiKey, Organization, Project
from billing.closings import month_after
from billing.documents import counted
from billing.exports.csv_file import CsvFile
from billing.exports.xlsx_file import XlsxFile
from billing.models import ReportTags
from billing.spending import (
    DIMENSIONS,
    SHOWN,
    TIMES,
    TOLD,
    Books,
    Days,
    Line,
    Side,
    Sums,
    Whose,
    by_time,
    lines,
    lines_file,
    rolled_up_until,
)
from billing.spending import books as books_of

TYPED = ("from", "to", "organization", "model", "provider", "end_user", "tag")
MOST_LINES = 100
MOST_FILED = 50_000  # lines of a file, which is made in memory
FORMATS: dict[str, type[CsvFile] | type[XlsxFile]] = {one.name: one for one in (CsvFile, XlsxFile)}
LATE = timedelta(minutes=10)  # the worker rolls up every two minutes
HEIGHT, STEP, BAR = 120, 20, 16  # of the chart, in its own units
MOST_BARS = 62  # days; what is longer is drawn by month
# What a group is told apart by next, once it is chosen.
DEEPER = ("organization", "project", "key", "model", "provider", "day")
OF_GENERATIONS = ("organization", "project", "key", "model", "provider", "end_user", "metadata")
TITLES = {
    "organization": gettext_lazy("Organization"),
    "project": gettext_lazy("Project"),
    "key": gettext_lazy("Key"),
    "model": gettext_lazy("Model"),
    "provider": gettext_lazy("Provider"),
    "end_user": gettext_lazy("End user"),
    "tag": gettext_lazy("Tag"),
    "month": gettext_lazy("Month"),
    "day": gettext_lazy("Day"),
}
HEADS = TITLES | {"month": gettext_lazy("Month (UTC)"), "day": gettext_lazy("Day (UTC)")}
NO_RANGE = gettext_lazy("The range of time is not one. Write days as 2026-01-31, three years at most.")
NONE = gettext_lazy("(none)")
LONGEST = 512  # characters of a name that is looked for: an end user's, or a value's
MOST_SUGGESTED = 50  # tags


class NoSuch(Exception):
    """What was asked for is not there."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an address asks for."""

    days: Days
    whose: Whose
    by: tuple[str, ...]

    def query(self) -> str:
        """The address's query string."""
        chosen = {name: str(value) for name, value in self.whose.values().items() if value is not None}
        told = {"from": str(self.days.first), "to": str(self.days.last), "by": self.by, **chosen}
        return urlencode(told, doseq=True)

    def within(self, name: str, value: str) -> "Asked":
        """The same of one group alone: of the dimension `name`, what stands for it in an address."""
        days, whose = self.days, self.whose
        if name in TIMES:
            first = date.fromisoformat(value)
            last = first if name == "day" else month_after(first) - timedelta(days=1)
            days = Days(max(first, days.first), min(last, days.last))
        else:
            chosen: Any = UUID(value) if name in ("organization", "project", "key") else value
            whose = replace(whose, **{"value" if name == "tag" else name: chosen})
        left = tuple(one for one in self.by if one != name)
        return Asked(days, whose, left or (self._next(name, whose),))

    def _next(self, name: str, whose: Whose) -> str:
        if name == "month":
            return "day"
        place = DEEPER.index("model" if name in TOLD else name) + (name not in TOLD)
        free = [one for one in (*DEEPER[place:], *DEEPER[:place]) if getattr(whose, one, None) is None]
        return next((one for one in free if one != name), "day")

    def without(self, name: str) -> "Asked":
        """The same without the filter `name`, and without what is narrower: a project is of one organization."""
        finer = {"organization": ("project", "key", "end_user", "tag", "value"), "project": ("key",)}.get(name, ())
        left = tuple(one for one in self.by if name != "organization" or one not in TOLD)
        return replace(self, whose=replace(self.whose, **dict.fromkeys((name, *finer))), by=left or ("organization",))


def asked_for(asked: Mapping[str, str], by: Sequence[str], today: date) -> Asked:
    """What a query string asks for: the running month, by organization, when it says nothing. A day, `from` or `to`,
    stands for itself and for the rest of its month. Raises ValueError for what are no days, NoSuch for ids of nobody,
    and for what is not told apart.
    """
    first, last = (_day(asked.get(name, "")) for name in ("from", "to"))
    if first is None:
        first = (last or today).replace(day=1)
    if last is None:
        last = today if first <= today < month_after(first) else month_after(first) - timedelta(days=1)
    whose = _whose({name: asked.get(name, "").strip()[:LONGEST] for name in Whose().values()})
    known = tuple(dict.fromkeys(name for name in by if name in DIMENSIONS))
    if "tag" in known and not whose.tag and (names := tags_of(whose.organization)):
        whose = replace(whose, tag=names[0])
    try:
        whose.told(known)
    except ValueError as error:
        raise NoSuch(str(error)) from None
    return Asked(Days(first, last), whose, known or ("model" if whose.organization else "organization",))


def tags_of(organization: UUID | None) -> list[str]:
    """By which tags an organization's spending is told apart; of all of them together some, where none is given."""
    found = ReportTags.objects.order_by("pk")
    found = found.filter(pk=organization) if organization else found[:MOST_SUGGESTED]
    names = dict.fromkeys(name for row in found.values_list("names", flat=True) for name in row)
    return list(names)[:MOST_SUGGESTED]


def _day(text: str) -> date | None:
    if not text.strip():
        return None
    found = parse_date(text.strip())
    if found is None:
        raise ValueError("not a day")
    return found


def _whose(asked: Mapping[str, str]) -> Whose:
    """Narrowed by everything that is known of it: the rollups of a tenant are found at once, those of a key are not."""
    organization, project, key = (uuid_of(asked[name]) for name in ("organization", "project", "key"))
    if asked["organization"] and organization is None:
        organization = Organization.objects.filter(slug=asked["organization"]).values_list("pk", flat=True).first()
        if organization is None:
            raise NoSuch(_("There is no organization %(value)s.") % {"value": asked["organization"]})
    if (asked["project"] and project is None) or (asked["key"] and key is None):
        raise NoSuch(_("There is no such project or key."))
    if key is not None:
        of_key = ApiKey.objects.filter(pk=key).values_list("project", flat=True).first()
        if of_key is None or project not in (None, of_key):
            raise NoSuch(_("There is no such key."))
        project = of_key
    if project is not None:
        of_project = Project.objects.filter(pk=project).values_list("organization", flat=True).first()
        if of_project is None or organization not in (None, of_project):
            raise NoSuch(_("There is no such project."))
        organization = of_project
    texts = {name: asked[name].replace("\0", "") or None for name in ("model", "provider", "end_user", "tag", "value")}
    return Whose(organization, project, key, **texts)


def uuid_of(text: str) -> UUID | None:
    """The id that a text is; None for any other text."""
    try:
        return UUID(text)
    except ValueError:
        return None


def page(request: HttpRequest) -> HttpResponse:
    """GET: the page; `rows` has usage rows read however many they are."""
    if not sees_books(request):
        raise PermissionDenied
    now = timezone.now()
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": _("Spend"),
        "typed": {name: request.GET.get(name, "") for name in TYPED},
        "age": _age(now),
    }
    try:
        asked = asked_for(request.GET.dict(), request.GET.getlist("by"), now.date())
    except ValueError:
        return _nothing(request, context, str(NO_RANGE))
    except NoSuch as error:
        return _nothing(request, context, str(error))
    return TemplateResponse(request, "admin/spend.html", {**context, **_shown(asked, request, now)})


def _nothing(request: HttpRequest, context: dict[str, Any], words: str) -> HttpResponse:
    return TemplateResponse(request, "admin/spend.html", {**context, "wrong": words, **_choices(None, timezone.now())})


def export(request: HttpRequest) -> HttpResponseBase:
    """GET: the page's lines as CSV, or as `format` says, all of them; back to the page where they are too many."""
    if not sees_books(request):
        raise PermissionDenied
    try:
        asked = asked_for(request.GET.dict(), request.GET.getlist("by"), timezone.now().date())
    except (ValueError, NoSuch):
        return redirect(f"{reverse('spend')}?{request.GET.urlencode()}")
    format = FORMATS.get(request.GET.get("format", ""), CsvFile)
    found = lines_file(asked.days, asked.whose, asked.by, MOST_FILED, format)
    if found is None:
        messages.error(
            request,
            _("More than %(MOST_FILED)s lines: narrow the range, or tell less apart.")
            % {"MOST_FILED": f"{MOST_FILED:,}"},
        )
        return redirect(f"{reverse('spend')}?{asked.query()}")
    name = f"spend-{asked.days.first}-{asked.days.last}-by-{'-'.join(asked.by)}.{format.suffix}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(b"".join(found), content_type=format.media, headers=headers)


# --- what the template is told ---------------------------------------------------------------------------------------


def _shown(asked: Asked, request: HttpRequest, now: datetime) -> dict[str, Any]:
    unit = "day" if asked.days.count <= MOST_BARS else "month"
    total, units = by_time(asked.days, asked.whose, unit, SHOWN)
    bars = _bars(asked, units, unit)
    found = lines(asked.days, asked.whose, asked.by, MOST_LINES + 1, SHOWN)
    thoroughly = "rows" in request.GET
    suggested = tags_of(asked.whose.organization) if asked.whose.told(asked.by) else ()
    return {
        **_choices(asked, now),
        "asked": asked,
        "query": asked.query(),
        "before": asked.days.before(),
        "running": asked.days.first <= now.date() <= asked.days.last,
        "figures": _figures(total),
        "total": _row(total),
        "unpriced": total.unpriced,
        "uncosted": total.uncosted,
        "bars": bars,
        "unit": unit,
        "width": len(bars) * STEP,
        "height": HEIGHT,
        "heads": [(_head(asked, name), name in TIMES) for name in asked.by],
        "untold": asked.whose.tag if asked.whose.tag and asked.whose.tag not in suggested else "",
        "lines": [_line(asked, line) for line in found[:MOST_LINES]],
        "more": len(found) > MOST_LINES,
        "books": _books(asked, thoroughly=thoroughly),
        "generations": _elsewhere("admin:billing_usage_changelist", asked, "_0", OF_GENERATIONS),
        "end_users": urlencode({"organization": asked.whose.organization}) if asked.whose.organization else "",
        "ledger": _elsewhere("admin:billing_ledgerentry_changelist", asked, "", ("organization",)),
    }


def _choices(asked: Asked | None, now: datetime) -> dict[str, Any]:
    """What else may be asked for: ranges, dimensions, and fewer filters."""
    today = now.date()
    this = today.replace(day=1)
    last = this - timedelta(days=1)
    ranges = [
        (_("This month"), Days(this, today)),
        (_("Last month"), Days(last.replace(day=1), last)),
        (_("Last 30 days"), Days(today - timedelta(days=29), today)),
        (_("This year"), Days(today.replace(month=1, day=1), today)),
    ]
    held = asked or Asked(ranges[0][1], Whose(), ("organization",))
    return {
        "ranges": [(name, replace(held, days=days).query(), days == held.days) for name, days in ranges],
        "dimensions": [(name, TITLES[name], name in held.by) for name in DIMENSIONS],
        "chosen": _chosen(held),
        "tags": tags_of(held.whose.organization),
    }


def _chosen(asked: Asked) -> list[dict[str, str]]:
    """The filters, by name, each with the page without it."""
    rows = {"organization": Organization, "project": Project, "key": ApiKey}
    chosen = []
    for name, value in asked.whose.values().items():
        if value is None or name == "tag":
            continue
        row = rows[name]._base_manager.filter(pk=value).first() if name in rows else None
        chosen.append(
            {
                "name": name,
                "title": _tag(asked) if name == "value" else str(TITLES[name]),
                "value": str(row or value),
                "given": str(value),
                "query": asked.without(name).query(),
            }
        )
    return chosen


def _head(asked: Asked, name: str) -> str:
    return _tag(asked) if name == "tag" else str(HEADS[name])


def _tag(asked: Asked) -> str:
    return _("Tag %(name)s") % {"name": asked.whose.tag}


def _age(now: datetime) -> dict[str, Any]:
    """Until when the rollups are, in words, and whether that is longer ago than it should be."""
    until = rolled_up_until()
    if until is None:
        return {"text": _("Nothing has been rolled up yet."), "late": True}
    words = _("Usage until %(moment)s UTC.") % {"moment": f"{until:%Y-%m-%d %H:%M:%S}"}
    return {"text": words, "late": now - until > LATE}


def _figures(total: Sums) -> list[dict[str, str]]:
    tokens = total.prompt_tokens + total.completion_tokens
    share = ""
    if total.charge:
        share = _("%(share)s %% of the charge") % {"share": f"{100 * total.margin / total.charge:,.1f}"}
    prompts = _("%(tokens)s in") % {"tokens": f"{total.prompt_tokens:,}"}
    requests = change(total.requests, total.requests_before)
    return [
        {"title": _("Charge"), "value": money(total.charge), "note": change(total.charge, total.charge_before)},
        {"title": _("Provider's cost"), "value": money(total.cost), "note": change(total.cost, total.cost_before)},
        {"title": _("Margin"), "value": money(total.margin), "note": share},
        {"title": _("Requests"), "value": number(total.requests), "note": requests},
        {"title": _("Tokens"), "value": number(tokens), "note": prompts},
    ]


def change(now: Decimal | int, before: Decimal | int) -> str:
    """How much more or less it is than before, in words."""
    if not before:
        return _("none before") if now else ""
    return f"{100 * (now - before) / Decimal(before):+,.1f} %"


def _row(sums: Sums) -> dict[str, Any]:
    return {
        "requests": number(sums.requests),
        "tokens": number(sums.prompt_tokens + sums.completion_tokens),
        "further": counted(sums.images, sums.seconds, sums.web_searches),
        "charge": money(sums.charge),
        "cost": money(sums.cost),
        "margin": money(sums.margin),
        "before": money(sums.charge_before),
        "change": change(sums.charge, sums.charge_before),
        "unpriced": sums.unpriced,
        "uncosted": sums.uncosted,
    }


def _line(asked: Asked, line: Line) -> dict[str, Any]:
    cells = [
        (shown or NONE, asked.within(name, value).query() if value else "", name in TIMES)
        for name, shown, value in zip(asked.by, line.names, line.meant, strict=True)
    ]
    return {"cells": cells, **_row(line.sums)}


def _bars(asked: Asked, units: Mapping[date, Sums], unit: str) -> list[dict[str, Any]]:
    """The charge of each day or month, and behind it that of the one that it is compared with."""
    starts = _starts(asked.days, unit)
    most = max((max(sums.charge, sums.charge_before) for sums in units.values()), default=Decimal(0)) or Decimal(1)
    bars = []
    for place, start in enumerate(starts):
        sums = units.get(start, Sums())
        name = f"{start:%Y-%m}" if unit == "month" else str(start)
        bars.append(
            {
                "x": place * STEP,
                "width": BAR,
                "title": _("%(name)s: %(charge)s; before: %(before)s")
                % {"name": name, "charge": dollars(sums.charge), "before": dollars(sums.charge_before)},
                **_height("", sums.charge, most),
                **_height("before_", sums.charge_before, most),
            }
        )
    return bars


def _height(name: str, value: Decimal, most: Decimal) -> dict[str, int]:
    height = max(1, round(HEIGHT * value / most)) if value > 0 else 0
    return {f"{name}height": height, f"{name}y": HEIGHT - height}


def _starts(days: Days, unit: str) -> list[date]:
    if unit == "day":
        return [days.first + timedelta(days=place) for place in range(days.count)]
    found = [days.first.replace(day=1)]
    while (after := month_after(found[-1])) <= days.last:
        found.append(after)
    return found


def _elsewhere(view: str, asked: Asked, suffix: str, names: Sequence[str]) -> str:
    """The address of a list of the same: what it filters by has the same names."""
    chosen = {name: str(value) for name, value in asked.whose.values().items() if value is not None and name in names}
    if "metadata" in names and asked.whose.value is not None:
        chosen["metadata"] = f"{asked.whose.tag}={asked.whose.value}"
    range = {f"created_at_from{suffix}": str(asked.days.first), f"created_at_to{suffix}": str(asked.days.last)}
    return f"{reverse(view)}?{urlencode({**chosen, **range})}"


def _books(asked: Asked, *, thoroughly: bool) -> dict[str, Any]:
    """What the other books say of it, and in words whether they agree."""
    found = books_of(asked.days, asked.whose.organization, thoroughly=thoroughly)
    if found is None:
        words = _("Compared is what is over: days of which nothing is on its way any more.")
        return {"words": words, "level": "none"}
    gone = found.kept is not None and found.kept > found.days.first
    sides = [(_("Usage rows"), found.usage), (_("Rollups"), found.rollups), (_("Ledger"), found.ledger)]
    return {
        "days": found.days,
        "sides": [_side(name, side, found.rollups) for name, side in sides if side is not None],
        "unread": found.usage is None and not gone,
        "kept": str(found.kept) if gone else "",
        "late": plain(found.late) if found.late else "",
        **_verdict(found),
    }


def _verdict(books: Books) -> dict[str, str]:
    if books.agree:
        return {"words": _("They agree to the last digit."), "level": "good"}
    if books.pending:
        words = _("Something of it is not sealed or rolled up yet: look again in some minutes.")
        return {"words": words, "level": "busy"}
    return {"words": _("They do not agree."), "level": "bad"}


def _side(name: str, side: Side, rollups: Side) -> dict[str, Any]:
    """A book's line, to the last digit."""
    return {
        "name": name,
        "charge": plain(side.charge),
        "cost": plain(side.cost),
        "requests": f"{side.requests:,}",
        "differs": side != rollups,
    }
