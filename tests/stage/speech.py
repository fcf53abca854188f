"""What tests of dialects share: how a tenant comes to speak one, and what its answers are read with."""

import json
from typing import Any

import httpx

from billing.models import Hold, Usage
from tests.stage.cast import Tenant

ALL = ["standard", "zenmux", "ezrouter"]
CHAT = ["/v1/chat/completions", "/api/v1/chat/completions"]


def speak(tenant: Tenant, dialect: str) -> None:
    """Sets the dialect of the tenant's project."""
    tenant.project.dialect = dialect
    tenant.project.full_clean()
    tenant.project.save()


def error(response: httpx.Response) -> Any:
    """The error's object of an answer."""
    return response.json()["error"]


def events(text: str) -> list[Any]:
    """The payloads of an event stream, [DONE] as text."""
    payloads = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


def nothing_happened(tenant: Tenant) -> bool:
    """No generation of the tenant is on the books, and none is held."""
    of_tenant = {"organization": tenant.organization.id}
    return not Usage.objects.filter(**of_tenant).exists() and not Hold.objects.filter(key=tenant.key.id).exists()
