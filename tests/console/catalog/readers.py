"""Who reads the catalog in the tests, and what they are shown of it."""

from typing import Any

from django.urls import reverse

from accounts.models import Membership, User
from accounts.roles import Role
from tests.console.browser import Console, context_of
from tests.stage.cast import Tenant


def member(tenant: Tenant, role: Role = Role.DEVELOPER) -> Console:
    """A browser of a further member of the tenant's organization."""
    user = User.objects.create_user(f"{role}-{tenant.organization.slug}", is_staff=True)
    Membership.objects.create(user=user, organization=tenant.organization, role=role)
    client = Console()
    client.force_login(user)
    return client


def nobody() -> Console:
    """A browser in which nobody has logged in."""
    return Console()


def shown(client: Any, **query: Any) -> list[dict[str, Any]]:
    """The lines of the list."""
    response = client.get(reverse("catalog"), query)
    assert response.status_code == 200, response.status_code
    return list(context_of(response)["lines"])


def slugs(client: Any, **query: Any) -> list[str]:
    """The models of the list, in its order."""
    return [line["model"].slug for line in shown(client, **query)]
