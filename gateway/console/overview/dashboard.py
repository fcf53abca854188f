"""What a range of days came to: spend, requests, tokens, errors and speed; how it went; and who and what it was for.

Read from rollups. The running day is read from its generations as long as they are few, so that the first request is
on the page at once; of more than `MOST_LOOKED_AT` the rollups tell, as far as they are made. A developer's own keys
have no rollups of how answers ended and how soon they began: of several days that stays untold.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Q, QuerySet, Sum
from django.db.models.functions import Coalesce
from django.urls import reverse
from django.utils.translation import gettext as _

from accounts.access.table import Verb
from accounts.console import dollars, money, number
from accounts.models import ApiKey, Organization, Project
from billing.ids import CLOCKS_APART, first_id
from billing.models import Span, SpendRollup, Status, Usage, UsageRollup
from billing.spending import rolled_up_until
from gateway.console.overview.asked import Asked

MOST_LOOKED_AT = 50_000  # generations of the running day that are added up one by one
MOST_TOPS = 8  # lines of each table
LATE = timedelta(minutes=10)  # the worker rolls up every two minutes
HEIGHT, STEP, BAR = 96, 20, 14  # of a chart, in its own units
WIDTH = 600  # of the bar of tokens

_TOKENS = ("prompt", "completion", "cached", "cache_write_5m", "cache_write_1h", "reasoning")
_ADDED = {name: Sum(f"{name}_tokens", default=0) for name in _TOKENS}
_UNPRICED = Q(charge=None) | Q(arithmetic__contains=[{"charge": None}])


@dataclass(frozen=True, slots=True)
class Sums:
    """What generations come to. Tokens are inclusive, as everywhere: cached ones are inside the prompt, reasoning
    inside the completion. `completed`, `ttft_count` and `ttft_ms` (of streams, milliseconds together) are None where
    nobody has counted them.
    """

    requests: int = 0
    charge: Decimal = Decimal(0)
    unpriced: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    completed: int | None = None
    ttft_count: int | None = None
    ttft_ms: int | None = None

    @property
    def cache_write(self) -> int:
        """Prompt tokens that were written into a cache."""
        return self.cache_write_5m + self.cache_write_1h

    def classes(self) -> list[tuple[str, str, int]]:
        """The tokens by class, each once: a name for the style sheet, one for people, and how many."""
        return [
            ("fresh", _("Prompt"), max(0, self.prompt - self.cached - self.cache_write)),
            ("cached", _("Cached prompt"), self.cached),
            ("written", _("Written to a cache"), self.cache_write),
            ("answer", _("Answer"), max(0, self.completion - self.reasoning)),
            ("reasoning", _("Reasoning"), self.reasoning),
        ]


def shown(asked: Asked) -> dict[str, Any]:
    """What the page's template is told of the range."""
    sums, fresh = added_up(asked)
    until = rolled_up_until()
    late = until is None or asked.now - until > LATE
    return {
        "figures": _figures(asked, sums),
        "tokens": _tokens(sums),
        "trend": _trend(asked),
        "tops": _tops(asked),
        "unpriced": sums.unpriced,
        "age": {"fresh": fresh, "until": until, "late": late},
    }


def added_up(asked: Asked) -> tuple[Sums, bool]:
    """What the range comes to; and whether that is told by the generations themselves."""
    rolled = _rolled(asked)
    if asked.days > 1 or rolled.requests > MOST_LOOKED_AT:
        return rolled, False
    return _looked_at(asked) or rolled, True


def _rolled(asked: Asked) -> Sums:
    """By the rollups: those of keys, and of how answers ended, where that is not more than the person may see."""
    of_days = {"span": Span.DAY, "starts_at__gte": asked.begin}
    spent = asked.rows(SpendRollup.objects.filter(**of_days)).aggregate(
        requests=Sum("requests", default=0),
        # Not called as the column: the next sum would be of the sum.
        spent=Sum("charge", default=Decimal(0)),
        without=Sum("unpriced", default=0),
        **_ADDED,
    )
    charge, unpriced = spent.pop("spent"), spent.pop("without")
    ended: dict[str, Any] = {}
    if asked.whole:
        ended = asked.rows(UsageRollup.objects.filter(**of_days)).aggregate(
            whole=Sum("completed", default=0), count=Sum("ttft_count", default=0), took=Sum("ttft_ms", default=0)
        )
    return Sums(
        **spent,
        charge=charge,
        unpriced=unpriced,
        completed=ended.get("whole"),
        ttft_count=ended.get("count"),
        ttft_ms=ended.get("took"),
    )


