"""Everybody whom the matrices know: the offices, the roles in Alice's organization, and Charlie's organization."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import Group
from django.db import models
from django.utils import timezone

from accounts.models import Membership, User
from accounts.roles import Office, Role
from billing.ids import new_id
from billing.models import Budget, Hold, Limit, Usage
from gateway.models import Payload, Refused, RefusedCount, StoredFile
from tests.console.browser import Console, Rows, make_payload, make_refused, make_rows, make_usage
from tests.stage.cast import Tenant, make_key, make_tenant

STAFF = ("superuser", *(f"installation's {office.value}" for office in Office))
MEMBERS = tuple(f"organization's {role.value}" for role in Role)
ROLES: dict[str, Office | Role | None] = dict(
    zip((*STAFF, *MEMBERS, "nobody's"), (None, *Office, *Role, None), strict=True)
)


def client_of(user: User) -> Console:
    """A browser in which they have logged in."""
    client = Console()
    client.force_login(user)
    return client


@dataclass(frozen=True)
class People:
    """`rows`: of Alice's organization, of each page one; `own`: those of its developer; `theirs`: Charlie's."""

    alice: Tenant
    charlie: Tenant
    clients: dict[str, Console]
    users: dict[str, User]
    rows: Rows
    own: Rows
    theirs: Rows

    @property
    def marks(self) -> list[str]:
        """What stands in everything of Charlie's organization: its slug, and its ids."""
        organization = self.charlie.organization
        return [organization.slug, str(organization.pk), str(self.charlie.project.pk), str(self.charlie.key.pk)]

    def client(self, role: str) -> Console:
        """Their browser, without what earlier pages had left to tell: it names what was asked for."""
        client = self.clients[role]
        client.cookies.pop("messages", None)
        return client

    def row(self, model: type[models.Model], role: str) -> models.Model:
        """A row of Alice's organization that this role has, if it has any of the kind."""
        if role == "organization's developer":
            return self.own.get(model, self.rows[model])
        return self.rows[model]

    def end(self) -> None:
        """Takes back what would hold money for ever."""
        for rows in (self.rows, self.theirs):
            rows[Hold].delete()


def make_file(tenant: Tenant, key: Any) -> StoredFile:
    """A file that `key` has uploaded."""
    return StoredFile.objects.create(
        id=new_id(), project=tenant.project, key=key.pk, filename=f"{tenant.organization.slug}.txt",
        purpose="user_data", media_type="text/plain", bytes=1, content=b"1", created_at=timezone.now(),
    )  # fmt: skip


def gather() -> People:
    """All of them, and their rows."""
    alice, charlie = make_tenant("alice"), make_tenant("charlie")
    users = {name: User.objects.create_user(f"matrix-{uuid4().hex[:12]}", is_staff=True) for name in ROLES}
    users["superuser"].is_superuser = True
    users["superuser"].save()
    for name, role in ROLES.items():
        if isinstance(role, Office):
            users[name].groups.add(Group.objects.get(name=role))
        elif isinstance(role, Role):
            Membership.objects.create(user=users[name], organization=alice.organization, role=role)
    rows, theirs = make_rows(alice), make_rows(charlie)
    rows[Payload], theirs[Payload] = make_payload(alice), make_payload(charlie)
    rows[StoredFile], theirs[StoredFile] = make_file(alice, alice.key), make_file(charlie, charlie.key)
    Budget.objects.update_or_create(pk=rows[Budget].pk, defaults={"contract": False})
    developer = users["organization's developer"]
    key, _ = make_key(alice.project, owner=developer)
    subject = {"organization": alice.organization, "key": key}
    own: Rows = {
        type(key): key,
        Usage: make_usage(alice, key=key.pk),
        Budget: Budget.objects.create(**subject, period="day", amount=Decimal(3)),
        Limit: Limit.objects.create(**subject, measure="open", value=3),
        StoredFile: make_file(alice, key),
        Refused: make_refused(alice, key=key.pk),
        RefusedCount: RefusedCount.objects.create(
            minute=timezone.now(), organization=alice.organization.pk, key=key.pk, status=429, requests=1
        ),
    }
    return People(alice, charlie, {name: client_of(user) for name, user in users.items()}, users, rows, own, theirs)
