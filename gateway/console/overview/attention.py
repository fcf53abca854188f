"""What needs somebody: each thing in plain words, with its first few rows and a link to where it is mended.

Each is looked for by an index or in a table that an operator fills, and names `MOST_NAMED` rows at most. Who has an
office is told of the installation; an organization's people of their own budgets, keys and refused requests.
"""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.db.models import Exists, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Now
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from accounts.access.table import Verb
from accounts.formats import short
from accounts.models import ApiKey
from billing.backbone.leases import DEAD_AFTER, HOUSEKEEPER
from billing.console.burn import Burning
from billing.models import (
    AccountDay,
    AuditFinding,
    AuditState,
    Judgement,
    Lease,
    PriceProposal,
    Quarantined,
    TariffVersion,
)
from gateway.console.overview.asked import Asked
from gateway.models import RefusedCount
from routing.models import Ejection, Offer

MOST_NAMED = 5  # rows of one thing
MOST_COUNTED = 200  # rows of one thing, where they may be many
ENDS_WITHIN = timedelta(days=7)  # of a key
AUDITED_WITHIN = timedelta(minutes=5)  # it is every minute
OVERRUN_DAYS = timedelta(days=7)
# Refused requests rise when the last hour had so many, and so many times the hours of the day before.
FEW_REFUSED, RISING = 20, 2
BAD, BUSY = "bad", "busy"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing: what it is, what it means, where it is mended, and the first of its rows, each with its page."""

    level: str  # bad: something does not work now; busy: it will not, or somebody is to decide
    title: str
    words: str
    link: str
    rows: tuple[tuple[str, str], ...] = ()
    more: int = 0  # further rows


def items(asked: Asked, budgets: Burning) -> list[Item]:
    """What there is, what does not work first."""
    access = asked.access
    found: list[Item | None] = []
    if access.is_staff:
        found += [_books(), _worker(asked)]
    if access.is_operator:
        found += [_resting(), _forced()]
    if access.everywhere(Offer, Verb.VIEW):
        found.append(_unpriced())
    found += _budgets(budgets)
    found += [_keys(asked), _refused(asked)]
    if access.is_staff:
        found += [_overruns(asked), _quarantine(), _proposals()]
    return sorted((one for one in found if one is not None), key=lambda one: one.level != BAD)


def _books() -> Item | None:
    count = AuditFinding.objects.filter(gone_at=None).count()
    if not count:
        return None
    return Item(
        BAD,
        ngettext("The books do not agree: %(count)s finding", "The books do not agree: %(count)s findings", count)
        % {"count": f"{count:,}"},
        _("Usage, ledger and rollups say different things of the same. Each finding names the place and both numbers."),
        reverse("admin:billing_auditfinding_changelist"),
    )


def _worker(asked: Asked) -> Item | None:
    """The worker's lease, and what it does every minute."""
    beat = Lease.objects.filter(pk=HOUSEKEEPER).values_list("heartbeat_at", flat=True).first()
    ended = AuditState.objects.values_list("ended_at", flat=True).first()
    link = reverse("admin:billing_lease_changelist")
    means = _("Rollups, alerts, exports and the audit wait until a worker and the beat run. Requests are answered.")
    if ended is None:
        return Item(BUSY, _("The books have not been audited yet"), means, link)
    if asked.now - ended > AUDITED_WITHIN:
        at = {"moment": f"{ended:%Y-%m-%d %H:%M:%S}"}
        return Item(BAD, _("The books were audited last at %(moment)s UTC. No worker seems to run") % at, means, link)
    if beat is not None and asked.now - beat > AUDITED_WITHIN + DEAD_AFTER:
        return Item(BAD, _("A worker is silent since %(moment)s UTC") % {"moment": f"{beat:%Y-%m-%d %H:%M:%S}"},
                    means, link)  # fmt: skip
    return None


