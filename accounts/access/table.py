"""The role matrix: of each model of the console, what each role may do and how a row leads to its organization.

The letters are v(iew), a(dd), c(hange), d(elete). A page may allow less, never more. A model that is not here is the
operators' alone; tests hold this table against the admin's registry and the database's policies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from accounts.models import Scope
from accounts.roles import Office, Role


class Verb(StrEnum):
    """What is done to rows."""

    VIEW = "v"
    ADD = "a"
    CHANGE = "c"
    DELETE = "d"


# What keys that members make, or that are theirs, may be used for: management and export read what all did.
SCOPES: dict[Role | None, frozenset[str]] = {
    Role.OWNER: frozenset(Scope.values),
    Role.DEVELOPER: frozenset((Scope.INFERENCE, Scope.FILES)),
    Role.AUDITOR: frozenset(),
    None: frozenset(),  # of no member
}


@dataclass(frozen=True, slots=True)
class Rule:
    """What is said of a model.

    `organization` is the path of look-ups from a row to its organization's id; empty: of no organization, and of no
    concern to its members. Developers have what is theirs: `person` is the path to a person's id, `key` that to a
    key's, of which theirs count; neither: as the others.
    """

    offices: Mapping[Office, frozenset[Verb]]  # apart from roles: an auditor of the installation is none of a tenant
    roles: Mapping[Role, frozenset[Verb]]
    organization: str = ""
    person: str = ""
    key: str = ""


def rule(rights: str, organization: str = "", *, person: str = "", key: str = "") -> Rule:
    """A rule from a line of the table: the letters of each office and then each role, in order; a dash is nothing."""
    said = [frozenset(map(Verb, letters.strip("-"))) for letters in rights.split()]
    offices = dict(zip(Office, said[: len(Office)], strict=True))
    return Rule(offices, dict(zip(Role, said[len(Office) :], strict=True)), organization, person, key)


RULES = {
    #             installation:  operator finance auditor  organization: owner developer auditor
    "accounts.auditevent":   rule("v     v     v       v     -     v", "organization"),
    "accounts.user":         rule("vac   -     v       v     -     v", "memberships__organization"),
    "accounts.organization": rule("vac   v     v       v     v     v", "pk"),
    "accounts.membership":   rule("vacd  -     v       vcd   -     v", "organization"),
    "accounts.project":      rule("vac   v     v       vac   v     v", "organization"),
    "accounts.apikey":       rule("vac   -     v       vac   vac   v", "project__organization", person="owner"),
    "gateway.refused":       rule("v     -     v       v     v     v", "organization", key="key"),
    "gateway.refusedcount":  rule("v     -     v       v     v     v", "organization", key="key"),
    "gateway.changeset":     rule("vc    -     v       -     -     -"),
    "gateway.storedfile":    rule("vd    -     -       vd    vd    -", "project__organization", key="key"),
    "gateway.payload":      rule("vd    -     -       vd    -     -", "organization"),
    "routing.provider":      rule("vacd  -     -       -     -     -"),
    "routing.credential":    rule("vacd  -     -       -     -     -"),
    "routing.model":         rule("vacd  v     v       -     -     -"),
    "routing.offer":         rule("vacd  v     v       -     -     -"),
    "routing.policy":        rule("vacd  -     v       -     -     -"),
    "routing.choiceweight":  rule("vacd  -     v       -     -     -"),
    "billing.usage":         rule("v     v     v       v     v     v", "organization", key="key"),
    "billing.quarantined":   rule("v     v     v       -     -     -"),
    "billing.hold":          rule("v     -     v       v     -     v", "organization"),
    "billing.lease":         rule("v     -     v       -     -     -"),
    "billing.tariff":        rule("vacd  v     v       -     -     -"),
    "billing.tariffversion": rule("vacd  v     v       -     -     -"),
    "billing.rate":          rule("vacd  v     v       -     -     -"),
    "billing.pricelist":     rule("va    v     v       -     -     -"),
    "billing.priceproposal": rule("vc    v     v       -     -     -"),
    "billing.terms":         rule("vacd  v     v       v     -     v", "organization"),
    "billing.budget":        rule("vacd  v     v       vacd  v     v", "organization", person="key__owner"),
    "billing.limit":         rule("vacd  v     v       v     v     v", "organization", person="key__owner"),
    "billing.prepaid":       rule("vac   v     v       v     -     v", "organization"),
    "billing.recipient":     rule("vacd  -     v       v     -     v", "organization"),
    "billing.delivery":      rule("v     -     v       v     -     v", "organization"),
    "billing.statement":     rule("va    v     v       v     -     v", "organization"),
    "billing.ledgerentry":   rule("v     v     v       -     -     -", "organization"),
    "billing.closedmonth":   rule("va    v     v       -     -     -"),
    "billing.repricing":     rule("va    v     v       -     -     -"),
    "billing.reconciliation":rule("v     v     v       -     -     -"),
    "billing.billsource":    rule("vacd  -     -       -     -     -"),
    "billing.billfetch":     rule("va    v     v       -     -     -"),
    "billing.reporttags":    rule("vacd  v     v       -     -     -", "organization"),
    "billing.exportschedule":rule("vac   v     v       -     -     -"),
    "billing.storedexport":  rule("v     v     v       -     -     -"),
    "billing.retention":     rule("vc    v     v       -     -     -"),
    "billing.auditfinding":  rule("v     v     v       -     -     -"),
}  # fmt: skip
