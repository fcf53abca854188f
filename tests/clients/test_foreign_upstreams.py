"""Providers that nobody here wrote: what a client sends reaches them whole, what they say comes back whole.

`CLIENT_PROVIDERS=every` has every SDK loop over every protocol of theirs, as `make agents` does.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from billing.models import Usage
from billing.tokens import estimate
from tests.clients.foreign import aimock, fakellm
from tests.clients.sdks import SDKS
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize
from tests.stage.shelf import make_model, make_provider

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "é\u2028 the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "x-own": [1.5, None, True]},
        "strict": True,
    },
}
ASKED: Any = [{"role": "user", "content": "weather in Oslo and Rome?"}]
CITIES = ['{"city": "Oslo"}', '{"city": "Rome"}']
SUNNY = "Sunny in both places, all day long: 20° ☀️"
PICTURE: Any = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "what is in this picture?", "a_new_field": {"deep": [1, 2]}},
            {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg==", "detail": "low"},
            },
        ],
        "name": "ann",
        "cache_control": {"type": "ephemeral"},
    }
]
FIXTURES = {
    "fixtures": [
        {
            "match": {"userMessage": "weather in Oslo", "hasToolResult": False},
            "response": {
                "toolCalls": [{"name": "weather", "arguments": city} for city in CITIES],
                "usage": {"prompt_tokens": 50, "completion_tokens": 30, "total_tokens": 80},
            },
        },
        {
            "match": {"userMessage": "weather in Oslo", "hasToolResult": True},
            "response": {
                "content": SUNNY,
                "usage": {"prompt_tokens": 90, "completion_tokens": 12, "total_tokens": 102},
            },
        },
        {
            "match": {"userMessage": "picture"},
            "response": {
                "content": "A cat.",
                "usage": {"prompt_tokens": 321, "completion_tokens": 7, "total_tokens": 328},
            },
        },
        {
            "match": {"userMessage": "too fast"},
            "response": {"error": {"message": "Slow down", "type": "rate_limit_error"}, "status": 429},
        },
    ]
}
RULES = {
    "version": 1,
    "rules": [
        {"name": "told", "when": {"tool_result_contains": "sunny"}, "respond": {"content": SUNNY}},
        {
            "name": "asked",
            "when": {"messages_contain": "weather in Oslo", "tools_include": "weather"},
            "respond": {"tool_calls": [{"name": "weather", "arguments": json.loads(city)} for city in CITIES]},
        },
        {"name": "fast", "when": {"messages_contain": "too fast"}, "respond": {"status": 429, "error": "Slow down"}},
    ],
}


class Foreign:
    """An upstream, the model it offers, and a gateway with Alice's key for it."""

    def __init__(self, name: str, url: str, gateway: Gateway) -> None:
        self.name = name
        self.url = url
        self.gateway = gateway

    def model(self, protocol: str = "openai_chat") -> str:
        """Puts the upstream's model on the shelf, in one of its protocols, and has it forget earlier conversations."""
        self.forget()
        base_url = f"{self.url}/{'v1beta' if protocol == 'google_gemini' else 'v1'}"
        slug = make_model(
            make_provider(base_url, secret="sk-foreign-0123456789", protocol=protocol), "gpt-of-theirs"
        ).slug
        synchronize(self.gateway)
        return slug

    def forget(self) -> None:
        """Has it forget earlier conversations: one of them knows a conversation by how it began."""
        if self.name == "fakellm":
            httpx.post(f"{self.url}/_fakellm/reset", trust_env=False).raise_for_status()

    def client(self, tenant: Tenant) -> OpenAI:
        """The official SDK, pointed at the gateway."""
        return OpenAI(base_url=f"{self.gateway.url}/v1", api_key=tenant.secret, max_retries=0)

    def journal(self) -> list[dict[str, Any]]:
        """What the upstream was sent: headers and body of each request."""
        found: list[dict[str, Any]] = httpx.get(f"{self.url}/__aimock/journal", trust_env=False).json()
        return found


