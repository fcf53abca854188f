"""Writing the database's configuration as a file that `apply` reads: every field spelled out, and no secret.

In the order of names, so that two exports of one configuration are the same text.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import yaml
from django.db import models

from accounts.exact import plain
from accounts.models import ApiKey, Organization, Project
from billing.models import Budget, Limit, Rate, Tariff, TariffVersion
from gateway.configuration.rows import shown
from gateway.configuration.schema import (
    BUDGET,
    CREDENTIAL,
    KEY,
    MODEL,
    OFFER,
    ORGANIZATION,
    POLICY,
    PROJECT,
    PROVIDER,
    TARIFF,
    VERSION,
    Noun,
    budget_name,
)
from routing.models import ChoiceWeight, Credential, Model, Offer, Policy, Provider

Tree = dict[str, Any]


@dataclass(slots=True)
class Remarks:
    """What the file's head says: variables to set for credentials, and keys that no name could tell apart."""

    variables: dict[str, str] = field(default_factory=dict)  # name -> credential
    left_out: list[str] = field(default_factory=list)

    def variable(self, credential: str) -> str:
        """A variable's name for a credential's secret, unlike every other one."""
        name = base = "CREDENTIAL_" + re.sub(r"[^A-Z0-9]", "_", credential.upper())
        number = 1
        while name in self.variables:
            number += 1
            name = f"{base}_{number}"
        self.variables[name] = credential
        return name


def export(organization: str | None = None) -> str:
    """The configuration as YAML: everything, or the tenant part of the organization with this slug.

    Raises `Organization.DoesNotExist`.
    """
    remarks = Remarks()
    if organization is not None:
        tree: Tree = {"organizations": _organizations([Organization.objects.get(slug=organization)], remarks)}
    else:
        tree = {
            "organizations": _organizations(Organization.objects.order_by("slug"), remarks),
            "providers": _providers(remarks),
            "tariffs": _tariffs(),
            "models": _models(),
            **_policies(level="global").get(None, {}),
            "choice_weights": _weights(),
        }
    body = yaml.dump(
        {section: entries for section, entries in tree.items() if entries} or {"organizations": {}},
        Dumper=yaml.CSafeDumper,
        sort_keys=False,
        allow_unicode=True,
        width=110,
    )
    return _head(remarks) + body


def _head(remarks: Remarks) -> str:
    lines = ["Meterline configuration. Secrets are not in it: a new key gets a fresh one when the file is applied."]
    if remarks.variables:
        lines.append("Set these variables to the credentials' secrets before applying it, or delete the lines:")
        lines += [f"  {name}: {credential}" for name, credential in remarks.variables.items()]
    if remarks.left_out:
        lines.append("Left out, since several unrevoked keys of one project have the same name:")
        lines += [f"  {key}" for key in remarks.left_out]
    # A name is text that somebody typed: none may end the comment.
    return "".join(
        f"# {line.encode('unicode_escape').decode() if not line.isprintable() else line}\n" for line in lines
    )


def _organizations(rows: Iterable[Organization], remarks: Remarks) -> Tree:
    organizations = list(rows)
    projects: dict[Any, list[Project]] = {}
    for project in Project.objects.filter(organization__in=organizations).order_by("slug"):
        projects.setdefault(project.organization_id, []).append(project)
    keys: dict[Any, list[ApiKey]] = {}
    alive = ApiKey.objects.filter(project__organization__in=organizations, revoked_at__isnull=True)
    for key in alive.select_related("owner").order_by("name"):
        keys.setdefault(key.project_id, []).append(key)
    bounds = _bounds(organizations)
    for subject, policy in {
        **_policies(project__organization__in=organizations),
        **_policies(key__project__organization__in=organizations),
    }.items():
        bounds.setdefault(subject, {}).update(policy)
    return {
        organization.slug: {
            **_columns(organization, ORGANIZATION),
            **bounds.get(organization.pk, {}),
            "projects": {
                project.slug: {
                    **_columns(project, PROJECT),
                    **bounds.get(project.pk, {}),
                    "keys": _keys(f"{organization.slug}/{project.slug}", keys.get(project.pk, []), bounds, remarks),
                }
                for project in projects.get(organization.pk, [])
            },
        }
        for organization in organizations
    }


def _keys(project: str, keys: list[ApiKey], bounds: Mapping[Any, Tree], remarks: Remarks) -> Tree:
    names = [key.name for key in keys]
    remarks.left_out += sorted({f"{project}/{name}" for name in names if names.count(name) > 1})
    return {
        key.name: {
            "owner": key.owner.username if key.owner else None,
            **_columns(key, KEY),
            **bounds.get(key.pk, {}),
        }
        for key in keys
        if names.count(key.name) == 1
    }


