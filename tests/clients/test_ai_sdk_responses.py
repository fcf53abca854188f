"""The AI SDK as it calls OpenAI by default, with a base URL and a key alone, over providers of every protocol.

It takes it that answers are kept, and names in its next request what was said by the ids of its items.
"""

import json
import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest

from billing.models import Usage
from tests.clients.packages import node_program
from tests.pairs.providers import PROVIDERS
from tests.pairs.said import PROOF, Call, Said
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import ROOT, Gateway, environment, synchronize
from tests.stage.shelf import make_model, make_provider

OSLO = Call("call_a1", "get_weather", {"city": "Oslo"})
THINKS = Said("I will look.", "First  I think: ja.", PROOF, calls=(OSLO,), finish="tool_calls")
# What Google takes for the signature of a call that its model did not make.
UNSIGNED = "skip_thought_signature_validator"


# Only a provider of Responses keeps answers.
KEPT = ("openai_responses", ("store", "tools", "reasoning"))


@pytest.mark.parametrize("case", ["whole", "streamed"])
@pytest.mark.parametrize(("provider", "takes"), [*((name, ()) for name in PROVIDERS), KEPT], ids=[*PROVIDERS, "kept"])
def test_a_loop_of_tools_and_a_second_question(
    gateway: Gateway,
    alice: Tenant,
    simulated: SimulatedProvider,
    provider: str,
    case: str,
    takes: tuple[str, ...],
    tmp_path: Path,
) -> None:
    speaks, streams, name = PROVIDERS[provider], case == "streamed", f"sdk-{secrets.token_hex(6)}"

    def script(said: Said) -> str:
        ending = "sse" if streams else "json"
        data = speaks.stream(said) if streams else speaks.whole(said)
        return simulated.script(f"{name}-{said.finish}.{ending}", data)

    simulated.behave(name, script(THINKS))
    then = script(Said("It snows."))
    row = make_provider(simulated.base_url, protocol=provider, **speaks.FIELDS)
    model = make_model(row, name, supported_parameters=list(takes))
    synchronize(gateway)
    command = node_program(ROOT / "tests" / "clients" / "ai_sdk_responses" / "loop.mjs", tmp_path)
    told = subprocess.run(
        [*command, case, model.slug, f"{simulated.url}/control/model/{name}", then],
        cwd=tmp_path,
        env=environment(OPENAI_BASE_URL=f"{gateway.url}/v1", OPENAI_API_KEY=alice.secret),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, f"{told.stdout}\n{told.stderr}"[-3000:]
    heard: dict[str, Any] = json.loads(told.stdout)
    assert heard == {"texts": ["I will look.", "It snows.", "It snows."], "thought": heard["thought"]}
    body = simulated.asked(f"{name}-stop.{'sse' if streams else 'json'}")["body"]
    uncapped = {"max_output_tokens": None, "generationConfig": {"maxOutputTokens": None}}
    got = speaks.got(uncapped | json.loads(body))
    assert [turn for turn in got.turns if turn[0] != "thought"] == [
        ("user", "What is the weather?"),
        ("said", "I will look."),
        ("call", OSLO.id, OSLO.name, OSLO.arguments),
        ("result", OSLO.id, "snow in Oslo"),
        ("said", "It snows."),
        ("user", "And tomorrow?"),
    ]
    assert [turn[2] for turn in got.turns if turn[0] == "thought" and turn[2] not in (None, UNSIGNED)] == [PROOF]
    rows = Usage.objects.filter(organization=alice.organization.id)
    assert [(row.status, row.basis) for row in rows] == [("completed", "reported")] * 3
