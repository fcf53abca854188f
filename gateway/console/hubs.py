"""What matters of an organization, a project, a key or a provider, told before its form, with the next steps.

Each person is told what their role lets them see of it. Sums are of rollups; what is read of generations are some
newest ones, by their index: of an organization its own, of anything narrower those of its newest `MOST_KEYS` keys.
"""

from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db import connection
from django.db.models import Model, OuterRef, QuerySet, Subquery, Sum
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts.access.access import Access, access_of
from accounts.access.table import Verb
from accounts.console import money, number
from accounts.models import ApiKey, Membership, Organization, Project
from accounts.roles import Role
from billing.console.burn import burning
from billing.console.generations import STATUS_COLOURS
from billing.console.timing import seconds
from billing.ids import first_id
from billing.models import Budget, Prepaid, Span, SpendRollup, Status, Usage
from gateway.console.health_board import figures
from gateway.console.overview.page import told
from gateway.models import Refused, RefusedCount
from routing.models import ALL_SIZES, AuthStyle, Credential, Ejection, Offer, OfferStatistics, Provider, Window

MOST_CALLS = 10
MOST_KEYS = 50  # whose generations are looked at
MOST_SHOWN = 8  # keys, budgets; offers
MOST_LOOKED_AT = 500  # generations of the last day among which the failed are counted
UNREAD = ("plan", "arithmetic", "metadata")  # which are long
DAY, HOUR = timedelta(days=1), timedelta(hours=1)

# The newest generations of some keys: each key's by its index, whatever others have.
NEWEST = """
select u.id
  from unnest(%(keys)s::uuid[]) k(id)
 cross join lateral (
       select id from billing_usage where key = k.id and id >= %(since)s order by id desc limit %(most)s) u
 order by u.id desc
 limit %(most)s
"""
EVER = UUID(int=0)


def hub(request: HttpRequest, row: Model) -> dict[str, Any]:
    """What the template is told of `row`, a row of one of the four models, which the person may see."""
    access, now = access_of(request), timezone.now()
    if isinstance(row, Provider):
        return _of_provider(row, now)
    if isinstance(row, Organization):
        return _of_tenant(access, now, row, "organization", {"organization": row.pk})
    if isinstance(row, Project):
        return _of_tenant(access, now, row, "project", {"organization": row.organization_id, "project": row.pk})
    assert isinstance(row, ApiKey)
    project = row.project
    ids = {"organization": project.organization_id, "project": project.pk, "key": row.pk}
    return _of_tenant(access, now, row, "key", ids)


def _of_tenant(access: Access, now: datetime, row: Any, kind: str, ids: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"steps": _steps(access, row, kind, ids)}
    if access.may(Usage, Verb.VIEW):
        spent = access.rows(SpendRollup.objects.filter(**ids), of=Usage)
        newest, whole = _newest(access, row, kind, ids)
        found |= {
            "figures": _spent(spent, now, ids),
            "calls": [_call(one) for one in newest(MOST_CALLS)],
            "failed": _failed(newest, now, ids),
            "all": _generations(ids),
            "by": whole,
        }
    if access.may(RefusedCount, Verb.VIEW):
        found["refused"] = _refused(access.rows(RefusedCount.objects.filter(**ids)), now, ids)
    if access.may(Budget, Verb.VIEW):
        whose = {"organization": row} if kind == "organization" else {"subject": row.pk}
        budgets = burning(access.rows(Budget.objects.filter(**whose)), MOST_SHOWN)
        found["budgets"] = [told(one) for one in budgets.shown]
    if kind != "key" and access.may(ApiKey, Verb.VIEW):
        found["keys"] = _keys(access, row, kind, now)
    return found


def _steps(access: Access, row: Any, kind: str, ids: dict[str, Any]) -> list[tuple[str, str]]:
    """What may be done next, as titles and addresses."""
    organization = ids["organization"]
    may_add = {
        one: access.everywhere(one, Verb.ADD) or organization in access.organizations(one, Verb.ADD)
        for one in (Project, ApiKey, Budget, Membership)
    }
    found = [(_("See generations"), _generations(ids))]
    if access.is_staff:
        found.append((_("See spend"), f"{reverse('spend')}?{urlencode({**ids, 'by': 'model'})}"))
    if access.may(Refused, Verb.VIEW):
        found.append((_("See refused requests"), f"{reverse('admin:gateway_refused_changelist')}?{urlencode(ids)}"))
    if kind == "organization" and may_add[Project]:
        found.append((_("Add a project"), _add(Project, organization=organization)))
    if kind == "project" and may_add[ApiKey] and row.active:
        found.append((_("Add a key"), _add(ApiKey, project=row.pk)))
    if may_add[Budget]:
        found.append((_("Add a budget"), _add(Budget, **ids)))
    if kind == "organization":
        if access.is_operator or access.roles.get(organization) is Role.OWNER:
            found.append((_("Invite somebody"), reverse("invite")))
        if access.everywhere(Prepaid, Verb.ADD):
            prepaid = Prepaid.objects.filter(pk=organization).exists()
            found.append((_("Top up") if prepaid else _("Begin a balance"), _add(Prepaid, organization=row.slug)))
    return found


