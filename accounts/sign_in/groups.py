"""Single sign-on's people: whose an identity is, and what its groups give.

Groups count that `OIDC_GROUPS` names, and no other: each gives what it is mapped to, from one sign-in to the next. What
a group has given is noted with the identity, and taken again once it is no longer claimed. What people were given by
hand is not touched: neither taken, nor made more or less.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.utils import timezone

from accounts.memberships import is_last_owner, withdraw
from accounts.models import Identity, Membership, Organization, User
from accounts.roles import Office, Role
from accounts.sign_in.beforehand import acting_as, seeing_all

MOST_GROUPS = 2000  # of a claim; the others are not looked at


class BadMapping(ValueError):
    """OIDC_GROUPS is not `{"group": "operator", another office or "role@organization", or a list of these}`."""


class NobodyHere(Exception):
    """The identity is nobody's here, and no group of it gives anything."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a provider has said of somebody. `email` is empty unless the provider has verified it."""

    issuer: str
    subject: str
    email: str = ""
    name: str = ""
    groups: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Grants:
    """What groups give: offices of the installation, and a role by organization's slug."""

    offices: frozenset[str]
    roles: Mapping[str, str]


def read_mapping(mapping: Any) -> dict[str, tuple[str, ...]]:
    """What each group gives, in the order of the setting. Raises `BadMapping`."""
    if not isinstance(mapping, dict):
        raise BadMapping("it is no object of groups")
    found = {}
    for group, given in mapping.items():
        targets = tuple(given) if isinstance(given, list) else (given,)
        for target in targets:
            role, at, slug = target.partition("@") if isinstance(target, str) else ("", "", "")
            if target not in Office.values and not (at and slug and role in Role.values):
                raise BadMapping(
                    f"{group!r} gives {target!r}: say one of {', '.join(Office.values)}, "
                    f"or one of {', '.join(Role.values)}, @, a slug"
                )
        found[str(group)] = targets
    return found


def grants_of(groups: Iterable[str]) -> Grants:
    """What these groups give together. Of an organization's roles the one counts that the mapping names first."""
    claimed, offices, roles = set(groups), set[str](), dict[str, str]()
    for group, targets in read_mapping(settings.OIDC_GROUPS).items():
        for target in targets if group in claimed else ():
            if target in Office.values:
                offices.add(target)
            else:
                role, _, slug = target.partition("@")
                roles.setdefault(slug, role)
    return Grants(frozenset(offices), roles)


@seeing_all()
def person_of(claims: Claims, invited: str = "") -> User:
    """Whose `claims` are, with what their groups give. Raises `NobodyHere`.

    It is whom they were before; else the one active person with their verified address; else somebody new, where a
    group gives something, or who was `invited` by that address.
    """
    grants = grants_of(claims.groups)
    identity = Identity.objects.filter(issuer=claims.issuer, subject=claims.subject).select_related("user").first()
    if identity is not None:
        _not_disabled(identity.user)
    else:
        user = _by_address(claims.email) or _made(claims, grants, invited)
        _not_disabled(user)
        # Whoever comes by it at the same time waits for the unique row, and has this one then.
        identity, _ = Identity.objects.get_or_create(
            issuer=claims.issuer, subject=claims.subject, defaults={"user": user}
        )
    identity = Identity.objects.select_for_update(of=("self",)).select_related("user").get(pk=identity.pk)
    acting_as(identity.user)
    _grant(identity, grants)
    identity.last_used_at = timezone.now()
    identity.save(update_fields=["granted", "last_used_at"])
    return identity.user


def _not_disabled(user: User) -> None:
    if not user.is_active:
        raise NobodyHere("they are disabled")


def _by_address(email: str) -> User | None:
    """The person with this address, disabled or not, where there is one alone: who has it twice is let in nowhere."""
    found = list(User.objects.filter(email__iexact=email)[:2]) if email else []
    if len(found) > 1:
        raise NobodyHere("several people have this address")
    return found[0] if found else None


def _made(claims: Claims, grants: Grants, invited: str) -> User:
    is_invited = bool(invited) and claims.email.casefold() == invited.casefold()
    slugs = set(Organization.objects.filter(slug__in=grants.roles, active=True).values_list("slug", flat=True))
    if not (grants.offices or slugs or is_invited):
        raise NobodyHere("no group of theirs gives anything here")
    name = claims.email
    if not name or len(name) > 150 or User.objects.filter(username__iexact=name).exists():
        name = f"sso-{sha256(f'{claims.issuer} {claims.subject}'.encode()).hexdigest()[:16]}"
    first, _, last = claims.name.partition(" ")
    user = User(username=name, email=claims.email, first_name=first[:150], last_name=last[:150], is_staff=True)
    user.set_unusable_password()
    user.save()
    return user


def _grant(identity: Identity, grants: Grants) -> None:
    """Makes what groups gave into what they give."""
    user, before = identity.user, identity.granted
    has = set(user.groups.filter(name__in=Office.values).values_list("name", flat=True))
    given_offices = set(before.get("offices", ()))
    user.groups.remove(*Group.objects.filter(name__in=given_offices - grants.offices))
    user.groups.add(*Group.objects.filter(name__in=grants.offices - has))
    offices = grants.offices - (has - given_offices)  # what they had by hand is not the groups' to take
    given: dict[str, str] = dict(before.get("roles", {}))  # by the organization's id
    wanted = {str(one.pk): grants.roles[one.slug] for one in Organization.objects.filter(slug__in=grants.roles)}
    held = {str(one.organization_id): one for one in user.memberships.select_for_update(of=("self",))}
    for organization, role in list(given.items()):
        row = held.get(organization)
        if row is None or row.role != role:  # somebody has changed it by hand: it is theirs from now on
            del given[organization]
        elif wanted.get(organization) != role:
            if row.role == Role.OWNER and is_last_owner(row):
                continue  # somebody has to give the others their roles
            if organization in wanted:
                row.role = given[organization] = wanted[organization]
                row.save(update_fields=["role"])
            else:
                row.delete()
                del given[organization]
            withdraw(user, row.organization_id, Role(row.role) if organization in wanted else None)
    for organization in wanted.keys() - held.keys():
        Membership.objects.create(user=user, organization_id=organization, role=wanted[organization])
        given[organization] = wanted[organization]
    identity.granted = {"offices": sorted(offices), "roles": given}
