"""Upstreams that say exact bytes, and what a client and the books make of them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from billing.models import Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider, make_tariff


@dataclass(frozen=True)
class Heard:
    """A client's view of one answer, and the row on the books."""

    response: httpx.Response
    usage: Usage

    @property
    def payloads(self) -> list[Any]:
        """What the stream's data lines hold; every one is JSON or [DONE], and no other line says anything."""
        lines = self.response.text.split("\n")
        assert all(line == "" or line.startswith("data: ") for line in lines)
        return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines if line]

    @property
    def deltas(self) -> list[tuple[dict[str, Any], str | None]]:
        """Delta and finish reason of each choice of each chunk of a whole stream."""
        *chunks, done = self.payloads
        assert done == "[DONE]"
        assert {made["id"] for made in chunks} == {self.usage.id.hex}
        return [(choice["delta"], choice["finish_reason"]) for made in chunks for choice in made["choices"]]

    @property
    def reported(self) -> list[Any]:
        """The usage objects of the stream."""
        return [made["usage"] for made in self.payloads[:-1] if made.get("usage")]

    @property
    def billed(self) -> tuple[int, int, str]:
        """Tokens in, tokens out, and how they are known."""
        return self.usage.prompt_tokens, self.usage.completion_tokens, self.usage.basis

    @property
    def error(self) -> tuple[int, str]:
        """Status and code of a refusal."""
        return self.response.status_code, self.response.json()["error"]["code"]


Play = Callable[..., Heard]


def player(gateway: Gateway, tenant: Tenant, simulated: SimulatedProvider) -> Play:
    """A function that has an upstream say exact bytes to one request of the tenant's, at $3, $0.30 and $15 a million.

    `body` are further fields of the request, which asks for a stream unless they say otherwise; `delivery` is how the
    bytes come (see `SimulatedProvider.script`).
    """
    tariff = make_tariff(input="3", cached_input="0.30", output="15")
    played: list[str] = []

    def play(data: bytes, *, body: dict[str, Any] | None = None, **delivery: Any) -> Heard:
        option = simulated.script(f"case-{tenant.organization.slug}-{len(played)}", data, **delivery)
        slug = make_model(make_provider(simulated.base_url), f"sim-small?{option}", tariff).slug
        played.append(slug)
        synchronize(gateway)
        response = gateway.chat(tenant.secret, slug, **{"stream": True, **(body or {})})
        return Heard(response, Usage.objects.get(model=slug))

    return play
