"""The console's page End users: what an organization's end users spent, and what their budgets have left.

What was spent is from the rollups by end user, which tell the dearest apart (`billing/rollups.py`); what a budget has
left is from its counter, and so exact, of its own running window whatever range is asked for.
"""

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts.console import money, number, sees_books
from accounts.models import Organization
from billing.alerts import NEAR
from billing.console.spend import NO_RANGE, NONE, Asked, NoSuch, asked_for, change
from billing.models import EACH, Budget, Period
from billing.spending import SHOWN, Line, Sums, lines

MOST_USERS = 100
MOST_BUDGETS = 2_000  # lines of all of them together

# The budgets that bind each of some end users of an organization, with what is used and held of their running windows.
# Who has one by name has that one instead of everybody's, at the same subject, period and model.
BUDGETS = """
select u.name, b.id, b.period, b.model, b.amount, b.hard, concat_ws('/', p.slug, k.name), coalesce(n.used, 0),
       coalesce(n.held, 0)
  from unnest(%(names)s::text[]) with ordinality u(name, place)
  join billing_budget b on b.organization_id = %(organization)s and b.end_user <> ''
       and (b.end_user = u.name or b.end_user = '*' and not exists (
               select from billing_budget o
                where o.subject = b.subject and o.period = b.period and o.model = b.model and o.end_user = u.name
                  and u.name <> ''))  -- as which a budget of all calls is written
  left join accounts_apikey k on k.id = b.key_id
  left join accounts_project p on p.id = coalesce(b.project_id, k.project_id)
  left join lateral (
       select c.used, c.held from billing_counter c
        where c.subject = billing_scope(b.subject, b.model, u.name) and c.measure = 'money' and c.period = b.period
          and c.period_start = billing_window(b.period, now(), b.time_zone)
        order by c.version desc limit 1) n on true
 order by u.place, b.id
 limit %(most)s
"""


def page(request: HttpRequest) -> HttpResponse:
    """GET: the page, of `organization` (slug or id); `from` and `to` are its days, by default the running month."""
    if not sees_books(request):
        raise PermissionDenied
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": _("End users"),
        "typed": {name: request.GET.get(name, "") for name in ("from", "to", "organization", "end_user")},
    }
    if not request.GET.get("organization", "").strip():
        return TemplateResponse(request, "admin/end_users.html", context)
    try:
        asked = asked_for(request.GET.dict(), ("end_user",), timezone.now().date())
    except ValueError:
        context["wrong"] = NO_RANGE
    except NoSuch as error:
        context["wrong"] = str(error)
    else:
        assert asked.whose.organization is not None  # or nobody would be told apart
        organization = Organization.objects.get(pk=asked.whose.organization)
        found = lines(asked.days, asked.whose, ("end_user",), MOST_USERS + 1, SHOWN)
        shown = found[:MOST_USERS] + _named(organization.pk, found, asked.whose.end_user)
        budgets = _budgets(organization.pk, [line.meant[0] for line in shown if line.meant[0] is not None])
        context |= {
            "asked": asked,
            "organization": organization,
            "spend": f"{reverse('spend')}?{asked.query()}",
            "budgets": f"{reverse('admin:billing_budget_changelist')}?organization__id__exact={organization.pk}",
            "more": len(found) > MOST_USERS,
            "users": [_user(asked, line, budgets) for line in shown],
        }
    return TemplateResponse(request, "admin/end_users.html", context)


def _named(organization: UUID, found: Sequence[Line], only: str | None) -> list[Line]:
    """Those who have a budget by name, and are not among who spent."""
    named = Budget.objects.filter(organization=organization).exclude(end_user__in=("", EACH))
    named = named.exclude(end_user__in=[line.meant[0] for line in found if line.meant[0]])
    if only is not None:
        named = named.filter(end_user=only)
    names = named.order_by("end_user").values_list("end_user", flat=True).distinct()[:MOST_USERS]
    return [Line((name,), (name,), Sums()) for name in names]


def _budgets(organization: UUID, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """By end user: each budget, in words, with what it has left."""
    told: dict[str, Any] = {"names": list(dict.fromkeys(names)), "organization": organization, "most": MOST_BUDGETS}
    with connection.cursor() as cursor:
        cursor.execute(BUDGETS, told)
        rows = cursor.fetchall()
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, id, period, model, amount, hard, whom, used, held in rows:
        share = 100 * used / amount if amount else Decimal(100 if used else 0)
        found[name].append(
            {
                "link": reverse("admin:billing_budget_change", args=[id]),
                "name": " ".join(
                    word
                    for word in (str(Period(period).label), _("of %(model)s") % {"model": model} if model else "",
                                 _("at %(whom)s") % {"whom": whom} if whom else "",
                                 "" if hard else _("(soft)"))
                    if word
                ),
                "amount": money(amount),
                "used": money(used),
                "held": money(held) if held else "",
                "left": money(amount - used - held),
                "level": "over" if share >= 100 else "near" if share >= NEAR else "far",
            }
        )  # fmt: skip
    return found


def _user(asked: Asked, line: Line, budgets: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    sums, value = line.sums, line.meant[0]
    return {
        "name": line.names[0] or NONE,
        "link": f"{reverse('spend')}?{asked.within('end_user', value).query()}" if value else "",
        "requests": number(sums.requests),
        "tokens": number(sums.prompt_tokens + sums.completion_tokens),
        "charge": money(sums.charge),
        "before": money(sums.charge_before),
        "change": change(sums.charge, sums.charge_before),
        "budgets": [] if value is None else budgets.get(value, []),
    }


def address(organization: UUID) -> str:
    """The page's address for an organization."""
    return f"{reverse('end_users')}?{urlencode({'organization': organization})}"
