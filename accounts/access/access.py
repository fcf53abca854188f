"""What one person may see and do. The database says who they are, in one call at the beginning of a request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from accounts.access.table import RULES, Rule, Verb
from accounts.models import ApiKey
from accounts.roles import Office, Role

ALL = frozenset(Verb)
OPERATORS_ALONE = Rule({Office.OPERATOR: ALL}, {})
ENTER = "select superuser, offices, organizations, roles from accounts_enter(%s, %s)"


@dataclass(frozen=True, slots=True)
class Access:
    """Of whom may log in: their offices, and their role in each organization that they belong to."""

    user: int | None = None
    superuser: bool = False
    offices: frozenset[Office] = frozenset()
    roles: Mapping[UUID, Role] = field(default_factory=dict)

    @property
    def is_operator(self) -> bool:
        """Whether they run the installation."""
        return self.superuser or Office.OPERATOR in self.offices

    @property
    def is_staff(self) -> bool:
        """Whether they see all organizations: their office says what of them."""
        return self.superuser or bool(self.offices)

    def everywhere(self, model: type[Model], verb: Verb) -> bool:
        """Whether they may do it to all rows there are."""
        return self.superuser or any(verb in rule_of(model).offices.get(office, ()) for office in self.offices)

    def organizations(self, model: type[Model], verb: Verb) -> dict[UUID, Role]:
        """Those of theirs in which their role lets them do it, with that role."""
        rule = rule_of(model)
        if not rule.organization:
            return {}
        return {one: role for one, role in self.roles.items() if verb in rule.roles.get(role, ())}

    def may(self, model: type[Model], verb: Verb, row: Any = None) -> bool:
        """Whether they may do it to `row`, a row or its primary key; None: to any at all."""
        if self.everywhere(model, verb):
            return True
        if not self.organizations(model, verb):
            return False
        if row is None:
            return True
        pk = row.pk if isinstance(row, Model) else row
        return self.rows(model._base_manager.all(), verb).filter(pk=pk).exists()

    def rows(self, queryset: QuerySet[Any], verb: Verb = Verb.VIEW, *, of: type[Model] | None = None) -> QuerySet[Any]:
        """Those of `queryset` to which they may do it. `of`: the model whose rule counts, where what is looked at is
        made of its rows and has its columns.
        """
        model = of or queryset.model
        if self.everywhere(model, verb):
            return queryset
        found = queryset.filter(self._condition(rule_of(model), self.organizations(model, verb)))
        return found.distinct() if model._meta.label_lower in SEVERAL else found

    def offered(self, queryset: QuerySet[Any], to: type[Model], verbs: Iterable[Verb]) -> QuerySet[Any]:
        """Those of `queryset` that a row of `to` may name: seen, and of organizations where they may write it."""
        if any(self.everywhere(to, verb) for verb in verbs):
            return self.rows(queryset)
        writable = {one for verb in verbs for one in self.organizations(to, verb)}
        seen = {one: role for one, role in self.organizations(queryset.model, Verb.VIEW).items() if one in writable}
        return queryset.filter(
            pk__in=queryset.model._base_manager.filter(self._condition(rule_of(queryset.model), seen))
        )

    def role_in(self, organization: UUID | None) -> Role | None:
        """Theirs in an organization; None for who acts by an office."""
        return None if self.is_operator or organization is None else self.roles.get(organization)

    def _condition(self, rule: Rule, organizations: Mapping[UUID, Role]) -> Q:
        """Rows of `organizations`; for developers those that are their own."""
        theirs = [one for one, role in organizations.items() if role is Role.DEVELOPER and (rule.person or rule.key)]
        whole = [one for one in organizations if one not in theirs]
        found = Q(pk__in=())
        if whole:
            found |= Q(**{f"{rule.organization}__in": whole})
        if theirs:
            own = (
                Q(**{rule.person: self.user})
                if rule.person
                else Q(**{f"{rule.key}__in": ApiKey.objects.filter(owner=self.user).values("pk")})
            )
            found |= Q(**{f"{rule.organization}__in": theirs}) & own
        return found


NOBODY = Access()
SEVERAL = {"accounts.user"}  # of whose rows each may lead to several organizations


def rule_of(model: type[Model]) -> Rule:
    """What the table says of a model."""
    return RULES.get(model._meta.label_lower, OPERATORS_ALONE)


def enter(user: Any, address: str) -> Access:
    """The access of a person who has logged in, from `address`; from now on this connection shows what they may see.

    Anybody else has none, and is shown nothing.
    """
    if not user.is_authenticated:
        if connection.connection is not None:  # else it is made when it is needed, and shows nothing
            with connection.cursor() as cursor:
                cursor.execute(ENTER, [None, address])
        return NOBODY
    with connection.cursor() as cursor:
        cursor.execute(ENTER, [user.pk, address])
        row = cursor.fetchone()
    if row is None:
        return NOBODY
    superuser, offices, organizations, roles = row
    return Access(
        user=user.pk,
        superuser=superuser,
        offices=frozenset(Office(name) for name in offices if name in Office.values),
        roles={one: Role(role) for one, role in zip(organizations, roles, strict=True) if role in Role.values},
    )


def access_of(request: HttpRequest) -> Access:
    """Of who makes a request."""
    found: Access | None = getattr(request, "access", None)
    if found is None:
        found = enter(request.user, "")
        request.access = found  # type: ignore[attr-defined]
    return found
