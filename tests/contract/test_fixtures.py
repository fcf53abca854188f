"""The examples that clients were written from, in shape, through the running gateway: what goes in and what comes out.

The upstream says what a provider of that shape would; the answer is compared with what the documents show.
"""

import json
from typing import Any

import pytest

from tests.protocols.openai_chat.answers import DONE, chunk, event, shown, usage, whole
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.playing import Play, player
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider
from tests.stage.speech import ALL, error, nothing_happened, speak

JSON = "application/json"
SIGNED, SEALED = "anthropic-claude-v1", "openai-responses-v1"
TOOL = {
    "type": "function",
    "function": {
        "name": "tide_at",
        "description": "Height of the tide in metres",
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {"port": {"type": "string"}},
            "required": ["port"],
            "additionalProperties": False,
        },
    },
}
CALL = {"id": "call_7", "type": "function", "function": {"name": "tide_at", "arguments": '{"port":"Brest"}'}}
THOUGHT = {
    "type": "reasoning.text",
    "text": "The tide at Brest is needed.",
    "signature": "c2lnbmF0dXJlIG92ZXIgZXZlcnkgYnl0ZQ==",
    "format": SIGNED,
    "index": 0,
}


@pytest.fixture
def play(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> Play:
    """Has an upstream say exact bytes to one request of Alice's."""
    return player(gateway, alice, simulated)


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Any:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


def heard_back(gateway: Gateway, tenant: Tenant, provider: Any, /, **body: Any) -> Any:
    """What a provider gets of a request."""
    model = make_model(provider, "sim-small?echo")
    synchronize(gateway)
    answer = gateway.chat(tenant.secret, model.slug, **body)
    assert answer.status_code == 200, answer.text
    return json.loads(answer.json()["choices"][0]["message"]["content"]) | {"model": model.slug}


# --- whole answers --------------------------------------------------------------------------------------------------


@pytest.mark.row("B204", "B205", "B206", "B207", "B210", "B216", "B218", "B219", "B220", "B221", "B222", "B224")
@pytest.mark.row("B057", "B229", "B235", "B236")
@pytest.mark.parametrize("dialect", ["standard", "zenmux"])
def test_an_answer_with_a_summary_and_a_sealed_thought(alice: Tenant, play: Play, dialect: str) -> None:
    speak(alice, dialect)
    summary = {"index": "0", "format": SEALED, "type": "reasoning.summary", "summary": "A small prime will do."}
    sealed = {"id": "rs_9b", "index": "0", "format": SEALED, "type": "reasoning.encrypted", "data": "Z0FBQUFBQm8="}
    said = whole(
        {"role": "assistant", "content": "13", "reasoning": summary["summary"], "reasoning_details": [summary, sealed]},
        logprobs={"content": [], "refusal": None},
        usage={
            "prompt_tokens": 12,
            "completion_tokens": 45,
            "total_tokens": 57,
            "completion_tokens_details": {"reasoning_tokens": 40},
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        service_tier="default",
    )
    heard = play(said, body={"stream": False}, content_type=JSON)
    body = heard.response.json()
    assert body == {
        "id": heard.usage.id.hex,
        "object": "chat.completion",
        "created": body["created"],
        "model": heard.usage.model,
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "logprobs": None,
                "message": {
                    "role": "assistant",
                    "content": "13",
                    "refusal": None,
                    "annotations": [],
                    "reasoning": "A small prime will do.",
                    "reasoning_content": "A small prime will do.",
                    "reasoning_details": [summary | {"index": 0}, sealed | {"index": 0}],
                },
            }
        ],
        "usage": shown(12, 45, reasoning_tokens=40),
        "service_tier": "default",
    }
    assert abs(body["created"] - heard.usage.created_at.timestamp()) < 60
    assert heard.response.headers["x-generation-id"] == body["id"]


@pytest.mark.row("B134", "B224", "B225")
def test_an_answer_with_a_citation(play: Play) -> None:
    cited = {"title": "Harbour office", "url": "https://example.org/tides", "start_index": 0, "end_index": 12}
    annotations = [{"type": "url_citation", "url_citation": cited}]
    said = whole({"role": "assistant", "content": "High at noon.", "annotations": annotations})
    body = play(said, body={"stream": False, "web_search_options": {}}, content_type=JSON).response.json()
    assert body["choices"][0]["message"]["annotations"] == annotations


