"""What an organization's own people do for themselves, and how far; and what an operator may not do to their like."""

import secrets
from typing import Any

import pytest
from django.contrib.auth.models import Group

from accounts.models import ApiKey, AuditEvent, Membership, Project, User
from accounts.roles import Office, Role
from billing.models import Budget
from tests.console.browser import Console, context_of, submit, url
from tests.console.sign_in.steps import inside
from tests.stage.cast import Tenant, make_key


def member(tenant: Tenant, role: Role) -> tuple[User, Console]:
    """A person of `tenant`, who has logged in."""
    user = User.objects.create_user(f"{role}-{secrets.token_hex(4)}", is_staff=True)
    Membership.objects.create(user=user, organization=tenant.organization, role=role)
    return user, client_of(user)


def client_of(user: User) -> Console:
    """Their browser."""
    client = Console()
    client.force_login(user)
    return client


def is_revoked(key: ApiKey) -> bool:
    """As the database has it."""
    return ApiKey.objects.filter(pk=key.pk, revoked_at__isnull=False).exists()


def official(*offices: Office, superuser: bool = False) -> User:
    """A person with offices in the installation."""
    user = User.objects.create_user(f"office-{secrets.token_hex(4)}", is_staff=True, is_superuser=superuser)
    user.groups.set(Group.objects.filter(name__in=offices))
    return user


def test_an_owner_makes_a_project_and_a_key_of_it(alice: Tenant) -> None:
    _, client = member(alice, Role.OWNER)
    fields = {"organization": str(alice.organization.pk), "slug": "second", "name": "Second"}
    made = submit(client, url(Project, "add"), "project_form", **fields, sends_unknown_params="on")
    assert made.status_code == 302
    project = Project.objects.get(organization=alice.organization, slug="second")
    assert not project.sends_unknown_params  # what that may cost beyond a hard budget nobody pays
    fields = {"project": str(project.pk), "name": "of a member", "owner": str(alice.user.pk)}
    shown = submit(client, url(ApiKey, "add"), "apikey_form", **fields, scopes=["inference", "export"])
    key = ApiKey.objects.get(project=project)
    assert "sk-ml-" in shown.content.decode() and (key.owner, key.scopes) == (alice.user, ["inference", "export"])
    assert submit(client, url(ApiKey, "change", key.pk), "apikey_form", name="renamed").status_code == 302
    assert client.post(url(ApiKey, "revoke", key.pk), {"confirmed": "yes"}).status_code == 302
    key.refresh_from_db()
    assert (key.name, key.revoked_at is None) == ("renamed", False)


def test_a_key_belongs_to_a_member(alice: Tenant, charlie: Tenant) -> None:
    _, client = member(alice, Role.OWNER)
    fields = {"project": str(alice.project.pk), "name": "given away", "owner": str(charlie.user.pk)}
    refused = submit(client, url(ApiKey, "add"), "apikey_form", **fields)
    assert refused.status_code == 200 and "sk-ml-" not in refused.content.decode()
    assert list(alice.project.keys.all()) == [alice.key]


def test_a_developers_key_is_their_own_and_reads_nothing_of_others(alice: Tenant) -> None:
    user, client = member(alice, Role.DEVELOPER)
    fields: dict[str, Any] = {"project": str(alice.project.pk), "name": "mine"}
    for beyond in (["management"], ["inference", "export"]):
        refused = submit(client, url(ApiKey, "add"), "apikey_form", **fields, scopes=beyond)
        assert refused.status_code == 200 and "an owner makes them" in refused.content.decode()
    assert list(alice.project.keys.all()) == [alice.key]
    submit(client, url(ApiKey, "add"), "apikey_form", **fields, owner=str(alice.user.pk), scopes=["inference", "files"])
    key = ApiKey.objects.get(project=alice.project, name="mine")
    assert (key.owner, key.scopes) == (user, ["inference", "files"])
    widened = submit(client, url(ApiKey, "change", key.pk), "apikey_form", scopes=["inference", "management"])
    assert widened.status_code == 200
    submit(client, url(ApiKey, "change", key.pk), "apikey_form", owner=str(alice.user.pk), name="renamed")
    key.refresh_from_db()
    assert (key.owner, key.scopes, key.name) == (user, ["inference", "files"], "renamed")
    assert client.post(url(ApiKey, "change", alice.key.pk), {"name": "stolen"}).status_code in (302, 403)
    client.post(url(ApiKey, "changelist"), {"action": "revoke_selected", "_selected_action": str(alice.key.pk)})
    alice.key.refresh_from_db()
    assert (alice.key.name, alice.key.revoked_at) == ("key", None)


