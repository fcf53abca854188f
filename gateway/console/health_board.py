"""The console's health board: how every offer does, whether its breaker is open, and the operator's word on it."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_POST

from accounts.console import is_operator
from billing.aggregates import Span
from routing.health.faults import Blame, Fault, blame
from routing.models import ALL_SIZES, Ejection, Forced, Offer, OfferRollup, OfferStatistics, Provider, Window
from routing.models.health import ClosedBy
from routing.models.prices import lacks
from routing.models.statistics import Tally
from routing.statistics.rollups import CLIENTS, PUBLISHED_EVERY, published_at
from routing.statistics.sketches import Sketch, merged, quantile

MOST_OFFERS = 200  # on the page; those that rest or are forced come first, then those that are used
MOST_HISTORY = 50
HOURS = 24
# A worker publishes every ten seconds; a window that was due so long ago has none.
LATE = timedelta(seconds=60)
# In English in the log.
WORDS = {
    Forced.OPEN: gettext_noop("Breaker forced open."),
    Forced.CLOSED: gettext_noop("Breaker forced closed."),
    "": gettext_noop("Breaker decides again."),
}
GOOD, FAIR = 0.99, 0.9  # uptime
COOLING = {fault.value for fault in Fault if blame(fault) is Blame.COOL}


@dataclass(slots=True)
class Figures:
    """What a window says of an offer, or of several together. Milliseconds, tokens a second, shares; None: unknown."""

    attempts: int = 0
    completed: int = 0
    offer_faults: int = 0
    output_tokens: int = 0
    output_ms: int = 0
    faults: Sketch = field(default_factory=dict)
    ttft: Sketch = field(default_factory=dict)
    token_time: Sketch = field(default_factory=dict)

    @property
    def calls(self) -> str:
        """The attempts, readable."""
        return f"{self.attempts:,}"

    @property
    def ttft_p50(self) -> float | None:
        return quantile(self.ttft, 0.5)

    @property
    def ttft_p90(self) -> float | None:
        return quantile(self.ttft, 0.9)

    @property
    def throughput(self) -> float | None:
        return 1000 * self.output_tokens / self.output_ms if self.output_ms else None

    @property
    def uptime(self) -> float | None:
        """The share of calls that did not fail by the offer's fault."""
        verdicts = self.completed + self.offer_faults
        return self.completed / verdicts if verdicts else None

    @property
    def uptime_text(self) -> str:
        """In tenths of a percent, rounded down: what failed once was not always up."""
        return "-" if self.uptime is None else f"{math.floor(1000 * self.uptime) / 10:.1f} %"

    @property
    def level(self) -> str:
        """How the uptime is coloured."""
        if self.uptime is None:
            return "none"
        return "good" if self.uptime >= GOOD else "busy" if self.uptime >= FAIR else "bad"

    @property
    def errors(self) -> list[tuple[str, int, str]]:
        """How many failed, by kind, the most frequent first, and how it is coloured: the client's own are no fault."""
        found = sorted(self.faults.items(), key=lambda error: -error[1])
        return [(kind.replace("_", " "), count, "none" if kind in CLIENTS else "bad") for kind, count in found]


def figures(rows: Iterable[Tally | Figures]) -> Figures:
    """Rows of statistics, of rollups, or figures of several, added up."""
    found = list(rows)
    return Figures(
        attempts=sum(row.attempts for row in found),
        completed=sum(row.completed for row in found),
        offer_faults=sum(row.offer_faults for row in found),
        output_tokens=sum(row.output_tokens for row in found),
        output_ms=sum(row.output_ms for row in found),
        faults=merged(row.faults for row in found),
        ttft=merged(row.ttft for row in found),
        token_time=merged(row.token_time for row in found),
    )


@dataclass(slots=True)
class Line:
    """An offer on the board."""

    offer: Offer
    figures: Figures
    state: str
    level: str  # good, busy, bad or forced: how it is coloured
    note: str
    rests: bool
    lack: str  # of a price; empty: it has one
    hours: list[dict[str, Any]]

    @property
    def idle(self) -> bool:
        """Whether there is nothing to tell of it: no call, and nothing in its way."""
        return not self.figures.attempts and self.level == "good" and not (self.rests or self.lack)