def _bounds(organizations: list[Organization]) -> dict[Any, Tree]:
    """Limits and budgets, by the id of the subject they bind."""
    found: dict[Any, Tree] = {}
    for limit in Limit.objects.filter(organization__in=organizations).order_by("measure"):
        found.setdefault(limit.subject, {}).setdefault("limits", {})[limit.measure] = limit.value
    for budget in Budget.objects.filter(organization__in=organizations).order_by("period", "model", "end_user"):
        found.setdefault(budget.subject, {}).setdefault("budgets", {})[
            budget_name(budget.period, budget.model, budget.end_user)
        ] = _columns(budget, BUDGET)
    return found


def _policies(**which: Any) -> dict[Any, Tree]:
    """Policies, by the id of whose requests they are for."""
    return {
        policy.key_id or policy.project_id or policy.model_id: {
            "policy": {
                **_columns(policy, POLICY),
                "fallback": {"true": True, "false": False}.get(policy.fallback, policy.fallback),
            }
        }
        for policy in Policy.objects.filter(**which)
    }


def _weights() -> Tree:
    found: Tree = {}
    for row in ChoiceWeight.objects.order_by("word", "term"):
        found.setdefault(row.word, {})[row.term] = _plain(row.weight)
    return found


def _providers(remarks: Remarks) -> Tree:
    credentials: dict[int, list[Credential]] = {}
    for credential in Credential.objects.order_by("name"):
        credentials.setdefault(credential.provider_id, []).append(credential)
    return {
        provider.slug: {
            **_columns(provider, PROVIDER),
            "credentials": {
                credential.name: {
                    **(
                        {"secret": {"env": remarks.variable(f"{provider.slug}/{credential.name}")}}
                        if credential.sealed
                        else {}
                    ),
                    **_columns(credential, CREDENTIAL),
                }
                for credential in credentials.get(provider.pk, [])
            },
        }
        for provider in Provider.objects.order_by("slug")
    }


def _tariffs() -> Tree:
    return {
        tariff.slug: {
            **_columns(tariff, TARIFF),
            "versions": [
                {
                    **_columns(version, VERSION),
                    **_rates(version),
                }
                for version in sorted(tariff.versions.all(), key=lambda version: version.effective_from)
            ],
        }
        for tariff in Tariff.objects.order_by("slug").prefetch_related(
            models.Prefetch("versions__rates", Rate.objects.order_by("service_tier", "above", "item"))
        )
    }


def _rates(version: TariffVersion) -> Tree:
    """The version's rates; those of larger prompts and other classes of service stand apart, when there are any."""
    classes: dict[str, dict[int, Tree]] = {"": {0: {}}}
    for rate in version.rates.all():
        sizes = classes.setdefault(rate.service_tier, {0: {}})
        sizes.setdefault(rate.above, {})[rate.item] = _rate(rate)
    shown = {
        service: {"rates": sizes.pop(0)} | ({"rates_above": sizes} if sizes else {})
        for service, sizes in classes.items()
    }
    base = shown.pop("")
    return base | {"service_tiers": shown} if shown else base


def _rate(rate: Rate) -> Any:
    return (
        _plain(rate.charge) if rate.cost == rate.charge else {"cost": _plain(rate.cost), "charge": _plain(rate.charge)}
    )


def _models() -> Tree:
    offers: dict[int, list[Offer]] = {}
    for offer in Offer.objects.select_related("provider", "tariff").order_by(
        "priority", "provider__slug", "upstream_model"
    ):
        offers.setdefault(offer.model_id, []).append(offer)
    policies = _policies(level="model")
    return {
        model.slug: {
            **_columns(model, MODEL),
            **policies.get(model.pk, {}),
            "offers": [
                {
                    "provider": offer.provider.slug,
                    **_columns(offer, OFFER),
                    "tariff": offer.tariff.slug if offer.tariff else None,
                }
                for offer in offers.get(model.pk, [])
            ],
        }
        for model in Model.objects.order_by("slug")
    }


def _columns(row: models.Model, noun: Noun) -> Tree:
    return {name: _plain(getattr(row, name)) for name in noun.columns}


def _plain(value: Any) -> Any:
    """A value as YAML carries it. Decimals and moments are text: no parser makes anything else of them."""
    match value:
        case Decimal():
            return plain(value)
        case datetime() | date():
            return shown(value)
        case float():
            return int(value) if value.is_integer() else value
        case list():
            return list(value)
        case _:
            return value
