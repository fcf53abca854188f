"""Applying a configuration file's tenants: organizations, projects, keys, their budgets and limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils.functional import cached_property

from accounts.keys import digest, digests, display_prefix, is_well_formed, new_secret
from accounts.models import ApiKey, Organization, Project, User
from billing.models import Budget, Limit
from gateway.configuration.allowed import endpoint_objection, model_objection
from gateway.configuration.rows import Difference, Wanted, begun, by_slug, shown, write
from gateway.configuration.schema import BUDGET, KEY, ORGANIZATION, PROJECT, Entry, budget_of


@dataclass
class Bound:
    """Whom the budgets and limits of an entry bind."""

    entry: Entry
    label: str
    organization: Organization
    project: Project | None = None
    key: ApiKey | None = None

    @cached_property
    def subject(self) -> UUID:
        """The id that budgets and limits are counted under."""
        return (self.key or self.project or self.organization).pk


def apply_tenancy(entries: Sequence[Entry], difference: Difference, now: datetime) -> list[Bound]:
    """Brings the tenants to what the file says, and gives them. `now` is the database's."""
    organizations = by_slug(Organization, ORGANIZATION, entries)
    write(organizations, difference)
    projects = _apply_projects(organizations, difference)
    keys = _apply_keys(projects, difference, now)
    bounds = [
        *(Bound(item.entry, _name(item), item.row) for item in organizations),
        *(Bound(item.entry, _name(item), item.row.organization, item.row) for item in projects),
        *(Bound(item.entry, _name(item), item.row.project.organization, item.row.project, item.row) for item in keys),
    ]
    _apply_budgets(bounds, difference)
    _apply_limits(bounds, difference)
    return bounds


def _name(item: Wanted[Any]) -> str:
    """What a label says after its noun: organization/project/key, as far as it goes."""
    return item.label.partition(" ")[2]


def _apply_projects(organizations: Sequence[Wanted[Organization]], difference: Difference) -> list[Wanted[Project]]:
    rows = [item.row for item in organizations]
    found = {(row.organization_id, row.slug): row for row in Project.objects.filter(organization__in=rows)}
    projects = []
    for item in organizations:
        for entry in item.entry.inner["projects"]:
            row = found.get((item.row.pk, entry.name)) or begun(Project, entry.name)
            fresh = row._state.adding
            row.organization = item.row
            label = f"project {item.entry.name}/{entry.name}"
            projects.append(Wanted(entry, label, row, fresh, entry.column_values(PROJECT)))
    write(projects, difference)
    return projects


def _apply_keys(projects: Sequence[Wanted[Project]], difference: Difference, now: datetime) -> list[Wanted[ApiKey]]:
    held: dict[tuple[UUID, str], list[ApiKey]] = {}
    for row in ApiKey.objects.filter(project__in=[item.row for item in projects]).select_related("owner"):
        held.setdefault((row.project_id, row.name), []).append(row)
    keys = []
    taken: set[bytes] = set()
    for project in projects:
        for entry in project.entry.inner["keys"]:
            label = f"key {_name(project)}/{entry.name}"
            known = _held_key(entry, held.get((project.row.pk, entry.name), []))
            if known is None and entry.values.get("revoked"):
                continue
            wanted = _known_key(entry, label, known, now) if known else _new_key(entry, label, project.row, difference)
            wanted.row.project = project.row
            if bytes(wanted.row.digest) in taken:
                raise entry.wrong("secret", "another key of the file has this secret")
            taken.add(bytes(wanted.row.digest))
            if "owner" in entry.values:
                wanted.columns["owner"] = _owner(entry)
            _check_allowed(entry, wanted.row)
            keys.append(wanted)
    write(keys, difference)
    return keys


def _held_key(entry: Entry, rows: Sequence[ApiKey]) -> ApiKey | None:
    """The key the entry means: the unrevoked one of its name, else the newest, which stays revoked."""
    alive = [row for row in rows if row.revoked_at is None]
    if len(alive) > 1:
        raise entry.at.wrong(f"{len(alive)} keys of the project have this name: rename or revoke all but one")
    return max(alive or rows, key=lambda row: row.created_at, default=None)