@pytest.mark.row("B092", "B093", "B230", "B231", "B232")
def test_an_answer_with_log_probabilities(play: Play) -> None:
    near = {"token": "No", "logprob": -0.02, "bytes": [78, 111]}
    far = {"token": "<y>", "logprob": -9999.0, "bytes": None}
    logprobs = {"content": [near | {"top_logprobs": [near, far]}], "refusal": None}
    said = whole({"role": "assistant", "content": "No"}, logprobs=logprobs)
    asked = {"stream": False, "logprobs": True, "top_logprobs": 5}
    assert play(said, body=asked, content_type=JSON).response.json()["choices"][0]["logprobs"] == logprobs


@pytest.mark.row("B196", "B197", "B198", "B199", "B200")
def test_an_answer_to_a_schema(gateway: Gateway, alice: Tenant, provider: Any, play: Play) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "river": {"type": "string"}},
        "required": ["name", "river"],
        "additionalProperties": False,
    }
    card = {"name": "town_card", "description": "Facts of a town", "strict": True, "schema": schema}
    asked = {"response_format": {"type": "json_schema", "json_schema": card}}
    text = '{"name":"Bern","river":"Aare"}'
    said = whole({"role": "assistant", "content": text})
    body = play(said, body={"stream": False, **asked}, content_type=JSON).response.json()
    assert body["choices"][0]["message"]["content"] == text
    assert heard_back(gateway, alice, provider, **asked)["response_format"] == asked["response_format"]


# --- tools over two turns -------------------------------------------------------------------------------------------


@pytest.mark.row("B115", "B118", "B119", "B120", "B128", "B217", "B223", "B228")
def test_a_first_turn_that_calls_a_tool(play: Play) -> None:
    said = whole(
        {"role": "assistant", "content": None, "reasoning_details": [THOUGHT], "tool_calls": [CALL]},
        "tool_calls",
        usage={"prompt_tokens": 290, "completion_tokens": 48, "total_tokens": 338},
    )
    wishes = {"tool_choice": "auto", "parallel_tool_calls": True, "reasoning": {"enabled": True, "effort": "medium"}}
    heard = play(said, body={"stream": False, "tools": [TOOL], **wishes}, content_type=JSON)
    (choice,) = heard.response.json()["choices"]
    assert choice == {
        "index": 0,
        "finish_reason": "tool_calls",
        "logprobs": None,
        "message": {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "annotations": [],
            "reasoning": THOUGHT["text"],
            "reasoning_content": THOUGHT["text"],
            "reasoning_details": [THOUGHT],
            "tool_calls": [CALL],
        },
    }


@pytest.mark.row("B045", "B047", "B051", "B052", "B055", "B056", "B064")
@pytest.mark.parametrize("dialect", ["standard", "zenmux"])
def test_a_second_turn_that_sends_the_thoughts_back(
    gateway: Gateway, alice: Tenant, provider: Any, dialect: str
) -> None:
    speak(alice, dialect)
    thought = THOUGHT | {"text": '今日の潮位が必要です。\n\n- port: "Brest"'}
    messages = [
        {"role": "user", "content": "今日、Brest の潮は?"},
        {
            "role": "assistant",
            "content": "",
            "reasoning": thought["text"],
            "reasoning_details": [thought],
            "tool_calls": [CALL],
        },
        {"role": "tool", "tool_call_id": "call_7", "name": "tide_at", "content": '{"metres":4.2}'},
    ]
    asked = {"messages": messages, "tools": [TOOL], "reasoning": {"enabled": True}, "stream": False}
    heard = heard_back(gateway, alice, provider, **asked)
    assert heard["messages"] == messages
    assert (heard["tools"], heard["reasoning"]) == ([TOOL], {"enabled": True})