def _add(model: type[Model], **known: Any) -> str:
    return f"{reverse(f'admin:{model._meta.app_label}_{model._meta.model_name}_add')}?{urlencode(known)}"


def _generations(chosen: dict[str, Any]) -> str:
    return f"{reverse('admin:billing_usage_changelist')}?{urlencode(chosen)}"


# --- figures, calls, errors ------------------------------------------------------------------------------------------


def _spent(rows: QuerySet[SpendRollup], now: datetime, ids: dict[str, Any]) -> list[dict[str, str]]:
    """This month, and today, by the rollups; of a provider what it takes."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    month = today.replace(day=1)
    found = []
    ours = "provider" in ids
    titles = (_("Cost this month"), _("Cost today")) if ours else (_("Spend this month"), _("Spend today"))
    for title, begin in zip(titles, (month, today), strict=True):
        sums = rows.filter(span=Span.DAY, starts_at__gte=begin).aggregate(
            spent=Sum("charge", default=Decimal(0)), cost=Sum("provider_cost", default=Decimal(0)),
            count=Sum("requests", default=0),
        )  # fmt: skip
        days = {"created_at_from_0": begin.date(), "created_at_to_0": now.date()}
        value = sums["cost"] if ours else sums["spent"]
        note = _("%(count)s requests") % {"count": f"{sums['count']:,}"}
        found.append({"title": title, "value": money(value), "note": note, "link": _generations({**ids, **days})})
    return found


def _newest(access: Access, row: Any, kind: str, ids: dict[str, Any]) -> tuple[Any, str]:
    """What gives so many newest generations that the person may see, since a moment's first id; and of which keys."""
    organization = ids["organization"]
    own = access.everywhere(Usage, Verb.VIEW) is False and access.roles.get(organization) is Role.DEVELOPER
    if kind == "organization" and not own:

        def of_all(most: int, since: UUID = EVER) -> list[Usage]:
            rows = access.rows(Usage.objects.filter(organization=organization, pk__gte=since))
            return list(rows.defer(*UNREAD).order_by("-pk")[:most])

        return of_all, ""
    of = {"organization": "project__organization", "project": "project", "key": "pk"}[kind]
    keys = ApiKey.objects.filter(**{of: row.pk})
    if own:
        keys = keys.filter(owner=access.user)
    known = list(keys.order_by("-created_at").values_list("pk", flat=True)[:MOST_KEYS])

    def of_keys(most: int, since: UUID = EVER) -> list[Usage]:
        with connection.cursor() as cursor:
            cursor.execute(NEWEST, {"keys": known, "since": since, "most": most})
            found = [id for (id,) in cursor.fetchall()]
        return list(access.rows(Usage.objects.filter(pk__in=found)).defer(*UNREAD).order_by("-pk"))

    return of_keys, _("of the %(count)s newest keys") % {"count": MOST_KEYS} if len(known) == MOST_KEYS else ""


def _call(usage: Usage) -> dict[str, Any]:
    return {
        "at": f"{usage.created_at:%Y-%m-%d %H:%M:%S}",
        "link": reverse("admin:billing_usage_change", args=[usage.pk]),
        "key": usage.key_name,
        "model": usage.model,
        "status": usage.get_status_display(),
        "level": {"success": "good", "danger": "bad"}.get(STATUS_COLOURS.get(usage.status, ""), "busy"),
        "tokens": number(usage.prompt_tokens + usage.completion_tokens),
        "charge": money(usage.charge),
        "took": seconds(usage.duration_ms),
    }


def _failed(newest: Any, now: datetime, ids: dict[str, Any]) -> dict[str, Any]:
    """How many of the day's newest generations failed, and of what, the most frequent first."""
    day = newest(MOST_LOOKED_AT, first_id(now - DAY))
    bad = [one for one in day if one.status in (Status.FAILED, Status.ABANDONED)]
    reasons = Counter(one.error or one.get_status_display() for one in bad).most_common(5)
    return {
        "hour": sum(one.created_at > now - HOUR for one in bad),
        "day": len(bad),
        "of": len(day),
        "all": len(day) < MOST_LOOKED_AT,
        "reasons": reasons,
        "link": _generations({**ids, "status": "bad"}),
    }


def _refused(rows: QuerySet[RefusedCount], now: datetime, ids: dict[str, Any]) -> dict[str, Any]:
    """How many requests were refused before anything was held, in the last hour and day."""
    day = rows.filter(minute__gt=now - DAY)
    link = f"{reverse('admin:gateway_refused_changelist')}?{urlencode(ids)}"
    return {
        "hour": day.filter(minute__gt=now - HOUR).aggregate(count=Sum("requests", default=0))["count"],
        "day": day.aggregate(count=Sum("requests", default=0))["count"],
        "link": link,
    }


