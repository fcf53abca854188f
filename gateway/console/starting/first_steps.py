"""What an empty installation needs before its first request is answered: each step as the data say it is."""

from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from accounts.access.access import Access, access_of
from accounts.access.table import Verb
from accounts.log import Action, AuditEvent
from accounts.models import ApiKey, Organization, Project
from accounts.roles import Role
from billing.models import Status, Tariff, TariffVersion, Usage
from gateway.console.starting.trial import Outcome
from routing.models import AuthStyle, Credential, Offer, Provider

MOST_ORGANIZATIONS = 20  # of a person
ENOUGH = 200  # generations: whoever has so many has begun, whatever became of them


class Step(NamedTuple):
    """One step: what it is, whether it is done, and where; `why` says in a line what it is for."""

    title: str
    why: str
    done: bool
    link: str


def first_steps(request: HttpRequest) -> dict[str, Any] | None:
    """For the first page, of operators and of owners of an organization: the steps in order, `next` the first that is
    not done; None once a request has been answered, and for everybody else. When it is over, one query;
    for an owner one an organization.
    """
    access = access_of(request)
    owns = Role.OWNER in access.roles.values()
    if not (access.is_operator or owns) or _answered(access):
        return None
    steps = _of_operators() if access.is_operator else _of_owners(access)
    steps.append(
        Step(
            _("Send a first request"),
            _("Through the public API, with a key: what it answers and what it cost."),
            False,
            reverse("first_request"),
        )
    )
    done = sum(step.done for step in steps)
    return {"steps": steps, "next": next(step for step in steps if not step.done), "done": done, "all": len(steps)}


def _answered(access: Access) -> bool:
    """Whether a request of theirs has been answered: by the newest, since a million are not looked through. Of several
    organizations each for itself, by its index: together they would be.
    """
    usage = Usage.objects.order_by("-pk").values_list("status", flat=True)
    own = [one for one, role in access.roles.items() if role is Role.OWNER][:MOST_ORGANIZATIONS]
    for rows in [usage] if access.is_operator else [usage.filter(organization=one) for one in own]:
        newest = list(rows[:ENOUGH])
        if Status.COMPLETED in newest or len(newest) == ENOUGH:
            return True
    return False


def _of_operators() -> list[Step]:
    provider = Provider.objects.filter(active=True).order_by("pk").first()
    versions = TariffVersion.objects.filter(tariff=OuterRef("tariff"), effective_from__lte=Now())
    offers = Offer.objects.filter(active=True, model__active=True, provider__active=True)
    priced = offers.filter(Exists(versions)).exists()
    place = "model" if Tariff.objects.exists() else "tariff"
    return [
        Step(
            _("Add a provider, with its key"),
            _("Who sells: its address, the protocol it speaks, and the key it gave you."),
            _holds_a_key(),
            reverse("admin:routing_provider_change", args=[provider.pk])
            if provider
            else reverse("admin:routing_provider_add"),
        ),
        Step(
            _("Test the key"),
            _("One small real call, from the provider's page."),
            _tested(),
            reverse("admin:routing_provider_change", args=[provider.pk])
            if provider
            else reverse("admin:routing_provider_changelist"),
        ),
        Step(
            _("Add a model, with an offer and its price"),
            _("First a tariff: what the provider takes, and what you charge. Then the model, sold under it."),
            priced,
            reverse(f"admin:routing_{place}_add" if place == "model" else "admin:billing_tariff_add"),
        ),
        *_of_tenants(
            Organization.objects.filter(active=True).exists(),
            Project.objects.filter(active=True).exists(),
            _usable(ApiKey.objects.all()),
        ),
    ]


def _of_owners(access: Access) -> list[Step]:
    projects = access.rows(Project.objects.filter(active=True), Verb.ADD)
    return _of_tenants(True, projects.exists(), _usable(access.rows(ApiKey.objects.all(), Verb.ADD)))[1:]


def _of_tenants(organization: bool, project: bool, key: bool) -> list[Step]:
    return [
        Step(
            _("Add an organization"),
            _("Who pays: it has projects, keys, people and budgets of its own."),
            organization,
            reverse("admin:accounts_organization_add"),
        ),
        Step(
            _("Add a project"),
            _("What its keys belong to, and what is counted together."),
            project,
            reverse("admin:accounts_project_add"),
        ),
        Step(
            _("Make a key"),
            _("What a program carries. Its secret is shown once."),
            key,
            reverse("admin:accounts_apikey_add"),
        ),
    ]


def _holds_a_key() -> bool:
    held = Credential.objects.filter(active=True, provider__active=True).exclude(sealed="")
    return held.exists() or Provider.objects.filter(active=True, auth_style=AuthStyle.NONE).exists()


def _tested() -> bool:
    """Whether a key has worked, or no provider takes one."""
    sells = Provider.objects.filter(active=True)
    if sells.exists() and not sells.exclude(auth_style=AuthStyle.NONE).exists():
        return True
    works = AuditEvent.objects.filter(table=Credential._meta.db_table, action=Action.TEST)
    return works.filter(note__startswith=f"{Outcome.WORKS}: ").exists()


def _usable(keys: Any) -> bool:
    found = keys.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), revoked_at=None, project__active=True)
    return bool(found.filter(project__organization__active=True).exists())