@pytest.mark.row("B049", "B265", "B266", "B269")
def test_calls_side_by_side_in_a_stream(play: Play) -> None:
    def call(index: int, **fields: Any) -> bytes:
        return chunk({"tool_calls": [{"index": index, **fields}]})

    name, second = {"id": "call_1", "type": "function"}, {"id": "call_2", "type": "function"}
    opened = [{"index": 0, **name, "function": {"name": "tide_at", "arguments": ""}}]
    heard = play(
        chunk({"role": "assistant", "content": None, "tool_calls": opened})
        + call(0, function={"arguments": '{"port":'})
        + call(0, function={"arguments": '"Brest"}'})
        + call(1, **second, function={"name": "tide_at", "arguments": '{"port":"Ostend"}'})
        + chunk({}, "tool_calls")
        + DONE,
        body={"tools": [TOOL]},
    )
    parts = [part for delta, _ in heard.deltas for part in delta.get("tool_calls", [])]
    made: dict[int, dict[str, str]] = {}
    for part in parts:  # as the documents' own example puts them together: a type begins a call
        if "type" in part:
            assert part["index"] not in made
            made[part["index"]] = {"id": part["id"], "name": part["function"]["name"], "arguments": ""}
        made[part["index"]]["arguments"] += part["function"].get("arguments", "")
    assert made == {
        0: {"id": "call_1", "name": "tide_at", "arguments": '{"port":"Brest"}'},
        1: {"id": "call_2", "name": "tide_at", "arguments": '{"port":"Ostend"}'},
    }
    assert heard.deltas[-1] == ({}, "tool_calls")


# --- streams --------------------------------------------------------------------------------------------------------


@pytest.mark.row("B111", "B251", "B252", "B253", "B254", "B255", "B256", "B257", "B258", "B259", "B260", "B261", "B262")
@pytest.mark.row("B269", "B270", "B277")
def test_a_stream_of_signed_thoughts(alice: Tenant, play: Play) -> None:
    speak(alice, "zenmux")

    def thought(**entry: Any) -> dict[str, Any]:
        return {"type": "reasoning.text", "format": SIGNED, "index": 0, **entry}

    heard = play(
        b": PROCESSING\n\n"
        + chunk({"role": "assistant", "content": ""})
        + chunk({"reasoning": "3+3 ", "reasoning_details": [thought(text="3+3 ")]})
        + chunk({"reasoning": "is 6.", "reasoning_details": [thought(text="is 6.")]})
        + chunk({"reasoning_details": [thought(signature="c2lnLTI=")]})
        + chunk({"content": "6"})
        + chunk({}, "stop")
        + usage(15, 21, completion_tokens_details={"reasoning_tokens": 14})
        + DONE,
        body={"stream_options": {"include_usage": True}, "reasoning": {"enabled": True}},
    )
    assert heard.response.headers["content-type"].startswith("text/event-stream")
    assert heard.deltas == [
        ({"role": "assistant", "content": ""}, None),
        (both("3+3 ", thought(text="3+3 ")), None),
        (both("is 6.", thought(text="is 6.")), None),
        ({"reasoning_details": [thought(signature="c2lnLTI=")]}, None),
        ({"content": "6"}, None),
        ({}, "stop"),
    ]
    *chunks, last, _done = heard.payloads
    assert (last["choices"], last["usage"]) == ([], shown(15, 21, reasoning_tokens=14))
    for made in (*chunks, last):
        assert (made["object"], made["model"]) == ("chat.completion.chunk", heard.usage.model)
    assert len({(made["id"], made["created"]) for made in (*chunks, last)}) == 1


def both(text: str, entry: dict[str, Any]) -> dict[str, Any]:
    """A delta of a thought under its three names."""
    return {"reasoning": text, "reasoning_content": text, "reasoning_details": [entry]}


@pytest.mark.row("B109", "B112", "B236", "B243", "B244", "B245", "B246", "B267", "B268", "B270")
@pytest.mark.parametrize("stream", [True, False, None])
def test_a_stream_that_nobody_asked_for(alice: Tenant, play: Play, stream: bool | None) -> None:
    speak(alice, "ezrouter")
    heard = play(
        chunk({"role": "assistant", "content": ""}, system_fingerprint="fp_1")
        + chunk({"content": "OK"})
        + chunk({}, "stop")
        + usage(28, 4)
        + DONE,
        body={"stream": stream, "max_tokens": 10},
    )
    *chunks, last, done = heard.payloads
    assert done == "[DONE]"
    same = {"id": heard.usage.id.hex, "object": "chat.completion.chunk", "created": last["created"]}
    same |= {"model": heard.usage.model, "system_fingerprint": None}
    deltas = [({"role": "assistant", "content": ""}, None), ({"content": "OK"}, None), ({}, "stop")]
    assert chunks == [
        {
            **same,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
            "usage": None,
        }
        for delta, finish in deltas
    ]
    cache = {"claude_cache_creation_5_m_tokens": 0, "claude_cache_creation_1_h_tokens": 0}
    names = {"usage_semantic": "openai", "usage_source": "openai"}
    assert last == {**same, "choices": [], "usage": shown(28, 4) | names | cache}


