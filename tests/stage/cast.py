"""The cast: Alice owns an organization, Bob is on her team, Charlie in another one must see nothing of theirs."""

import secrets
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from accounts.keys import digest, display_prefix, new_secret
from accounts.models import ApiKey, Membership, Organization, Project, User
from accounts.roles import Role

NOBODYS = "3f0c5a9e-7d21-4b86-9a4c-52e1d8b7f6a0"  # a well-formed id that no row has


@dataclass(frozen=True)
class Tenant:
    """An organization with one project, one person and one key."""

    organization: Organization
    project: Project
    user: User
    key: ApiKey
    secret: str


def make_key(project: Project, **fields: object) -> tuple[ApiKey, str]:
    """A key of `project` and its secret."""
    secret = new_secret()
    fields.setdefault("name", "key")
    key = ApiKey(
        project=project,
        digest=digest(secret, settings.KEY_PEPPERS[0]),
        prefix=display_prefix(secret),
        **fields,
    )
    key.clean_fields(exclude=("project", "owner"))  # what the database asks of a row it need not be asked before
    key.clean()
    key.save()
    return key, secret


@transaction.atomic
def make_tenant(name: str, role: Role = Role.OWNER) -> Tenant:
    """A fresh organization called after `name`, unlike every other one.

    It is there at once: each commit has every gateway that runs read its snapshot again.
    """
    slug = f"{name}-{secrets.token_hex(4)}"
    organization = Organization.objects.create(slug=slug, name=name.title())
    project = Project.objects.create(organization=organization, slug="main", name="Main")
    user = User.objects.create_user(username=slug)  # without a password: hashing one costs more than most tests
    Membership.objects.create(user=user, organization=organization, role=role)
    key, secret = make_key(project, owner=user)
    return Tenant(organization, project, user, key, secret)