def _looked_at(asked: Asked) -> Sums | None:
    """By the running day's generations; None where they are too many."""
    newest = asked.rows(today(asked.begin)).order_by("-pk")[: MOST_LOOKED_AT + 1]
    found = newest.aggregate(
        requests=Count("pk"),
        spent=Sum("charge", default=Decimal(0)),
        without=Count("pk", filter=_UNPRICED),
        completed=Count("pk", filter=Q(status=Status.COMPLETED)),
        ttft_count=Count("ttft_ms", filter=Q(stream=True)),
        took=Sum("ttft_ms", default=0, filter=Q(stream=True)),
        **_ADDED,
    )
    charge, unpriced, took = (found.pop(name) for name in ("spent", "without", "took"))
    return None if found["requests"] > MOST_LOOKED_AT else Sums(**found, charge=charge, unpriced=unpriced, ttft_ms=took)


def today(midnight: datetime) -> QuerySet[Usage]:
    """Generations since midnight, by the database's clock; their ids are of their makers'."""
    return Usage.objects.filter(pk__gte=first_id(midnight - CLOCKS_APART), created_at__gte=midnight)


# --- what the template is told ---------------------------------------------------------------------------------------


def _figures(asked: Asked, sums: Sums) -> list[dict[str, Any]]:
    tokens = sums.prompt + sums.completion
    found = [
        figure(_("Spend"), money(sums.charge), asked.spend("model"), _unpriced(sums)),
        figure(_("Requests"), number(sums.requests), asked.generations()),
        figure(_("Tokens"), number(tokens), asked.spend("model"), _("%(prompt)s in, %(completion)s out")
                % {"prompt": f"{sums.prompt:,}", "completion": f"{sums.completion:,}"}),
    ]  # fmt: skip
    failed = None if sums.completed is None else sums.requests - sums.completed
    found += [
        figure(
            _("Not completed"),
            _share(failed, sums.requests),
            asked.generations(status="bad"),
            _("not told by key") if failed is None else _("%(count)s failed, or were left") % {"count": f"{failed:,}"},
        ),
        figure(
            _("First token"),
            f"{sums.ttft_ms / sums.ttft_count:,.0f} ms" if sums.ttft_ms and sums.ttft_count else "-",
            asked.generations(),
            _("not told by key")
            if sums.ttft_count is None
            else _("mean of %(count)s streams") % {"count": f"{sums.ttft_count:,}"},
        ),
        figure(_("Cache hits"), _share(sums.cached, sums.prompt), asked.generations(), _("of all prompt tokens")),
    ]
    return found


def figure(title: str, value: str, link: str, note: str = "") -> dict[str, str]:
    """A number of the page: what it is, the number (escaped), the page of what is behind it, and a word beside it."""
    return {"title": title, "value": value, "note": note, "link": link}


def _unpriced(sums: Sums) -> str:
    return _("%(count)s of unknown price") % {"count": f"{sums.unpriced:,}"} if sums.unpriced else ""


def _share(part: int | None, whole: int) -> str:
    return "-" if part is None or not whole else f"{100 * part / whole:.1f} %"


def _tokens(sums: Sums) -> list[dict[str, Any]]:
    """The tokens by class as pieces of one bar."""
    classes = sums.classes()
    total, x, found = sum(count for _name, _title, count in classes), 0, []
    for name, title, count in classes:
        width = round(WIDTH * count / total) if total else 0
        found.append({"name": name, "title": title, "count": f"{count:,}", "share": _share(count, total), "x": x,
                      "width": width})  # fmt: skip
        x += width
    return found


