"""Clients of every protocol, and providers of each that play a recording and tell what they were sent."""

import json
import secrets
from pathlib import Path
from typing import Any

import httpx

from routing.models import Model
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway
from tests.stage.shelf import make_model, make_provider

RECORDINGS = Path(__file__).parents[1] / "recordings"
HI = [{"role": "user", "content": "hi"}]
CONTENTS = [{"role": "user", "parts": [{"text": "hi"}]}]


def post(gateway: Gateway, tenant: Tenant, path: str, **body: Any) -> httpx.Response:
    """A POST with the tenant's key."""
    return gateway.client.post(path, json=body, headers={"Authorization": f"Bearer {tenant.secret}"})


def message(gateway: Gateway, tenant: Tenant, model: Model, **fields: Any) -> httpx.Response:
    """A message, to Anthropic's path."""
    return post(gateway, tenant, "/v1/messages", **{"model": model.slug, "max_tokens": 50, "messages": HI, **fields})


def generate(gateway: Gateway, tenant: Tenant, model: Model, **fields: Any) -> httpx.Response:
    """A generateContent, to Google's path."""
    return post(gateway, tenant, f"/v1beta/models/{model.slug}:generateContent", **{"contents": CONTENTS, **fields})


def respond(gateway: Gateway, tenant: Tenant, model: Model, **fields: Any) -> httpx.Response:
    """A response, to OpenAI's path."""
    return post(gateway, tenant, "/v1/responses", **{"model": model.slug, "input": "hi", **fields})


class Provider:
    """A provider of `protocol` with one model, which lists `takes`, that answers with a recording or a body."""

    def __init__(
        self,
        simulated: SimulatedProvider,
        protocol: str,
        *takes: str,
        plays: str | dict[str, Any] = "text.json",
        **model: Any,
    ) -> None:
        self._simulated, self._name = simulated, f"{protocol}-{secrets.token_hex(4)}"
        if isinstance(plays, str):
            self._name += Path(plays).suffix
            data = (RECORDINGS / protocol / plays).read_bytes()
        else:
            self._name += ".json"
            data = json.dumps(plays).encode()
        option = simulated.script(self._name, data)
        self.row = make_provider(simulated.base_url, protocol=protocol)
        self.model = make_model(self.row, f"m?{option}", supported_parameters=list(takes), **model)

    @property
    def sent(self) -> dict[str, Any]:
        """The body that it was last sent."""
        body: dict[str, Any] = json.loads(self._simulated.asked(self._name)["body"])
        return body

    @property
    def path(self) -> str:
        """The path that it was last asked at."""
        path: str = self._simulated.asked(self._name)["path"]
        return path

    @property
    def fields(self) -> dict[str, str]:
        """The header fields that it was last sent, in lower case."""
        return {name.lower(): value for name, value in self._simulated.asked(self._name)["headers"].items()}
