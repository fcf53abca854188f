"""An operator's desk: where a configuration file is written and applied, and files to begin with."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import pytest
from django.db import connection, models, transaction

from accounts.keys import new_secret
from accounts.models import ApiKey, Membership, Organization, Project
from billing.models import Budget, Limit, Rate, Tariff, TariffVersion
from gateway.configuration import apply
from gateway.configuration.file import ConfigurationError
from gateway.configuration.rows import Difference
from gateway.configuration.schema import Noun
from gateway.models import StoredFile
from routing.models import ChoiceWeight, Credential, Ejection, Model, Offer, Policy, Provider

ROOT = Path(__file__).resolve().parents[2]
PROVIDER_SECRET = "provider-secret-0123456789"

KEY = "organizations: {NAME: {name: Acme, projects: {main: {name: Main, keys: {ci: %s}}}}}"
TARIFF = "tariffs: {NAME: {versions: [%s]}}"
IN_FORCE = "{effective_from: 2026-01-01T00:00:00Z, rates: {input: 1, output: 2}}"
PROVIDER = """
    providers:
      NAME:
        name: Somewhere
        base_url: {env: URL}
        credentials:
          one: {secret: {env: ONE}}
          two: {secret: {env: TWO}}
"""
WHOLE = """
    organizations:
      NAME:
        name: Acme
        budgets:
          month: {amount: "250.50"}
        projects:
          main:
            name: Main
            default_output_cap: 2048
            budgets:
              day: {amount: 10, hard: false}
            limits: {requests: 600, tokens: 100000}
            keys:
              ci:
                secret: {env: CI_KEY}
                scopes: [inference, export]
                allowed_models: [NAME/swift]
                allowed_ips: [10.0.0.0/8]
                max_request_price: 0.05
                expires_at: 2030-01-01T00:00:00+02:00
                limits: {open: 4}
    providers:
      NAME:
        name: Somewhere
        base_url: {env: URL}
        cap_field: max_completion_tokens
        total_timeout: 12.5
        credentials:
          default: {secret: {file: secret.txt}}
    tariffs:
      NAME/swift:
        versions:
          - effective_from: 2026-01-01T00:00:00Z
            note: first
            rates:
              input: 0.123456
              output: {cost: 1, charge: "1.5"}
              reasoning: null
            rates_above:
              200000: {input: 0.25, output: {cost: 2, charge: 3}}
    models:
      NAME/swift:
        name: Swift
        aliases: [NAME/fast]
        input_modalities: [text, image]
        context_length: 128000
        published_on: 2026-01-31
        offers:
          - {provider: NAME, upstream_model: swift-1, tariff: NAME/swift, weight: 3}
"""


@dataclass
class Desk:
    """Where an operator writes a file and applies it. `slug` is unlike every other test's."""

    folder: Path
    slug: str = field(default_factory=lambda: f"cfg-{secrets.token_hex(4)}")

    def file(self, text: str) -> Path:
        """A file of `text`, with NAME in it standing for the slug."""
        path = self.folder / "meterline.yaml"
        path.write_text(dedent(text).replace("NAME", self.slug))
        return path

    def apply(self, text: str, **environment: str) -> Difference:
        """Applies `text`."""
        return apply(self.file(text), environment)

    def lines(self, text: str, **environment: str) -> list[str]:
        """The difference that applying `text` makes, with NAME for the slug."""
        return [line.replace(self.slug, "NAME") for line in self.apply(text, **environment).lines]

    def refused(self, text: str, **environment: str) -> str:
        """The words with which `text` is refused, with NAME for the slug."""
        with pytest.raises(ConfigurationError) as caught:
            self.apply(text, **environment)
        return str(caught.value).replace(self.slug, "NAME")


def whole(desk: Desk) -> dict[str, str]:
    """The environment that WHOLE refers to; its file is written too."""
    (desk.folder / "secret.txt").write_text(PROVIDER_SECRET + "\n")
    return {"CI_KEY": new_secret(), "URL": "https://llm.example.com/v1"}


def coming(rates: str, *, days: int = 2) -> str:
    """A version that starts in some days."""
    start = (datetime.now(UTC) + timedelta(days=days)).replace(hour=0, minute=0, second=0, microsecond=0)
    return f"{{effective_from: '{start.isoformat()}', rates: {rates}}}"


def nouns(found: Mapping[str, Noun]) -> Iterator[tuple[str, Noun]]:
    """Every noun there is, with the section it stands in."""
    for section, noun in found.items():
        yield section, noun
        yield from nouns(noun.inner)


@contextmanager
def undone() -> Iterator[None]:
    """For tests that touch what is everybody's: all that is done inside is rolled back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def empty_everything() -> None:
    """Removes all configuration; for tests that are undone. In SQL: the ORM would first read all that others made."""
    tables: tuple[type[models.Model], ...] = (
        ChoiceWeight, Policy, Limit, Budget, StoredFile, ApiKey, Project, Membership, Organization, Ejection, Offer,
        Credential, Provider, Model, Rate, TariffVersion, Tariff,
    )  # fmt: skip
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"delete from {table._meta.db_table}")  # noqa: S608 - our own name