def _trend(asked: Asked) -> dict[str, Any]:
    """The charge of each day, or of each hour of the running one, as bars; and the same as lines of a table."""
    span, step = (Span.HOUR, timedelta(hours=1)) if asked.days == 1 else (Span.DAY, timedelta(days=1))
    rows = asked.rows(SpendRollup.objects.filter(span=span, starts_at__gte=asked.begin)).values("starts_at")
    found = {row["starts_at"]: (row["spent"], row["count"]) for row in rows.annotate(spent=Sum("charge"),
             count=Sum("requests")).order_by()}  # fmt: skip
    starts = [asked.begin + place * step for place in range(24 if span == Span.HOUR else asked.days)]
    most = max((spent for spent, _count in found.values()), default=Decimal(0)) or Decimal(1)
    bars = []
    for place, start in enumerate(starts):
        spent, count = found.get(start, (Decimal(0), 0))
        height = max(1, round(HEIGHT * spent / most)) if spent > 0 else 0
        name = f"{start:%H:%M}" if span == Span.HOUR else f"{start:%Y-%m-%d}"
        bars.append(
            {
                "x": place * STEP,
                "y": HEIGHT - height,
                "height": height,
                "name": name,
                "charge": money(spent),
                "requests": number(count),
                "title": f"{name}: {dollars(spent)}, {count:,}",
            }
        )
    unit = _("hour (UTC)") if span == Span.HOUR else _("day (UTC)")
    return {"bars": bars, "unit": unit, "width": len(bars) * STEP, "height": HEIGHT, "bar": BAR, "any": bool(found)}


def _tops(asked: Asked) -> list[dict[str, Any]]:
    """The dearest models, projects and keys, by the rollups."""
    access = asked.access
    found = [
        _top(asked, _("Models"), "model"),
        _top(asked, _("Projects"), "project", _names(Project, asked)),
        _top(asked, _("Keys"), "key", _names(ApiKey, asked)),
    ]
    if access.everywhere(Usage, Verb.VIEW) and asked.organization is None:
        found.insert(1, _top(asked, _("Organizations"), "organization", _names(Organization, asked)))
    return found


def _names(rows: Any, asked: Asked) -> Any:
    """What makes of ids the names of rows, each with its page where the person may open it."""

    def name(ids: list[UUID]) -> dict[UUID, tuple[str, str]]:
        related = {ApiKey: ("project__organization",), Project: ("organization",)}.get(rows, ())
        seen = rows.objects.filter(pk__in=ids).select_related(*related)
        page = f"admin:accounts_{rows._meta.model_name}_change"
        opens = asked.access.may(rows, Verb.VIEW)
        return {row.pk: (str(row), reverse(page, args=[row.pk]) if opens else "") for row in seen}

    return name


def _top(asked: Asked, title: str, column: str, names: Any = None) -> dict[str, Any]:
    rows = asked.rows(SpendRollup.objects.filter(span=Span.DAY, starts_at__gte=asked.begin))
    spent = rows.values(column).annotate(
        spent=Sum("charge"), count=Sum("requests"), used=Coalesce(Sum(F("prompt_tokens") + F("completion_tokens")), 0)
    )
    found = list(spent.order_by("-spent", "-count", column)[: MOST_TOPS + 1])
    named = names([row[column] for row in found]) if names else {}
    most = max((row["spent"] for row in found), default=Decimal(0)) or Decimal(1)
    lines = []
    for row in found[:MOST_TOPS]:
        value = row[column]
        name, link = named.get(value, (str(value), ""))
        lines.append(
            {
                "name": name,
                "page": link or asked.spend(column, **{column: value}),
                "charge": money(row["spent"]),
                "requests": number(row["count"]),
                "tokens": number(row["used"]),
                "generations": asked.generations(**{column: value}),
                "spend": asked.spend("day", **{column: value}),
                "width": round(100 * row["spent"] / most),
            }
        )
    return {"title": title, "lines": lines, "more": len(found) > MOST_TOPS, "all": asked.spend(column)}