def _keys(access: Access, row: Any, kind: str, now: datetime) -> dict[str, Any]:
    """The newest keys that may still be used, with when each was last."""
    of = {"project__organization": row} if kind == "organization" else {"project": row}
    used = Usage.objects.filter(key=OuterRef("pk")).order_by("-pk").values("created_at")[:1]
    alive = access.rows(ApiKey.objects.filter(**of, revoked_at=None)).select_related("project__organization", "owner")
    found = list(alive.annotate(used_at=Subquery(used)).order_by("-created_at", "pk")[: MOST_SHOWN + 1])
    return {
        "lines": [
            {
                "name": key.name,
                "prefix": key.prefix,
                "project": key.project.slug,
                "owner": key.owner.get_username() if key.owner else "-",
                "link": reverse("admin:accounts_apikey_change", args=[key.pk]),
                "used": f"{key.used_at:%Y-%m-%d %H:%M}" if key.used_at else _("never"),
                "expired": bool(key.expires_at and key.expires_at <= now),
            }
            for key in found[:MOST_SHOWN]
        ],
        "more": len(found) > MOST_SHOWN,
    }


# --- a provider ------------------------------------------------------------------------------------------------------


def _of_provider(provider: Provider, now: datetime) -> dict[str, Any]:
    """For operators, who alone see providers."""
    ids = {"provider": provider.slug}
    newest = Usage.objects.filter(pk__in=_last(MOST_LOOKED_AT), provider=provider.slug)
    hour = {
        (row.model, row.upstream_model): row
        for row in OfferStatistics.objects.filter(window=Window.HOUR, size_class=ALL_SIZES, provider=provider.slug)
    }
    rests = list(
        Ejection.objects.filter(closed_at=None, offer__provider=provider)
        | Ejection.objects.filter(closed_at=None, credential__provider=provider)
    )
    by_offer = {rest.offer_id: rest for rest in rests if rest.offer_id and not rest.credential_id}
    by_credential = {rest.credential_id: rest for rest in rests if rest.credential_id}
    offers = list(provider.offers.filter(active=True, model__active=True).select_related("model"))
    offers.sort(key=lambda one: (one.pk not in by_offer, not one.forced, one.model.slug, one.pk))
    all_offers = figures(hour.values())
    faults = ", ".join(f"{kind} {count:,}" for kind, count, _level in all_offers.errors[:5])
    health = f"{reverse('health_board')}?{urlencode({'q': provider.slug})}"
    return {
        "steps": [
            (_("See its health"), health),
            (_("See generations"), _generations(ids)),
            (_("See spend"), f"{reverse('spend')}?{urlencode({**ids, 'by': 'model'})}"),
            (_("Add an offer"), _add(Offer, provider=provider.pk)),
        ],
        "figures": [
            *_spent(SpendRollup.objects.filter(**ids), now, ids),
            {"title": _("Calls, the last hour"), "value": number(all_offers.attempts), "note": faults, "link": health},
            {"title": _("Up"), "value": all_offers.uptime_text, "note": _("of the last hour"), "link": health},
        ],
        "offers": [
            {
                "name": offer.model.slug,
                "upstream": offer.upstream_model,
                "link": reverse("admin:routing_offer_change", args=[offer.pk]),
                "uptime": figures(
                    [row] if (row := hour.get((offer.model.slug, offer.upstream_model))) else []
                ).uptime_text,
                **_state(by_offer.get(offer.pk), offer.get_forced_display() if offer.forced else ""),
            }
            for offer in offers[:MOST_SHOWN]
        ],
        "more_offers": max(0, len(offers) - MOST_SHOWN),
        "all_offers": f"{reverse('admin:routing_offer_changelist')}?provider__id__exact={provider.pk}",
        "credentials": [
            {"name": one.name, **_state(by_credential.get(one.pk), _lack(provider, one))}
            for one in Credential.objects.filter(provider=provider).order_by("name")
        ],
        "calls": [_call(one) for one in newest.defer(*UNREAD).order_by("-pk")[:MOST_CALLS]],
        "by": _("among the %(count)s newest of all") % {"count": f"{MOST_LOOKED_AT:,}"},
        "all": _generations(ids),
    }


def _lack(provider: Provider, credential: Credential) -> str:
    """Why a credential is not used, without its having failed; empty: it is."""
    if not credential.active:
        return _("off")
    return _("nothing stored") if not credential.sealed and provider.auth_style != AuthStyle.NONE else ""


def _last(most: int) -> QuerySet[Any]:
    return Usage.objects.order_by("-pk").values("pk")[:most]


def _state(rest: Ejection | None, otherwise: str) -> dict[str, str]:
    if rest is not None:
        return {"state": _("at rest: %(cause)s") % {"cause": rest.cause.replace("_", " ")}, "level": "bad"}
    return {"state": otherwise or _("in use"), "level": "forced" if otherwise else "good"}