def board(request: HttpRequest) -> HttpResponse:
    """GET: the board over the window `window`, by default an hour; `q` is a part of a model's or provider's slug."""
    if not is_operator(request):
        raise PermissionDenied
    window = request.GET.get("window", "")
    window = window if window in Window.values else Window.HOUR
    now = timezone.now()
    search = request.GET.get("q", "").strip()[:100]
    lines, left_out = _lines(window, search, now)
    by_provider: dict[Provider, list[Line]] = defaultdict(list)
    for line in lines:
        by_provider[line.offer.provider].append(line)
    open = list(Ejection.objects.filter(closed_at=None, offer=None).select_related("credential", "organization"))
    providers = [
        {
            "provider": provider,
            "lines": [line for line in shown if search or not line.idle],
            "idle": [line for line in shown if not search and line.idle],
            "figures": figures(line.figures for line in shown),
            "credentials": [rest for rest in open if rest.credential and rest.credential.provider_id == provider.pk],
        }
        for provider, shown in sorted(by_provider.items(), key=lambda entry: entry[0].slug)
    ]
    context = {
        **admin.site.each_context(request),
        "title": _("Health"),
        "window": window,
        "windows": Window.choices,
        "search": search,
        "age": age(window, now),
        "providers": providers,
        "left_out": left_out,
        "history": [_told(rest, now) for rest in _history()],
    }
    return TemplateResponse(request, "admin/health_board.html", context)


def age(window: str, now: datetime) -> dict[str, Any]:
    """How old the statistics of a window are, in words, and whether that is older than it should be."""
    found = published_at().get(window)
    if found is None:
        return {"text": _("No statistics have been published yet."), "late": True}
    old = max(now - found, timedelta(0))
    words = _("Statistics as of %(age)s ago.") % {"age": _lasted(old)}
    return {"text": words, "late": old > PUBLISHED_EVERY[Window(window)] + LATE}


@require_POST
def force(request: HttpRequest, offer: int) -> HttpResponse:
    """POST `forced`: open, closed, or nothing for the breaker to decide itself; written down like every change."""
    if not is_operator(request):
        raise PermissionDenied
    word = request.POST.get("forced", "")
    if word not in WORDS:
        return HttpResponse("forced must be open, closed or nothing.", status=400, content_type="text/plain")
    with transaction.atomic():
        found = get_object_or_404(Offer.objects.select_for_update(), pk=offer)
        if found.forced != word:
            found.forced = word
            found.save(update_fields=["forced"])
            _write_down(request, found, WORDS[word])
    messages.success(request, _("%(found)s: %(value)s") % {"found": found, "value": _(WORDS[word])})
    return redirect(_back(request))


@require_POST
def end_rests(request: HttpRequest, offer: int) -> HttpResponse:
    """POST: the offer's rests end now, with whatever credential."""
    if not is_operator(request):
        raise PermissionDenied
    with transaction.atomic():
        found = get_object_or_404(Offer, pk=offer)
        rests = Ejection.objects.filter(offer=found, closed_at=None)
        if rests.update(closed_at=timezone.now(), closed_by=ClosedBy.OPERATOR):
            _write_down(request, found, "Rest ended.")
    messages.success(request, _("%(found)s: used again.") % {"found": found})
    return redirect(_back(request))


def _write_down(request: HttpRequest, offer: Offer, words: str) -> None:
    admin.site.get_model_admin(Offer).log_change(request, offer, words)


def _back(request: HttpRequest) -> str:
    window = request.POST.get("window", "")
    return reverse("health_board") + (f"?window={window}" if window in Window.values else "")


def _lines(window: str, search: str, now: datetime) -> tuple[list[Line], int]:
    """The offers to show, and how many are not."""
    offers = list(
        Offer.objects.filter(active=True, provider__active=True, model__active=True)
        .filter(Q(model__slug__icontains=search) | Q(provider__slug__icontains=search))
        .select_related("model", "provider")
        .order_by("model__slug", "priority", "pk")
    )
    published: dict[tuple[str, str, str], OfferStatistics] = {
        (row.model, row.provider, row.upstream_model): row
        for row in OfferStatistics.objects.filter(window=window, size_class=ALL_SIZES)
    }
    rests: dict[int, list[Ejection]] = defaultdict(list)
    for rest in Ejection.objects.filter(closed_at=None, offer__isnull=False).select_related(
        "credential", "organization"
    ):
        rests[rest.offer_id or 0].append(rest)
    if len(offers) > MOST_OFFERS:
        offers.sort(key=lambda offer: (not (offer.forced or rests[offer.pk]), _key(offer) not in published))
    shown = offers[:MOST_OFFERS]
    hours = by_hour(now)
    lacking = lacks(shown)
    lines = []
    for offer in shown:
        row = published.get(_key(offer))
        state, level, note = _state(offer, rests[offer.pk], now)
        lines.append(
            Line(offer, figures([row] if row else []), state, level, note, bool(rests[offer.pk]),
                 lacking.get(offer.pk, ""), strip(hours.get(_key(offer), {}), now))
        )  # fmt: skip
    return lines, len(offers) - len(shown)