def test_an_owners_budget_is_below_the_contracts(alice: Tenant) -> None:
    _, client = member(alice, Role.OWNER)
    Budget.objects.create(organization=alice.organization, period="day", amount=10)
    whom = {"organization": str(alice.organization.pk), "project": str(alice.project.pk), "period": "day"}
    refused = submit(client, url(Budget, "add"), "budget_form", **whom, amount="10.01")
    assert "The contract has" in refused.content.decode() and not Budget.objects.filter(project=alice.project).exists()
    assert submit(client, url(Budget, "add"), "budget_form", **whom, amount="9", contract="on").status_code == 302
    made = Budget.objects.get(project=alice.project)
    assert (str(made.amount.normalize()), made.contract) == ("9", False)
    assert submit(client, url(Budget, "change", made.pk), "budget_form", amount="11").status_code == 200
    assert submit(client, url(Budget, "change", made.pk), "budget_form", amount="8").status_code == 302
    made.refresh_from_db()
    assert (str(made.amount.normalize()), made.contract) == ("8", False)
    assert client.post(url(Budget, "delete", made.pk), {"post": "yes"}).status_code == 302
    assert not Budget.objects.filter(pk=made.pk).exists()


def test_who_leaves_or_has_a_lesser_role_leaves_no_key_that_does_more(alice: Tenant) -> None:
    _, client = member(alice, Role.OWNER)
    bob, _ = member(alice, Role.OWNER)
    (reads, _), (calls, _) = (
        make_key(alice.project, owner=bob, name=name, scopes=[name]) for name in ("export", "inference")
    )
    membership = Membership.objects.get(user=bob)
    assert (
        submit(client, url(Membership, "change", membership.pk), "membership_form", role="developer").status_code == 302
    )
    assert (is_revoked(reads), is_revoked(calls)) == (True, False)
    assert client.post(url(Membership, "delete", membership.pk), {"post": "yes"}).status_code == 302
    assert (is_revoked(calls), is_revoked(alice.key)) == (True, False)
    assert not Membership.objects.filter(user=bob).exists()


def test_an_organization_keeps_an_owner(alice: Tenant) -> None:
    (last,) = Membership.objects.filter(organization=alice.organization)
    User.objects.filter(pk=alice.user.pk).update(is_staff=True)
    client = client_of(User.objects.get(pk=alice.user.pk))
    refused = submit(client, url(Membership, "change", last.pk), "membership_form", role="developer")
    assert "keeps one owner" in refused.content.decode()
    assert client.post(url(Membership, "delete", last.pk), {"post": "yes"}).status_code == 403
    last.refresh_from_db()
    assert last.role == Role.OWNER


def test_nobody_promotes_themselves(alice: Tenant) -> None:
    for role in (Role.DEVELOPER, Role.AUDITOR):
        user, client = member(alice, role)
        mine = Membership.objects.get(user=user)
        assert client.post(url(Membership, "change", mine.pk), {"role": "owner"}).status_code in (302, 403)
        extra = {"is_superuser": "on", "is_staff": "on", "groups": ["1"], "role": "owner"}
        assert client.post(url(User, "change", user.pk), extra).status_code in (302, 403)
        mine.refresh_from_db()
        user.refresh_from_db()
        assert (mine.role, user.is_superuser, user.groups.count()) == (role, False, 0)


@pytest.mark.parametrize("above", ["superuser", "operator"])
def test_an_operator_changes_nobody_above_or_beside_them(above: str) -> None:
    client = inside(official(Office.OPERATOR))
    other = official(*([Office.OPERATOR] if above == "operator" else []), superuser=above == "superuser")
    before = User.objects.values().get(pk=other.pk)
    assert client.get(url(User, "change", other.pk)).status_code == 200
    assert client.post(url(User, "change", other.pk), {"username": "stolen"}).status_code == 403
    password = {"password1": "correct-horse-9", "password2": "correct-horse-9", "usable_password": "true"}
    assert client.post(f"/console/accounts/user/{other.pk}/password/", password).status_code == 403
    assert User.objects.values().get(pk=other.pk) == before


def test_an_operator_gives_the_lesser_offices_alone() -> None:
    client, person = client_of(official(Office.OPERATOR)), official()
    groups = {group.name: str(group.pk) for group in Group.objects.all()}
    address = url(User, "change", person.pk)
    refused = submit(client, address, "user_form", groups=[groups["operator"]], is_superuser="on")
    assert refused.status_code == 200
    assert submit(client, address, "user_form", groups=[groups["finance"]], is_superuser="on").status_code == 302
    person.refresh_from_db()
    assert ([group.name for group in person.groups.all()], person.is_superuser) == (["finance"], False)


def test_finance_reads_of_the_log_what_is_about_money(alice: Tenant) -> None:
    Budget.objects.create(organization=alice.organization, period="day", amount=10)
    shown = context_of(client_of(official(Office.FINANCE)).get(url(AuditEvent, "changelist")))["cl"].queryset
    tables = set(shown.values_list("table", flat=True))
    assert "billing_budget" in tables and all(table.startswith("billing_") for table in tables)
