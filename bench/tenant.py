"""`python -m bench.tenant URL MODEL...`: the rows that the gateway is measured with, on the database it is told of.

Everything that costs is on: hard budgets for the organization and the project, three limits on the key, known rates.
All are far too high to refuse. Prints what was made, as JSON. Runs as the database's owner.
"""

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import django

LIMITS = {"requests": 10**9, "tokens": 10**15, "open": 10**6}
REFUSED_KEYS = 16  # of each kind, so that none of them is what everything hinges on


def make(provider_url: str, models: Sequence[str]) -> dict[str, object]:
    """Migrates, makes the rows, and gives the key's secret, the models' public names, and keys to be refused."""
    from django.core.management import call_command

    from bench.translations import upstream_name
    from billing.models import Budget, Limit
    from gateway.protocols import PROTOCOLS
    from tests.pairs.providers import PROVIDERS
    from tests.stage.cast import make_key, make_tenant
    from tests.stage.shelf import make_model, make_provider

    call_command("migrate", interactive=False, verbosity=0)
    tenant = make_tenant("bench")
    for project in (None, tenant.project):
        Budget.objects.create(
            organization=tenant.organization, project=project, period="month", amount=10**9, hard=True
        )
    for measure, value in LIMITS.items():
        Limit.objects.create(organization=tenant.organization, key=tenant.key, measure=measure, value=value)
    provider = make_provider(f"{provider_url}/v1", "sk-provider")
    now = datetime.now(UTC)
    over = {"revoked_at": now - timedelta(days=1)}, {"expires_at": now - timedelta(days=1)}
    revoked, expired = ([make_key(tenant.project, **fields)[1] for _ in range(REFUSED_KEYS)] for fields in over)
    return {
        "secret": tenant.secret,
        "spoken": {
            protocol: make_model(
                make_provider(f"{provider_url}/v1", protocol=protocol, **PROVIDERS[protocol].FIELDS),
                upstream_name(protocol),
            ).slug
            for protocol in PROTOCOLS
        },
        "models": {model: make_model(provider, model).slug for model in models},
        "refused": {"revoked": revoked, "expired": expired},
    }


def main() -> None:
    """The program."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    os.environ["DATABASE_ROLE"] = "owner"
    django.setup()
    url, *models = sys.argv[1:]
    print(json.dumps(make(url, models)))


if __name__ == "__main__":
    main()
