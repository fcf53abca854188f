"""Frameworks as they are by default, with base URL and key set and nothing else, over providers of other protocols.

`CLIENT_PROVIDERS=every` tries each over a provider of every protocol, as `make agents` does, and LangChain's classes
for other protocols than OpenAI's as well.
"""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from billing.models import Usage
from tests.clients.acting import BEGINS, Model, Provider, serving
from tests.clients.program import started
from tests.pairs.providers import PROVIDERS
from tests.pairs.said import Call
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize
from tests.stage.shelf import make_model, make_provider

SAID, OSLO = "good day to you", Call("call_a1", "weather", {"city": "Oslo"})
CASES = {"chat": 1, "stream": 1, "schema": 1, "loop": 2, "streamed_loop": 2}  # and how many requests each takes
# Each with one of the protocols that is not its own.
CLIENTS = {
    "openai_agents_sdk": "anthropic_messages",
    "pydantic_ai_agent": "google_gemini",
    "ai_sdk_openai.mjs": "openai_chat",
    "langchain_openai_responses": "anthropic_messages",
}
EVERY = os.environ.get("CLIENT_PROVIDERS") == "every"
TRIED = [
    pytest.param(client, protocol, id=f"{client}-{protocol}")
    for client in (*CLIENTS, *(("langchain_anthropic_chat", "langchain_google_chat") if EVERY else ()))
    for protocol in (PROVIDERS if EVERY else (CLIENTS[client],))
]


class Stage(NamedTuple):
    """A provider, and a gateway that may dial it."""

    provider: Provider
    gateway: Gateway


@pytest.fixture(scope="module")
def stage(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One for all of them."""
    with (
        serving() as provider,
        running(tmp_path_factory.mktemp("gateway"), EGRESS_ALLOW=provider.url) as (gateway,),
    ):
        yield Stage(provider, gateway)


@pytest.mark.parametrize(("client", "protocol"), TRIED)
def test_every_case(client: str, protocol: str, stage: Stage, alice: Tenant, tmp_path: Path) -> None:
    """It says hello, streams, runs a tool, and asks for a shape, and tells what the provider counted."""
    row = make_provider(stage.provider.base_url(protocol), protocol=protocol, **PROVIDERS[protocol].FIELDS)
    name = f"m-{row.slug}"
    slug = make_model(row, name).slug
    synchronize(stage.gateway)
    model = Model(lambda offered: OSLO if OSLO.name in offered else None, SAID, json.dumps({"model": "m"}))
    stage.provider.models[name] = model
    with started(client, slug, f"{stage.provider.url}/tool", stage.gateway, alice, tmp_path) as program:
        try:
            told = {case: program.does(case) for case in CASES}
        finally:
            assert not stage.provider.faults, stage.provider.faults.pop()
    answers = itertools.count(1)
    for case, requests in CASES.items():
        if case == "schema":
            assert told[case]["object"] == {"model": "m"}
        else:
            assert told[case]["text"] == SAID
        if "stream" in case:
            assert "".join(told[case]["pieces"]).removeprefix(BEGINS) == SAID
        # The provider counts 1001 + 21 for its first answer, 1002 + 22 for its second, and so on.
        numbers = [next(answers) for _ in range(requests)]
        assert told[case]["usage"] == [sum(1000 + n for n in numbers), sum(20 + n for n in numbers)], case
    assert model.asked[2].schema["properties"]["model"]["type"] == "string"
    loops = [got.turns for got in model.asked if got.turns[-1][0] == "result"]
    assert len(loops) == 2
    for turns in loops:  # LangChain drops the ids of Google's calls; then they are others, but one for both
        call, result = (next(turn for turn in turns if turn[0] == kind) for kind in ("call", "result"))
        assert (call[2:], result) == ((OSLO.name, OSLO.arguments), ("result", call[1], "sunny in Oslo"))
    rows = Usage.objects.filter(organization=alice.organization.id)
    assert {(row.status, row.basis) for row in rows} == {("completed", "reported")}
    assert sum(row.prompt_tokens or 0 for row in rows) == model.counted[0]
    assert sum(row.completion_tokens or 0 for row in rows) == model.counted[1]
    assert len(rows) == len(model.asked) == sum(CASES.values())
