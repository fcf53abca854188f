"""Clients that nobody here wrote get exact answers through the gateway, and the books hold what they are told."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from billing.models import Usage
from tests.clients.foreign import node_with
from tests.protocols.openai_chat.answers import DONE, chunk, usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import ROOT, Gateway, environment, synchronize
from tests.stage.shelf import make_model, make_provider

SAID = "good day to you"
CLIENTS = ["openai_node.mjs", "ai_sdk.mjs", "langchain_openai_chat", "llm_chat"]


class Client:
    """A client's program, the gateway it is pointed at, and the provider behind."""

    def __init__(self, command: list[str], gateway: Gateway, simulated: SimulatedProvider, folder: Path) -> None:
        self.command = command
        self.gateway = gateway
        self.simulated = simulated
        self.folder = folder

    def run(self, case: str, tenant: Tenant, does: str) -> dict[str, Any]:
        """What the program prints of `case`, asking a fresh model that `does` so."""
        model = make_model(make_provider(self.simulated.base_url))
        offer = model.offers.get()
        offer.upstream_model = model.slug.replace("/", "-")
        offer.save()
        self.simulated.behave(offer.upstream_model, does)
        synchronize(self.gateway)
        tool_url = f"{self.simulated.url}/control/model/{offer.upstream_model}"
        told = subprocess.run(
            [*self.command, case, model.slug, tool_url],
            cwd=ROOT,
            env=environment(
                OPENAI_BASE_URL=f"{self.gateway.url}/v1",
                OPENAI_API_KEY=tenant.secret,
                LLM_USER_PATH=str(self.folder),
                LLM_LOAD_PLUGINS="",  # The one that brings the tests a model file lacks the engine it imports.
                LANGSMITH_TRACING_V2="false",  # Whatever a developer's own environment says.
            ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert told.returncode == 0, f"{told.stdout}\n{told.stderr}"[-3000:]
        answer: dict[str, Any] = json.loads(told.stdout)
        return answer


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """Node, and the folder where it finds the programs with what they import."""
    folder = tmp_path_factory.mktemp("clients")
    return node_with(ROOT / "tests" / "clients", folder), folder


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, gateway: Gateway, simulated: SimulatedProvider, tmp_path: Path) -> Client:
    """Each of them in turn."""
    name: str = request.param
    if name.endswith(".mjs"):
        command, folder = request.getfixturevalue("node")
        return Client([*command, str(folder / name)], gateway, simulated, tmp_path)
    return Client([sys.executable, "-m", f"tests.clients.{name}"], gateway, simulated, tmp_path)


def books(tenant: Tenant) -> list[tuple[str, str, int, int]]:
    """What the tenant's requests were, in the order they came."""
    rows = Usage.objects.filter(organization=tenant.organization.id).order_by("created_at")
    return list(rows.values_list("status", "basis", "prompt_tokens", "completion_tokens"))


def test_a_chat(client: Client, alice: Tenant) -> None:
    answer = client.run("chat", alice, f"text={quote(SAID)}&prompt=11")
    assert (answer["text"], answer["usage"]) == (SAID, [11, 4])
    assert books(alice) == [("completed", "reported", 11, 4)]


def test_a_stream(client: Client, alice: Tenant) -> None:
    answer = client.run("stream", alice, f"text={quote(SAID)}&prompt=11")
    assert answer["pieces"] == ["good", " day", " to", " you"]
    assert (answer["text"], answer["usage"]) == (SAID, [11, 4])
    assert books(alice) == [("completed", "reported", 11, 4)]


def test_an_answer_with_a_shape(client: Client, alice: Tenant) -> None:
    """The model says the request that it was sent, which has the shape that was asked for."""
    answer = client.run("schema", alice, "echo&prompt=11")
    asked = json.loads(answer["text"])
    assert asked["response_format"]["type"] == "json_schema"
    shape = asked["response_format"]["json_schema"]["schema"]
    assert (shape["type"], list(shape["properties"]), shape["required"]) == ("object", ["model"], ["model"])
    assert shape["properties"]["model"]["type"] == "string"
    assert answer["object"] == {"model": asked["model"]}
    words = len(answer["text"].split())
    assert answer["usage"] == [11, words]
    assert books(alice) == [("completed", "reported", 11, words)]


@pytest.mark.parametrize("case", ["loop", "streamed_loop"])
def test_a_loop_of_tools(client: Client, alice: Tenant, case: str) -> None:
    """The model asks for the weather; the tool has it say, from then on, the request that it was sent."""
    answer = client.run(case, alice, "tools=1&prompt=11")
    asked = json.loads(answer["text"])
    question, call, result = asked["messages"]
    assert question["content"] in ("what is the weather?", [{"type": "text", "text": "what is the weather?"}])
    (made,) = call["tool_calls"]
    assert (made["id"], made["type"], made["function"]["name"]) == ("call_1", "function", "weather")
    assert json.loads(made["function"]["arguments"]) == {"city": "Oslo"}
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "call_1", "sunny in Oslo")
    assert asked["tools"][0]["function"]["name"] == "weather"
    assert bool(asked.get("stream")) == (case == "streamed_loop")
    # The call's name and the two pieces of its arguments; then the words of the answer.
    words = len(answer["text"].split())
    assert books(alice) == [("completed", "reported", 11, 3), ("completed", "reported", 11, words)]
    assert answer["usage"] == [22, 3 + words]
    if case == "streamed_loop":
        assert "".join(answer["pieces"]) == answer["text"]
        assert len(answer["pieces"]) > 1


@pytest.mark.parametrize("case", ["loop", "streamed_loop"])
def test_calls_that_a_provider_numbers_with_holes_are_all_run(client: Client, alice: Tenant, case: str) -> None:
    """It numbers blocks of content, of which the text is the first: its calls are 1 and 4."""

    def call(index: int, arguments: str, **first: Any) -> bytes:
        made = {"index": index, **first, "function": {**first.get("function", {}), "arguments": arguments}}
        return chunk({"tool_calls": [made]})

    weather = {"type": "function", "function": {"name": "weather"}}
    upstream = (
        chunk({"role": "assistant", "content": "Looking."})
        + call(1, "", id="call_s1", **weather)
        + call(4, "", id="call_s4", **weather)
        + call(1, '{"city":"Oslo"}')
        + call(4, '{"city":"Rome"}')
        + chunk({}, "tool_calls")
        + usage(20, 14)
        + DONE
    )
    answer = client.run(case, alice, client.simulated.script(f"holes-{alice.organization.slug}", upstream))
    *_, said, first, second = json.loads(answer["text"].removeprefix("Looking."))["messages"]
    assert [(made["id"], json.loads(made["function"]["arguments"])) for made in said["tool_calls"]] == [
        ("call_s1", {"city": "Oslo"}),
        ("call_s4", {"city": "Rome"}),
    ]
    assert {(result["tool_call_id"], result["content"]) for result in (first, second)} == {
        ("call_s1", "sunny in Oslo"),
        ("call_s4", "sunny in Rome"),
    }
    assert books(alice)[0] == ("completed", "reported", 20, 14)
