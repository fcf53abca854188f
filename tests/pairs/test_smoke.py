"""Messages over chat and chat over Messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from billing.models import Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider

RECORDINGS = Path(__file__).parents[1] / "recordings"


def messages(gateway: Gateway, tenant: Tenant, model: str, **body: Any) -> Any:
    asked = {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], **body}
    return gateway.client.post("/v1/messages", json=asked, headers={"x-api-key": tenant.secret})


@pytest.mark.parametrize("stream", [False, True])
def test_messages_over_chat(gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, stream: bool) -> None:
    slug = make_model(make_provider(simulated.base_url), f"mc-{stream}?tokens=3&prompt=5").slug
    synchronize(gateway)
    said = messages(gateway, alice, slug, stream=stream)
    print(said.status_code, said.headers, said.text)
    assert said.status_code == 200
    refused = messages(gateway, alice, "nobody/nothing", stream=stream)
    print(refused.status_code, refused.text)
    assert refused.json()["type"] == "error"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", ["text", "tool", "thinking_tool", "length", "refusal", "cached"])
def test_chat_and_messages_over_messages(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, stream: bool, case: str
) -> None:
    kind = "sse" if stream else "json"
    data = (RECORDINGS / "anthropic_messages" / f"{case}.{kind}").read_bytes()
    option = simulated.script(f"mm-{case}.{kind}", data)
    provider = make_provider(simulated.base_url, protocol="anthropic_messages")
    slug = make_model(provider, f"mm?{option}").slug
    synchronize(gateway)
    said = gateway.chat(alice.secret, slug, stream=stream)
    print(said.status_code, said.text)
    assert said.status_code == 200
    said = messages(gateway, alice, slug, stream=stream)
    print(said.status_code, said.text)
    assert said.status_code == 200
    for row in Usage.objects.filter(model=slug):
        print(row.status, row.prompt_tokens, row.completion_tokens, row.basis, row.charge)
    print(json.dumps(simulated.bill()[-1]))