@pytest.fixture(scope="module")
def upstreams(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Foreign]]:
    """Both of them, behind one gateway."""
    scratch = tmp_path_factory.mktemp("foreign")
    fixtures, rules = scratch / "fixtures.json", scratch / "rules.json"  # JSON is YAML, too
    fixtures.write_text(json.dumps(FIXTURES))
    rules.write_text(json.dumps(RULES))
    with (
        aimock(fixtures, scratch) as one,
        fakellm(rules, scratch) as other,
        running(scratch / "gateway", EGRESS_ALLOW=f"{one},{other}") as (gateway,),
    ):
        yield {"aimock": Foreign("aimock", one, gateway), "fakellm": Foreign("fakellm", other, gateway)}


@pytest.fixture(params=["aimock", "fakellm"])
def foreign(request: pytest.FixtureRequest, upstreams: dict[str, Foreign]) -> Foreign:
    """Each of them in turn."""
    return upstreams[request.param]


def test_a_loop_of_tools_ends(foreign: Foreign, alice: Tenant) -> None:
    model = foreign.model()
    with foreign.client(alice) as client:
        asked = client.chat.completions.create(model=model, messages=ASKED, tools=[WEATHER])
        message = asked.choices[0].message
        calls: Any = message.tool_calls
        assert asked.choices[0].finish_reason == "tool_calls"
        assert [(call.function.name, call.function.arguments) for call in calls] == [("weather", c) for c in CITIES]
        results: Any = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in calls]
        rest = [*ASKED, message.model_dump(exclude_none=True), *results]
        told = client.chat.completions.create(model=model, messages=rest, tools=[WEATHER])
        assert told.choices[0].message.content == SUNNY
    usages = {usage.id.hex: usage for usage in Usage.objects.filter(organization=alice.organization.id)}
    for answer in (asked, told):
        assert answer.usage is not None
        row = usages[answer.id]
        assert (row.prompt_tokens, row.completion_tokens) == (
            answer.usage.prompt_tokens,
            answer.usage.completion_tokens,
        )
        assert (row.status, row.basis) == ("completed", "reported")


def test_tool_calls_are_streamed_piece_by_piece(foreign: Foreign, alice: Tenant) -> None:
    model = foreign.model()
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    with foreign.client(alice) as client:
        chunks = list(client.chat.completions.create(model=model, messages=ASKED, tools=[WEATHER], stream=True))
    for chunk in chunks:
        for part in chunk.choices[0].delta.tool_calls or []:
            assert part.function is not None
            if part.function.name:
                assert part.index not in names
                names[part.index] = part.function.name
            arguments[part.index] = arguments.get(part.index, "") + (part.function.arguments or "")
    assert names == {0: "weather", 1: "weather"}
    assert arguments == dict(enumerate(CITIES))
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "tool_calls"
    usage = Usage.objects.get(id=chunks[0].id)
    assert usage.status == "completed"
    # One of them counts for its stream, the other does not.
    if foreign.name == "aimock":
        assert usage.basis == "reported"
    else:
        assert (usage.basis, usage.completion_tokens) == ("estimated", estimate(len("".join(CITIES))))


