"""Every client's protocol over every provider's: it answers."""

from pathlib import Path
from typing import Any

import pytest

from billing.models import Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider

RECORDINGS = Path(__file__).parents[1] / "recordings"
TEXT = {
    "openai_responses": "Grüß dich, 世界! 🌍",
    "anthropic_messages": "Hello, wörld 🌍.",
    "google_gemini": "Øslo is  cold.",
}


def ask(gateway: Gateway, tenant: Tenant, client: str, model: str, stream: bool) -> Any:
    said = [{"role": "user", "content": "hi"}]
    headers = {"Authorization": f"Bearer {tenant.secret}"}
    if client == "google_gemini":
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        body: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
        return gateway.client.post(f"/v1beta/models/{model}:{method}", json=body, headers=headers)
    path, body = {
        "openai_chat": ("chat/completions", {"messages": said}),
        "openai_responses": ("responses", {"input": "hi"}),
        "anthropic_messages": ("messages", {"messages": said, "max_tokens": 100}),
    }[client]
    return gateway.client.post(f"/v1/{path}", json={"model": model, "stream": stream, **body}, headers=headers)


CLIENTS = ["openai_chat", "openai_responses", "anthropic_messages", "google_gemini"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", CLIENTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_it_answers(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, client: str, provider: str, stream: bool
) -> None:
    option = "tokens=3&prompt=5"
    if provider != "openai_chat":
        kind = "sse" if stream else "json"
        data = (RECORDINGS / provider / f"text.{kind}").read_bytes()
        option = simulated.script(f"smoke-{provider}.{kind}", data)
    slug = make_model(make_provider(simulated.base_url, protocol=provider), f"smoke?{option}").slug
    synchronize(gateway)
    said = ask(gateway, alice, client, slug, stream)
    print(said.status_code, said.text)
    assert said.status_code == 200
    if not stream:
        assert TEXT.get(provider, "You said: hi") in said.text
    (row,) = Usage.objects.filter(model=slug)
    assert (row.status, row.basis) == ("completed", "reported")
    refused = ask(gateway, alice, client, "nobody/nothing", stream)
    assert refused.status_code == 404, refused.text