@pytest.mark.row("B239", "B242", "B245", "B247")
@pytest.mark.parametrize("dialect", ALL)
def test_usage_with_a_cache_read_and_written(alice: Tenant, play: Play, dialect: str) -> None:
    speak(alice, dialect)
    counted = {"cached_tokens": 700, "ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 0}
    heard = play(
        chunk({"role": "assistant", "content": "Yes."})
        + chunk({}, "stop")
        + usage(1000, 25, prompt_tokens_details=counted, usage_source="acme")
        + DONE,
        body={"stream_options": {"include_usage": True}},
    )
    buckets = counted | {"cache_creation_input_tokens": 200, "cache_write_tokens": 200}
    extras = {
        "usage_semantic": "openai",
        "usage_source": "acme",
        "claude_cache_creation_5_m_tokens": 200,
        "claude_cache_creation_1_h_tokens": 0,
    }
    assert heard.reported == [shown(1000, 25, **buckets) | (extras if dialect == "ezrouter" else {})]


@pytest.mark.row("B163", "B273", "B292")
def test_a_stream_that_breaks_midway(alice: Tenant, play: Play) -> None:
    speak(alice, "zenmux")
    heard = play(
        chunk({"role": "assistant", "content": "Half a sen"})
        + event({"error": {"code": 500, "type": "server_error", "message": "gpu-7.internal is gone"}})
    )
    assert heard.payloads[0]["choices"][0]["delta"]["content"] == "Half a sen"
    *_, last = heard.payloads
    assert last == {
        "error": {
            "code": "500",
            "type": "provider_api_error",
            "message": "The provider failed.",
            "request_id": heard.response.headers["x-request-id"],
        }
    }


# --- wishes for the route -------------------------------------------------------------------------------------------


@pytest.mark.row("B140", "B141", "B143", "B147", "B150", "B168", "B171", "B172", "B173", "B174")
@pytest.mark.parametrize("dialect", ["standard", "zenmux"])
@pytest.mark.parametrize(
    "wishes",
    [
        {
            "routing": {"type": "priority", "primary_factor": "cost", "providers": ["PROVIDER", "SECOND"]},
            "fallback": "true",
        },
        {"routing": {"type": "order", "providers": ["PROVIDER/one", "SECOND/two"]}, "fallback": "MODEL"},
        {"routing": {"type": "priority", "primary_factor": "latency"}},
        {"fallback": "MODEL"},
    ],
)
def test_wishes_in_both_vocabularies_are_taken(
    gateway: Gateway, alice: Tenant, provider: Any, simulated: SimulatedProvider, dialect: str, wishes: dict[str, Any]
) -> None:
    speak(alice, dialect)
    second = make_provider(simulated.base_url)
    spare, further = make_model(second), make_model(second)
    pool = {
        "available_models": [spare.slug, further.slug],
        "preference": "price",
        "task_info": {"task_type": "chat", "complexity": "low", "additional_properties": {"team": "qa"}},
        "additional_properties": {},
    }
    said = json.dumps(wishes)
    for name, slug in (("PROVIDER", provider.slug), ("SECOND", second.slug), ("MODEL", spare.slug)):
        said = said.replace(name, slug)
    heard = heard_back(gateway, alice, provider, provider=json.loads(said), model_routing_config=pool)
    assert heard.keys() == {"model", "messages"}


@pytest.mark.row("B142", "B149", "B281")
def test_wrong_wishes_are_refused_to_the_letter(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    speak(alice, "zenmux")
    model = make_model(provider)
    synchronize(gateway)
    for routing, word in (({"type": "best"}, "type"), ({"type": "order", "providers": []}, "providers")):
        answer = gateway.chat(alice.secret, model.slug, provider={"routing": routing})
        assert (answer.status_code, error(answer)["type"]) == (400, "invalid_params")
        assert error(answer)["message"] == f"Parameter {word} of provider.routing is not valid"
    assert nothing_happened(alice)