def _resting() -> Item | None:
    open = Ejection.objects.filter(closed_at=None)
    rests = open.select_related("offer__model", "offer__provider", "credential__provider").order_by("-opened_at")
    return _listed(
        rests,
        BAD,
        _("Offers or credentials at rest"),
        _("They failed too often, so requests go to others until a trial succeeds."),
        reverse("health_board"),
        lambda rest: f"{_subject(rest)}: {_(rest.cause.replace('_', ' '))}",
        lambda rest: f"{reverse('health_board')}?{urlencode({'q': _provider(rest)})}",
    )


def _subject(rest: Ejection) -> str:
    if rest.offer is not None and rest.credential is not None:
        return _("%(offer)s with %(credential)s") % {"offer": rest.offer, "credential": rest.credential}
    return str(rest.offer or rest.credential or "")


def _provider(rest: Ejection) -> str:
    part: Any = rest.offer or rest.credential
    return str(part.provider.slug)


def _forced() -> Item | None:
    forced = Offer.objects.exclude(forced="").filter(active=True, provider__active=True, model__active=True)
    return _listed(
        forced.select_related("model", "provider").order_by("model__slug", "pk"),
        BUSY,
        _("Offers that somebody forced"),
        _("Their breaker decides nothing: forced open they get no request, forced closed they get them all the same."),
        reverse("health_board"),
        lambda offer: f"{offer}: {offer.get_forced_display().lower()}",
        lambda offer: f"{reverse('health_board')}?{urlencode({'q': offer.provider.slug})}",
    )


def _unpriced() -> Item | None:
    """Offers without a tariff, or with one of which no version is in force. (That a rate is missing is told beside the
    offer: it takes all rates of all versions.)
    """
    begun = TariffVersion.objects.filter(tariff=OuterRef("tariff"), effective_from__lte=Now())
    used = Offer.objects.filter(active=True, provider__active=True, model__active=True)
    return _listed(
        used.filter(Q(tariff=None) | ~Exists(begun)).select_related("model", "provider").order_by("model__slug", "pk"),
        BAD,
        _("Offers without a price"),
        _("Under a hard budget their calls are refused, under none nobody knows what they cost. Give each a tariff."),
        f"{reverse('admin:routing_offer_changelist')}?active__exact=1",
        str,
        lambda offer: reverse("admin:routing_offer_change", args=[offer.pk]),
    )


def _budgets(budgets: Burning) -> list[Item | None]:
    """Of those that the page has looked up: spent, and nearly."""
    link = reverse("admin:billing_budget_changelist")
    hard = [one for one in budgets.shown if one.level == "over" and one.budget.hard]
    soft = [one for one in budgets.shown if one.level == "over" and not one.budget.hard]
    near = [one for one in budgets.shown if one.level == "near"]
    told = (
        (hard, budgets.hard, BAD, _("Hard budgets that are spent"),
         _("Requests that they bind are refused. Raise them, or wait for the next window.")),
        (soft, budgets.soft, BUSY, _("Soft budgets that are overspent"),
         _("Nothing is refused: they only tell.")),
        (near, budgets.near, BUSY, _("Budgets above 80 %"),
         _("At 100 % a hard one refuses what it binds.")),
    )  # fmt: skip
    found: list[Item | None] = []
    for some, count, level, title, words in told:
        if count:
            rows = tuple((f"{one.name}: {one.percent:,.0f} %", one.link) for one in some[:MOST_NAMED])
            found.append(Item(level, title, words, link, rows, count - len(rows)))
    return found


def _keys(asked: Asked) -> Item | None:
    access = asked.access
    if not access.may(ApiKey, Verb.VIEW):
        return None
    soon = ApiKey.objects.filter(
        revoked_at=None, expires_at__gt=asked.now, expires_at__lte=asked.now + ENDS_WITHIN, project__active=True
    )
    if asked.organization:
        soon = soon.filter(project__organization=asked.organization)
    return _listed(
        access.rows(soon).select_related("project__organization").order_by("expires_at", "pk"),
        BUSY,
        _("Keys that expire within 7 days"),
        _("After that moment their calls are refused. Give them a later end, or make new ones."),
        reverse("admin:accounts_apikey_changelist"),
        lambda key: f"{key}: {key.expires_at:%Y-%m-%d %H:%M} UTC",
        lambda key: reverse("admin:accounts_apikey_change", args=[key.pk]),
    )