def test_text_is_streamed_as_it_is(foreign: Foreign, alice: Tenant) -> None:
    model = foreign.model()
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": CITIES[0]}}
    told: Any = [
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    with foreign.client(alice) as client:
        chunks = list(client.chat.completions.create(model=model, messages=told, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SUNNY
    assert sum(bool(chunk.choices[0].delta.content) for chunk in chunks) > 1


def test_an_error_of_theirs_is_the_clients_rate_limit(foreign: Foreign, alice: Tenant) -> None:
    model = foreign.model()
    fast: Any = [{"role": "user", "content": "too fast"}]
    for stream in (False, True) if foreign.name == "aimock" else (False,):
        with foreign.client(alice) as client, pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(model=model, messages=fast, stream=stream)
        assert refused.value.code == "upstream_rate_limited"
    for usage in Usage.objects.filter(model=model):
        assert (usage.status, usage.basis, usage.attempts) == ("failed", "nothing", 1)


@pytest.mark.parametrize("foreign", ["aimock"], indirect=True)  # fakellm does not tell what it was sent
def test_what_a_client_sends_arrives_untouched(foreign: Foreign, alice: Tenant) -> None:
    model = foreign.model()
    strange = {"a_new_field": {"deep": [1, None, {"x": 1.5}]}, "top_k": 40, "reasoning": {"effort": "low"}}
    sent: Any = {"messages": PICTURE, "tools": [WEATHER], "tool_choice": "none", "logit_bias": {"50256": -100}}
    with foreign.client(alice) as client:
        for stream in (False, True):
            answer: Any = client.chat.completions.create(model=model, **sent, extra_body=strange, stream=stream)
            if stream:
                assert "".join(chunk.choices[0].delta.content or "" for chunk in answer) == "A cat."
            else:
                assert answer.choices[0].message.content == "A cat."
    whole, streamed = foreign.journal()[-2:]
    expected = {"model": "gpt-of-theirs", **sent, **strange}
    body = {name: value for name, value in whole["body"].items() if name != "_endpointType"}  # aimock's own note
    assert body == {**expected, "stream": False}
    body = {name: value for name, value in streamed["body"].items() if name != "_endpointType"}
    assert body == {**expected, "stream": True, "stream_options": {"include_usage": True}}
    for entry in (whole, streamed):
        assert entry["path"] == "/v1/chat/completions"
        assert alice.secret not in json.dumps(entry)
    for usage in Usage.objects.filter(model=model):
        assert (usage.prompt_tokens, usage.completion_tokens, usage.basis) == (321, 7, "reported")


PROTOCOLS = {
    "aimock": ("openai_chat", "openai_responses", "anthropic_messages", "google_gemini"),
    "fakellm": ("openai_chat", "anthropic_messages"),
}
SURFACES = [(name, protocol) for name, protocols in PROTOCOLS.items() for protocol in protocols]
EVERY = os.environ.get("CLIENT_PROVIDERS") == "every"
# Every SDK, and every protocol of each upstream; every SDK over every protocol where that is asked for.
TRIED = [
    pytest.param(*surface, sdk, id="-".join((sdk, *surface)))
    for number, surface in enumerate(SURFACES)
    for sdk in (SDKS if EVERY else [list(SDKS)[number % len(SDKS)]])
]


@pytest.mark.filterwarnings("ignore:FUNCTION_CALL is not a valid")  # aimock ends Google's calls with this word
@pytest.mark.parametrize(("foreign", "protocol", "sdk"), TRIED, indirect=["foreign"])
def test_every_sdk_loops_over_every_protocol_of_theirs(
    foreign: Foreign, protocol: str, sdk: str, alice: Tenant
) -> None:
    """Two calls, their results and a text, whole and streamed; each answer is on the books as the client is told."""
    model = foreign.model(protocol)
    told = []
    for stream in (False, True):
        foreign.forget()
        conversation = SDKS[sdk](foreign.gateway.url, alice.secret, model)
        asked = conversation.ask(stream=stream)
        calls = [(name, json.loads(given) if type(given) is str else given) for name, given in asked.calls]
        assert calls == [("weather", json.loads(city)) for city in CITIES]
        conversation.give("sunny")
        answer = conversation.ask(stream=stream)
        assert (answer.text, answer.calls) == (SUNNY, [])
        told += [asked.usage, answer.usage]
    rows = Usage.objects.filter(organization=alice.organization.id).order_by("created_at")
    assert [(row.prompt_tokens, row.completion_tokens) for row in rows] == told
    assert {row.status for row in rows} == {"completed"}
    if foreign.name == "aimock":
        assert told == [(50, 30), (90, 12)] * 2
        assert {row.basis for row in rows} == {"reported"}
