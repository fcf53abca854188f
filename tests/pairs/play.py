"""The stage of a scene: a gateway, a tenant, and a provider that says what it is told to say."""

import json
import secrets

import httpx

from billing.models import Usage
from tests.pairs.clients import CLIENTS
from tests.pairs.providers import PROVIDERS
from tests.pairs.said import Got, Heard, Question
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider


class Play:
    """The stage: a gateway, a tenant, and providers that say what they are told to say."""

    def __init__(self, gateway: Gateway, simulated: SimulatedProvider, tenant: Tenant) -> None:
        self.gateway, self.simulated, self.tenant = gateway, simulated, tenant
        self.name = self.model = ""

    def says(self, provider: str, data: bytes, *, stream: bool, status: int = 200, hold: int = 0) -> None:
        """From now on a new model is asked, whose provider answers with `data`; `hold`: the rest after so many bytes
        when it is released.
        """
        self.name = f"pair-{secrets.token_hex(6)}.{'sse' if stream else 'json'}"
        script = self.simulated.script(self.name, data, status=status, chunk=hold)
        self.simulated.behave(self.name, f"{script}&hold=1" if hold else script)
        row = make_provider(self.simulated.base_url, protocol=provider, **PROVIDERS[provider].FIELDS)
        self.model = make_model(row, self.name).slug
        synchronize(self.gateway)

    def asks(self, client: str, question: Question, stream: bool) -> httpx.Response:
        """The answer, as it came."""
        speaks = CLIENTS[client]
        return self.gateway.client.post(
            speaks.path(self.model, stream),
            json=speaks.body(question, self.model, stream),
            headers={"Authorization": f"Bearer {self.tenant.secret}"},
        )

    def hears(self, client: str, question: Question, stream: bool) -> Heard:
        """The answer, as the client understands it."""
        response = self.asks(client, question, stream)
        assert response.status_code == 200, response.text
        heard: Heard = CLIENTS[client].hear(response.text, stream)
        return heard

    def asked(self, provider: str) -> tuple[Got, str]:
        """What the provider was sent, and as it came."""
        request = self.simulated.asked(self.name)
        assert request["path"].startswith(PROVIDERS[provider].PATH)
        body = json.loads(request["body"])
        if provider == "openai_chat":  # whose servers may take parts from users alone
            told = [message.get("content") for message in body["messages"] if message["role"] != "user"]
            assert all(type(content) in (str, type(None)) for content in told)
        return PROVIDERS[provider].got(body), request["body"]

    @property
    def usage(self) -> Usage:
        """The row on the books."""
        return Usage.objects.get(model=self.model)