def _key(offer: Offer) -> tuple[str, str, str]:
    return offer.model.slug, offer.provider.slug, offer.upstream_model


def _state(offer: Offer, rests: Sequence[Ejection], now: datetime) -> tuple[str, str, str]:
    """What the breaker does, its colour, and why."""
    note = "; ".join(_because(rest, now) for rest in rests)
    if offer.forced:
        return str(Forced(offer.forced).label), "forced", note
    own = next((rest for rest in rests if rest.credential_id is None), None)
    if own is not None:
        cools = own.cause in COOLING
        word = _("Cools down") if cools else _("Rests")
        return (word if own.until > now else _("To be probed")), "busy" if cools else "bad", note
    return (_("In use"), "busy" if rests else "good", note)


def _because(rest: Ejection, now: datetime) -> str:
    words = cause(rest)
    if rest.credential:
        words += _(" with %(name)s") % {"name": rest.credential.name}
    if rest.organization:
        words += _(", for %(slug)s alone") % {"slug": rest.organization.slug}
    if rest.until <= now:
        return words
    return _("%(words)s, %(time)s left") % {"words": words, "time": _lasted(rest.until - now)}


def cause(rest: Ejection) -> str:
    """What it is for, in words."""
    return _(rest.cause.replace("_", " ")) if rest.cause else ""


def of_what(rest: Ejection) -> str:
    """What rests: an offer, a credential, or one with the other."""
    if rest.offer is not None and rest.credential is not None:
        return _("%(offer)s with %(credential)s") % {"offer": rest.offer, "credential": rest.credential}
    return str(rest.offer or rest.credential or "")


def _history() -> list[Ejection]:
    rows = Ejection.objects.select_related("offer__model", "offer__provider", "credential__provider", "organization")
    return list(rows.order_by("-opened_at")[:MOST_HISTORY])


def _told(rest: Ejection, now: datetime) -> dict[str, Any]:
    """A rest as the history shows it."""
    subject = of_what(rest)
    if rest.organization:
        subject += _(", for %(slug)s alone") % {"slug": rest.organization.slug}
    return {
        "subject": subject,
        "cause": cause(rest),
        "opened_at": rest.opened_at,
        "lasted": _lasted((rest.closed_at or now) - rest.opened_at),
        "count": rest.count,
        "end": rest.get_closed_by_display() if rest.closed_at else _("still open"),
        "open": rest.closed_at is None,
    }


def by_hour(now: datetime, **only: str) -> dict[tuple[str, str, str], dict[datetime, Figures]]:
    """What every offer did in each of the last hours; `only` narrows them by their columns."""
    rows: dict[tuple[str, str, str], dict[datetime, list[OfferRollup]]] = defaultdict(lambda: defaultdict(list))
    since = _hour(now) - (HOURS - 1) * timedelta(hours=1)
    for row in OfferRollup.objects.filter(span=Span.HOUR, starts_at__gte=since, **only):
        rows[row.model, row.provider, row.upstream_model][row.starts_at].append(row)
    return {key: {start: figures(found) for start, found in hours.items()} for key, hours in rows.items()}


def strip(hours: dict[datetime, Figures], now: datetime) -> list[dict[str, Any]]:
    """The last hours as a strip of bars, the oldest first."""
    bars = []
    for place in range(HOURS):
        start = _hour(now) - (HOURS - 1 - place) * timedelta(hours=1)
        hour = hours.get(start, Figures())
        words = _("no calls")
        if hour.attempts:
            words = _("%(uptime)s of %(calls)s calls") % {"uptime": hour.uptime_text, "calls": f"{hour.attempts:,}"}
        at = f"{start:%H}:00 UTC: "
        bars.append({"x": place * 5, "level": hour.level, "title": at + words, "uptime": at + hour.uptime_text})
    return bars


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def _lasted(time: timedelta) -> str:
    """A length of time in its two greatest units: 3 min 20 s."""
    seconds = int(time.total_seconds())
    for size, name, smaller, smaller_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size} {name}" + (f" {rest} {smaller_name}" if rest else "")
    return f"{seconds} s"
