"""The surfaces of other protocols than chat, and what providers that speak them are sent."""

import json
from typing import Any

import pytest

from routing.models import Model
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.protocols import CONTENTS, HI, Provider, generate, message, post, respond
from tests.stage.shelf import make_model, make_provider

CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "42"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
PICTURE = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture
def echo(simulated: SimulatedProvider) -> Model:
    """A model of a chat provider, which says the body it was sent."""
    return make_model(make_provider(simulated.base_url), "sim-small?echo")


def echoed(answer: Any) -> dict[str, Any]:
    """What the chat provider behind a Messages answer was sent."""
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = json.loads(answer.json()["content"][0]["text"])
    return body


def events(answer: Any) -> list[dict[str, Any]]:
    """The data of a stream's events."""
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


def turn(*details: dict[str, Any]) -> list[dict[str, Any]]:
    """A conversation whose second turn called a tool after these thoughts."""
    return [*HI, {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_details": [*details]}, RESULT]


# --- what providers are sent


@pytest.mark.row("B058")
def test_a_signed_thought_stands_before_the_turns_calls(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "anthropic_messages", max_output=8000)
    thought = {"type": "reasoning.text", "text": "hm", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0}
    synchronize(gateway)
    said = {"messages": turn(thought), "tools": [TOOL], "reasoning": {"max_tokens": 2000}}
    assert gateway.chat(alice.secret, provider.model.slug, **said).status_code == 200
    first, second, *_ = provider.sent["messages"][1]["content"]
    assert first == {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    assert (second["type"], second["name"]) == ("tool_use", "f")


@pytest.mark.row("B059")
def test_a_signature_is_replayed_on_its_part(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    provider = Provider(simulated, "google_gemini")
    sealed = {"type": "reasoning.encrypted", "data": "c2ln", "id": "call_1", "format": "google-gemini-v1", "index": 0}
    synchronize(gateway)
    answer = gateway.chat(alice.secret, provider.model.slug, messages=turn(sealed), tools=[TOOL])
    assert answer.status_code == 200
    (part,) = provider.sent["contents"][1]["parts"]
    assert (part["functionCall"]["name"], part["thoughtSignature"]) == ("f", "c2ln")


@pytest.mark.row("B060")
def test_an_encrypted_thought_is_a_reasoning_item(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "openai_responses")
    sealed = {"type": "reasoning.encrypted", "data": "c2ln", "id": "rs_1", "format": "openai-responses-v1", "index": 0}
    synchronize(gateway)
    said = {"messages": turn(sealed), "tools": [TOOL], "reasoning_effort": "low"}
    assert gateway.chat(alice.secret, provider.model.slug, **said).status_code == 200
    (item,) = (item for item in provider.sent["input"] if item.get("type") == "reasoning")
    assert item["encrypted_content"] == "c2ln"
    assert "reasoning.encrypted_content" in provider.sent["include"]


@pytest.mark.row("B062")
def test_a_turn_that_lost_its_signature_does_not_think_and_says_so(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "anthropic_messages", max_output=8000)
    synchronize(gateway)
    answer = gateway.chat(
        alice.secret, provider.model.slug, messages=turn(), tools=[TOOL], reasoning={"max_tokens": 2000}
    )
    assert (answer.status_code, answer.headers["x-gateway-ignored-params"]) == (200, "reasoning")
    assert "thinking" not in provider.sent


@pytest.mark.row("B062")
def test_a_strict_project_is_refused_a_turn_that_lost_its_signature(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    """Whether such a turn is answered without a thought or refused is the project's setting."""
    provider = Provider(simulated, "anthropic_messages", max_output=8000)
    alice.project.strict_params = True
    alice.project.save()
    synchronize(gateway)
    said: dict[str, Any] = {"messages": turn(), "tools": [TOOL]}
    refused = gateway.chat(alice.secret, provider.model.slug, **said, reasoning={"max_tokens": 2000})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (400, "reasoning", "unsupported_parameter")
    with pytest.raises(ValueError, match="asked"):
        print(provider.sent)
    assert gateway.chat(alice.secret, provider.model.slug, **said).status_code == 200


@pytest.mark.row("B080")
def test_a_cap_is_always_named(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    provider = Provider(simulated, "anthropic_messages", max_output=777)
    synchronize(gateway)
    assert gateway.chat(alice.secret, provider.model.slug).status_code == 200
    assert provider.sent["max_tokens"] == 777


@pytest.mark.row("B127")
def test_one_call_at_a_time_needs_no_choice(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    provider = Provider(simulated, "anthropic_messages")
    synchronize(gateway)
    gateway.chat(alice.secret, provider.model.slug, tools=[TOOL], parallel_tool_calls=False)
    assert provider.sent["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


@pytest.mark.row("B129")
def test_a_forced_tool_and_thinking_are_refused(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    provider = Provider(simulated, "anthropic_messages", max_output=8000)
    synchronize(gateway)
    said = {"tools": [TOOL], "tool_choice": "required", "reasoning": {"max_tokens": 2000}}
    refused = gateway.chat(alice.secret, provider.model.slug, **said)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice")


@pytest.mark.row("B191")
@pytest.mark.parametrize(("wish", "budget"), [(5000, 1999), (1025, 1025), (10, 1024)])
def test_a_budget_is_made_to_fit(
    wish: int, budget: int, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "anthropic_messages", max_output=8000)
    synchronize(gateway)
    said = {"reasoning": {"max_tokens": wish}, "max_tokens": 2000, "temperature": 0.5}
    answer = gateway.chat(alice.secret, provider.model.slug, **said)
    assert (answer.status_code, answer.headers["x-gateway-ignored-params"]) == (200, "temperature")
    assert provider.sent["thinking"]["budget_tokens"] == budget
    assert "temperature" not in provider.sent


@pytest.mark.row("B202")
def test_json_is_asked_for_in_the_providers_own_form(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "anthropic_messages")
    synchronize(gateway)
    gateway.chat(alice.secret, provider.model.slug, response_format={"type": "json_object"})
    (tool,) = provider.sent["tools"]
    assert (tool["name"], provider.sent["tool_choice"]) == ("answer_in_json", {"type": "tool", "name": tool["name"]})


# --- Messages


@pytest.mark.row("B017", "B339")
@pytest.mark.parametrize("base", ["/v1", "/anthropic/v1", "/api/anthropic/v1"])
def test_paths_and_headers_of_messages(
    base: str, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "anthropic_messages")
    synchronize(gateway)
    headers = {
        "x-api-key": alice.secret,
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "some-2025-08-07, other-2026-01-01",
    }
    body = {"model": provider.model.slug, "max_tokens": 50, "messages": HI}
    assert gateway.client.post(f"{base}/messages", json=body, headers=headers).status_code == 200
    assert provider.fields["anthropic-version"] == "2023-06-01"
    assert provider.fields["anthropic-beta"] == "some-2025-08-07,other-2026-01-01"


@pytest.mark.row("B340", "B341", "B342", "B343", "B344", "B296")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1000}}, "thinking.budget_tokens"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
        ({"output_config": {"format": {"type": "xml", "schema": {}}}}, "output_config.format.type"),
    ],
)
def test_what_is_out_of_range_is_told_in_their_form(
    fields: dict[str, Any], param: str, gateway: Gateway, alice: Tenant, echo: Model
) -> None:
    synchronize(gateway)
    refused = message(gateway, alice, echo, **fields)
    body = refused.json()
    assert (refused.status_code, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")
    assert (body["error"]["param"], body["request_id"]) == (param, refused.headers["x-request-id"])


@pytest.mark.row("B342", "B343", "B344", "B345")
def test_what_a_message_asks_for_reaches_a_chat_provider(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    Model.objects.filter(id=echo.id).update(
        supported_parameters=["tools", "tool_choice", "parallel_tool_calls", "response_format", "thinking", "user"]
    )
    synchronize(gateway)
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    choice = {"type": "any", "disable_parallel_tool_use": True}
    sent = echoed(message(gateway, alice, echo, tools=tools, tool_choice=choice))
    assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ("required", False)
    thinking = {"type": "enabled", "budget_tokens": 1024}
    sent = echoed(message(gateway, alice, echo, thinking=thinking, max_tokens=2000))
    assert sent["thinking"]["budget_tokens"] == 1024
    sent = echoed(message(gateway, alice, echo, output_config={"format": {"type": "json_schema", "schema": SCHEMA}}))
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    sent = echoed(message(gateway, alice, echo, metadata={"user_id": "u-1"}, service_tier="standard_only"))
    assert sent["user"] == "u-1"


@pytest.mark.row("B346")
def test_usage_of_a_message_is_in_their_buckets(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=30&cached=10")
    synchronize(gateway)
    usage = message(gateway, alice, model).json()["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (20, 10, 3)
    assert usage["cache_creation"] == {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}


@pytest.mark.row("B347", "B349")
def test_a_stream_of_a_message_has_their_events(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&reasoning=2")
    synchronize(gateway)
    told = events(message(gateway, alice, model, stream=True))
    kinds = [event["type"] for event in told]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert kinds.count("message_start") == 1
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert told[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert told[-2]["usage"]["output_tokens"] == 5 and "usage" not in told[-2]["delta"]


@pytest.mark.row("B348")
def test_a_thoughts_signature_comes_before_its_block_ends(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "anthropic_messages", plays="thinking_tool.sse")
    synchronize(gateway)
    told = events(message(gateway, alice, provider.model, stream=True))
    deltas = [event.get("delta", {}).get("type", event["type"]) for event in told]
    signed = deltas.index("signature_delta")
    assert (deltas[signed - 1], deltas[signed + 1]) == ("thinking_delta", "content_block_stop")


@pytest.mark.row("B137")
def test_a_search_of_a_message_is_a_search_elsewhere(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    Model.objects.filter(id=echo.id).update(supported_parameters=["web_search_options"])
    synchronize(gateway)
    for kind in ("web_search_20250305", "web_search_20260209"):
        sent = echoed(message(gateway, alice, echo, tools=[{"type": kind, "name": "web_search"}]))
        assert "web_search_options" in sent


@pytest.mark.row("B138")
def test_a_search_that_failed_is_told_in_the_answer(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    error = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    failed = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": error}
    asked = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    content = [asked, failed, {"type": "text", "text": "Nothing."}]
    said: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
    said |= {"stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 3}}
    provider = Provider(simulated, "anthropic_messages", "web_search", "tools", plays=said)
    synchronize(gateway)
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    answer = message(gateway, alice, provider.model, tools=tools)
    assert (answer.status_code, answer.json()["content"]) == (200, content)


@pytest.mark.row("B350")
def test_tokens_of_a_message_are_counted(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    synchronize(gateway)
    for base in ("/v1", "/anthropic/v1", "/api/anthropic/v1"):
        counted = post(gateway, alice, f"{base}/messages/count_tokens", model=echo.slug, messages=HI)
        assert (counted.status_code, counted.json()["input_tokens"] > 0) == (200, True)


# --- Responses


@pytest.mark.row("B351", "B354")
def test_what_a_response_asks_for(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=30&cached=10")
    synchronize(gateway)
    answer = respond(
        gateway, alice, model, instructions="Be brief.", max_output_tokens=50, text={"verbosity": "low"}, store=True,
        include=["reasoning.encrypted_content"], prompt_cache_key="k", safety_identifier="u", metadata={"a": "b"},
        tools=[{"type": "function", "name": "f", "parameters": {"type": "object"}}], tool_choice="none",
        reasoning={"effort": "low", "summary": "auto"}, truncation="disabled",
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["object"], body["status"], body["model"]) == ("response", "completed", model.slug)
    usage = body["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (30, 3, 33)
    assert (usage["input_tokens_details"]["cached_tokens"], usage["output_tokens_details"]["reasoning_tokens"]) == (
        10,
        0,
    )


@pytest.mark.row("B352")
@pytest.mark.parametrize("fields", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_what_is_kept_nowhere_is_refused(fields: dict[str, str], gateway: Gateway, alice: Tenant, echo: Model) -> None:
    synchronize(gateway)
    refused = respond(gateway, alice, echo, **fields)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, *fields)
    both = respond(gateway, alice, echo, previous_response_id="resp_1", conversation="conv_1")
    assert both.status_code == 400


@pytest.mark.row("B353")
def test_a_response_reads_pictures_and_documents(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    synchronize(gateway)
    file = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
    parts = [{"type": "input_image", "image_url": PICTURE}, file]
    answer = respond(gateway, alice, echo, input=[{"role": "user", "content": parts}])
    assert answer.status_code == 200, answer.text
    sent = json.loads(answer.json()["output"][0]["content"][0]["text"])
    assert [part["type"] for part in sent["messages"][0]["content"]] == ["image_url", "file"]


@pytest.mark.row("B355")
def test_events_of_a_response_are_numbered(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=3")
    synchronize(gateway)
    told = events(respond(gateway, alice, model, stream=True))
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    kinds = [event["type"] for event in told]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert {"response.output_item.added", "response.content_part.added", "response.output_text.delta"} <= set(kinds)


@pytest.mark.row("B166")
def test_wishes_for_the_route_are_the_same_everywhere(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, echo: Model
) -> None:
    other = make_model(make_provider(simulated.base_url), "sim-small?text=two")
    synchronize(gateway)
    for ask in (message, respond):
        answer = ask(gateway, alice, echo, provider={"fallback": other.slug})
        assert answer.status_code == 200, answer.text
        refused = ask(gateway, alice, echo, model_routing_config={"available_models": ["not/there"]})
        assert refused.json()["error"]["param"] == "model_routing_config.available_models"


# --- generateContent


@pytest.mark.row("B356", "B363")
@pytest.mark.parametrize("protocol", ["openai_responses", "anthropic_messages", "google_gemini"])
def test_generate_content_over_any_provider(
    protocol: str, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, protocol)
    publisher, name = provider.model.slug.split("/")
    synchronize(gateway)
    body = generate(gateway, alice, provider.model).json()
    assert body["modelVersion"] == provider.model.slug
    assert body["usageMetadata"]["promptTokenCount"] > 0
    path = f"/api/vertex-ai/v1/publishers/{publisher}/models/{name}"
    assert post(gateway, alice, f"{path}:generateContent", contents=CONTENTS).status_code == 200
    told = events(post(gateway, alice, f"{path}:streamGenerateContent?alt=sse", contents=CONTENTS))
    assert told[-1]["candidates"][0]["finishReason"] == "STOP"