def _known_key(entry: Entry, label: str, row: ApiKey, now: datetime) -> Wanted[ApiKey]:
    given = entry.values.get("secret")
    if given is not None and (
        not is_well_formed(given) or bytes(row.digest) not in digests(given, settings.KEY_PEPPERS)
    ):
        raise entry.wrong(
            "secret",
            "the key exists with another secret: a key is rotated by making a new one under another name, "
            "then revoking this one",
        )
    columns = entry.column_values(KEY)
    revoked = entry.values.get("revoked")
    if revoked is False and row.revoked_at is not None:
        raise entry.wrong("revoked", "a revoked key stays revoked: make a new one under another name")
    if revoked and row.revoked_at is None:
        columns["revoked_at"] = now
    return Wanted(entry, label, row, False, columns)


def _new_key(entry: Entry, label: str, project: Project, difference: Difference) -> Wanted[ApiKey]:
    secret = entry.values.get("secret")
    if secret is None:
        secret = new_secret()
        difference.secrets.append((label, secret))
    elif not is_well_formed(secret):
        raise entry.wrong("secret", "not a key's secret: sk-ml- and 36 letters and digits, the last 6 a checksum")
    elif ApiKey.objects.filter(digest__in=digests(secret, settings.KEY_PEPPERS)).exists():
        raise entry.wrong("secret", "another key has this secret")
    row = ApiKey(
        project=project,
        name=entry.name,
        digest=digest(secret, settings.KEY_PEPPERS[0]),
        prefix=display_prefix(secret),
    )
    return Wanted(entry, label, row, True, entry.column_values(KEY), detail=row.prefix)


def _check_allowed(entry: Entry, row: ApiKey) -> None:
    """Raises `ConfigurationError` for a list that names what is not there. What the row has already may stay."""
    for name, objection in (("allowed_models", model_objection), ("allowed_endpoints", endpoint_objection)):
        held = getattr(row, name)
        if wrong := objection(value for value in entry.values.get(name, ()) if value not in held):
            raise entry.wrong(name, wrong)


def _owner(entry: Entry) -> User | None:
    name = entry.values["owner"]
    if name is None:
        return None
    user = User.objects.filter(username=name).first()
    if user is None:
        raise entry.wrong("owner", f"there is no user {name!r}; users are made in the console")
    return user


def _apply_budgets(bounds: Sequence[Bound], difference: Difference) -> None:
    subjects = [bound.subject for bound in bounds]
    rows = Budget.objects.filter(subject__in=subjects)
    held = {(row.subject, row.period, row.model, row.end_user): row for row in rows}
    wanted = []
    for bound in bounds:
        for entry in bound.entry.inner["budgets"]:
            period, model, end_user = budget_of(entry.name)
            row = held.get((bound.subject, period, model, end_user))
            label = f"budget {bound.label} {entry.name}"
            if entry.removed:
                _remove(row, label, difference)
                continue
            if row is None and "amount" not in entry.values:
                raise entry.wrong("amount", "is needed for a new budget")
            if row is None and model and (wrong := model_objection([model])):
                raise entry.at.wrong(wrong)
            fresh = row or Budget(**_subject(bound), period=period, model=model, end_user=end_user)
            kind = "hard" if entry.values.get("hard", True) else "soft"
            detail = f"${shown(entry.values.get('amount'))} {kind}"
            wanted.append(Wanted(entry, label, fresh, row is None, entry.column_values(BUDGET), detail))
    write(wanted, difference)


def _apply_limits(bounds: Sequence[Bound], difference: Difference) -> None:
    subjects = [bound.subject for bound in bounds]
    held = {(row.subject, row.measure): row for row in Limit.objects.filter(subject__in=subjects)}
    wanted = []
    for bound in bounds:
        given: Mapping[str, int | None] = bound.entry.values.get("limits", {})
        for measure, value in given.items():
            row = held.get((bound.subject, measure))
            label = f"limit {bound.label} {measure}"
            if value is None:
                _remove(row, label, difference)
                continue
            fresh = row or Limit(**_subject(bound), measure=measure)
            wanted.append(Wanted(bound.entry, label, fresh, row is None, {"value": value}, str(value)))
    write(wanted, difference)


def _subject(bound: Bound) -> dict[str, Organization | Project | ApiKey | None]:
    return {"organization": bound.organization, "project": bound.project, "key": bound.key}


def _remove(row: Budget | Limit | None, label: str, difference: Difference) -> None:
    if row is not None:
        row.delete()
        difference.removed(label)