def _refused(asked: Asked) -> Item | None:
    """By minutes, of which each key and reason has one row."""
    access = asked.access
    if not access.may(RefusedCount, Verb.VIEW):
        return None
    hour = timedelta(hours=1)
    rows = access.rows(RefusedCount.objects.filter(minute__gt=asked.now - 25 * hour))
    if asked.organization:
        rows = rows.filter(organization=asked.organization.pk)
    recent = Q(minute__gt=asked.now - hour)
    found = rows.aggregate(
        now=Sum("requests", filter=recent, default=0), before=Sum("requests", filter=~recent, default=0)
    )
    now, usual = found["now"], found["before"] / 24
    if now < FEW_REFUSED or now < RISING * usual:
        return None
    reasons = rows.filter(recent).values("code").annotate(count=Sum("requests")).order_by("-count", "code")
    minutes = reverse("admin:gateway_refusedcount_changelist")
    told = [(row["code"] or _("no reason"), row["count"]) for row in reasons[: MOST_NAMED + 1]]
    return Item(
        BUSY,
        _("Refused requests rise: %(now)s in the last hour") % {"now": f"{now:,}"},
        _("The day before had %(usual)s an hour. They cost nothing, but somebody's program does not work.")
        % {"usual": f"{usual:,.1f}"},
        minutes,
        tuple((f"{code}: {count:,}", f"{minutes}?{urlencode({'code': code})}") for code, count in told[:MOST_NAMED]),
        max(0, len(told) - MOST_NAMED),
    )


def _overruns(asked: Asked) -> Item | None:
    """By the ledger's days, once they are sealed."""
    since = (asked.now - OVERRUN_DAYS).date()
    over = AccountDay.objects.filter(day__gte=since, account="overrun")
    if asked.organization:
        over = over.filter(organization=asked.organization.pk)
    amount = over.aggregate(lost=Sum("debit", default=Decimal(0)) - Sum("credit", default=Decimal(0)))["lost"]
    if not amount:
        return None
    return Item(
        BUSY,
        _("Overruns of hard budgets in 7 days: %(amount)s") % {"amount": short(amount)},
        _("Providers took more than was held and the budgets had left, and nobody pays that. The ledger's account "
          "overrun has each."),
        f"{reverse('admin:billing_ledgerentry_changelist')}?account=overrun&created_at_from={since}",
    )  # fmt: skip


def _quarantine() -> Item | None:
    judged = Judgement.objects.filter(generation=OuterRef("pk"))
    return _listed(
        Quarantined.objects.filter(~Exists(judged), suspect=True).order_by("-pk"),
        BUSY,
        _("Claims in quarantine"),
        _("A provider counted what nobody believed, so an estimate was charged. Accept the claim, or dismiss it."),
        f"{reverse('admin:billing_quarantined_changelist')}?decision=open",
        lambda row: (
            f"{row.created_at:%Y-%m-%d %H:%M} "
            + _("%(model)s at %(provider)s") % {"model": row.model, "provider": row.provider}
        ),
        lambda row: reverse("admin:billing_quarantined_change", args=[row.pk]),
    )


def _proposals() -> Item | None:
    return _listed(
        PriceProposal.objects.filter(decision="").select_related("tariff").order_by("effective_from", "pk"),
        BUSY,
        _("Price proposals that wait"),
        _("A price is not in force until somebody other than who proposed it approves it."),
        reverse("admin:billing_priceproposal_changelist"),
        str,
        lambda row: reverse("admin:billing_priceproposal_change", args=[row.pk]),
    )


def _listed(rows: QuerySet[Any], level: str, title: str, words: str, link: str, name: Any, page: Any) -> Item | None:
    """Of `rows` the first, and how many more; None where there are none."""
    first = list(rows[: MOST_NAMED + 1])
    if not first:
        return None
    count = len(first) if len(first) <= MOST_NAMED else rows.order_by().values("pk")[:MOST_COUNTED].count()
    named = tuple((str(name(row)), page(row)) for row in first[:MOST_NAMED])
    return Item(level, title, words, link, named, count - len(named))
