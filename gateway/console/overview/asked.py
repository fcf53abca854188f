"""What the first page is asked for, who asks, and where its numbers lead to."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.access.access import Access, access_of
from accounts.access.table import Verb
from accounts.models import Organization
from accounts.roles import Role
from billing.console.spend import uuid_of
from billing.models import Usage

DAYS = {1: _("Today"), 7: _("7 days"), 30: _("30 days")}
MOST_CHIPS = 12  # organizations to choose from
LONGEST = 200  # characters of an organization's name that is looked for


@dataclass(frozen=True, slots=True)
class Asked:
    """So many UTC days, the running one the last; of one organization, or of all that the person sees generations of.

    `unknown`: an organization was named that the person does not see, or that is not there.
    """

    access: Access
    days: int
    now: datetime
    organization: Organization | None = None
    unknown: str = ""

    @property
    def begin(self) -> datetime:
        """The first moment."""
        return datetime.combine(self.now.date(), time(), UTC) - timedelta(days=self.days - 1)

    @property
    def whole(self) -> bool:
        """Whether what is shown are all generations of the organizations concerned: no developer's own alone."""
        roles = self.access.organizations(Usage, Verb.VIEW)
        if self.organization is not None:
            roles = {one: role for one, role in roles.items() if one == self.organization.pk}
        return self.access.everywhere(Usage, Verb.VIEW) or Role.DEVELOPER not in roles.values()

    def rows(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those of `queryset`, of usage or of what is rolled up of it, that the person may see and asks for."""
        found = self.access.rows(queryset, of=Usage)
        return found if self.organization is None else found.filter(organization=self.organization.pk)

    def address(self, **changed: Any) -> str:
        """The page's query string, with something else chosen."""
        chosen = {"days": self.days, "organization": self.organization.slug if self.organization else "", **changed}
        return urlencode({name: value for name, value in chosen.items() if value})

    def generations(self, **chosen: Any) -> str:
        """The list of the generations behind a number."""
        days = {"created_at_from_0": self.begin.date(), "created_at_to_0": self.now.date()}
        return f"{reverse('admin:billing_usage_changelist')}?{urlencode({**self._whose(), **chosen, **days})}"

    def spend(self, by: str, **chosen: Any) -> str:
        """The Spend page of the same; the generations, for who does not see that."""
        if not self.access.is_staff:
            return self.generations(**chosen)
        days = {"from": self.begin.date(), "to": self.now.date(), "by": by}
        return f"{reverse('spend')}?{urlencode({**self._whose(), **chosen, **days})}"

    def _whose(self) -> dict[str, Any]:
        return {"organization": self.organization.pk} if self.organization else {}


def asked_for(request: HttpRequest) -> Asked:
    """What an address asks for: today, of all, when it says nothing that can be told."""
    access, now = access_of(request), timezone.now()
    days = request.GET.get("days", "")
    told = {str(one): one for one in DAYS}.get(days, 1)
    name = request.GET.get("organization", "").replace("\0", "").strip()[:LONGEST]
    if not name:
        return Asked(access, told, now)
    id = uuid_of(name)
    known = access.rows(Organization.objects.filter(**({"pk": id} if id else {"slug": name})))
    organization = known.first()
    return Asked(access, told, now, organization, "" if organization else name)


def choices(asked: Asked) -> dict[str, Any]:
    """What else may be asked for: ranges; and of whom, where there is a choice. Who sees all types a name."""
    access = asked.access
    everywhere = access.everywhere(Usage, Verb.VIEW)
    theirs: list[str] = []
    if not everywhere:
        seen = access.organizations(Usage, Verb.VIEW)
        theirs = list(Organization.objects.filter(pk__in=seen).order_by("slug").values_list("slug", flat=True))
    chosen = asked.organization.slug if asked.organization else ""
    return {
        "ranges": [(name, asked.address(days=days), days == asked.days) for days, name in DAYS.items()],
        "organizations": [
            (slug or _("All"), asked.address(organization=slug), slug == chosen) for slug in ["", *theirs[:MOST_CHIPS]]
        ]
        if len(theirs) > 1
        else [],
        "types": everywhere or len(theirs) > MOST_CHIPS,
        "suggested": list(
            access.rows(Organization.objects.order_by("slug")).values_list("slug", flat=True)[:MOST_CHIPS]
        )
        if everywhere
        else theirs,
        "chosen": chosen,
        "without": asked.address(organization=""),
    }
