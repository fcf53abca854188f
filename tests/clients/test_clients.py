"""Clients that nobody here wrote get exact answers through the gateway, and the books hold what they are told."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from billing.models import Usage
from tests.clients.program import Program, started
from tests.protocols.openai_chat.answers import DONE, chunk, usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider

SAID = "good day to you"
CLIENTS = ["openai_node.mjs", pytest.param("ai_sdk.mjs", marks=pytest.mark.slow), "langchain_openai_chat", "llm_chat"]


class Client:
    """A client's program, and the model that it asks."""

    def __init__(self, program: Program, simulated: SimulatedProvider, model: str, tenant: Tenant) -> None:
        self._program = program
        self._simulated = simulated
        self._model = model
        self._tenant = tenant
        self._booked = 0

    def told(self, case: str, does: str) -> dict[str, Any]:
        """What the program prints of a case while the model `does` so."""
        self._simulated.behave(self._model, does)
        return self._program.does(case)

    def books(self) -> list[tuple[str, str, int, int]]:
        """What the requests since the last look were, in the order they came."""
        rows = Usage.objects.filter(organization=self._tenant.organization.id).order_by("created_at")
        news = list(rows.values_list("status", "basis", "prompt_tokens", "completion_tokens"))[self._booked :]
        self._booked += len(news)
        return news


@pytest.mark.parametrize("client", CLIENTS)
def test_every_case(client: str, gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, tmp_path: Path) -> None:
    """One program for all cases: to start some of them takes longer than all that they do."""
    model = make_model(make_provider(simulated.base_url), f"sim-{alice.organization.slug}")
    named = model.offers.get().upstream_model
    synchronize(gateway)
    tool_url = f"{simulated.url}/control/model/{named}"
    with started(client, model.slug, tool_url, gateway, alice, tmp_path) as program:
        asking = Client(program, simulated, named, alice)
        chats(asking)
        streams(asking)
        asks_for_a_shape(asking)
        for case in ("loop", "streamed_loop"):
            calls_a_tool(asking, case)
            runs_calls_that_are_numbered_with_holes(asking, case, simulated)


def chats(client: Client) -> None:
    answer = client.told("chat", f"text={quote(SAID)}&prompt=11")
    assert (answer["text"], answer["usage"]) == (SAID, [11, 4])
    assert client.books() == [("completed", "reported", 11, 4)]


def streams(client: Client) -> None:
    answer = client.told("stream", f"text={quote(SAID)}&prompt=11")
    assert answer["pieces"] == ["good", " day", " to", " you"]
    assert (answer["text"], answer["usage"]) == (SAID, [11, 4])
    assert client.books() == [("completed", "reported", 11, 4)]


def asks_for_a_shape(client: Client) -> None:
    """The model says the request that it was sent, which has the shape that was asked for."""
    answer = client.told("schema", "echo&prompt=11")
    asked = json.loads(answer["text"])
    assert asked["response_format"]["type"] == "json_schema"
    shape = asked["response_format"]["json_schema"]["schema"]
    assert (shape["type"], list(shape["properties"]), shape["required"]) == ("object", ["model"], ["model"])
    assert shape["properties"]["model"]["type"] == "string"
    assert answer["object"] == {"model": asked["model"]}
    words = len(answer["text"].split())
    assert answer["usage"] == [11, words]
    assert client.books() == [("completed", "reported", 11, words)]


def calls_a_tool(client: Client, case: str) -> None:
    """The model asks for the weather; the tool has it say, from then on, the request that it was sent."""
    answer = client.told(case, "tools=1&prompt=11")
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
    assert client.books() == [("completed", "reported", 11, 3), ("completed", "reported", 11, words)]
    assert answer["usage"] == [22, 3 + words]
    if case == "streamed_loop":
        assert "".join(answer["pieces"]) == answer["text"]
        assert len(answer["pieces"]) > 1


def runs_calls_that_are_numbered_with_holes(client: Client, case: str, simulated: SimulatedProvider) -> None:
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
    answer = client.told(case, simulated.script("holes", upstream))
    *_, said, first, second = json.loads(answer["text"].removeprefix("Looking."))["messages"]
    assert [(made["id"], json.loads(made["function"]["arguments"])) for made in said["tool_calls"]] == [
        ("call_s1", {"city": "Oslo"}),
        ("call_s4", {"city": "Rome"}),
    ]
    assert {(result["tool_call_id"], result["content"]) for result in (first, second)} == {
        ("call_s1", "sunny in Oslo"),
        ("call_s4", "sunny in Rome"),
    }
    assert client.books()[0] == ("completed", "reported", 20, 14)
