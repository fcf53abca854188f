"""What was thought survives, whoever the client is: proofs on their places, budgets within bounds, wishes alike."""

import json
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest

from routing.models import FORMATS, Model, Provider
from tests.pairs.clients import CLIENTS
from tests.pairs.play import Play
from tests.pairs.providers import PROVIDERS
from tests.pairs.said import CAP, PROOF, SCHEMA, Call, Question, Said, Tool, stream, written
from tests.pairs.test_pairs import WHOLE
from tests.stage.product import synchronize
from tests.stage.shelf import add_offer, make_provider

OTHER_PROOF = "Zm9yZ2VkLW5vLg+/=="
REDACTED = "cmVkYWN0ZWQrLz0="
A, B = Call("call_a1", "get_weather", {"city": "Oslo"}), Call("call_b2", "get_weather", {"city": "Rome"})
RESULTS = ((A, "snow"), (B, "sun"))
THINKS = Question(tools=(Tool("get_weather", "The weather of a city.", SCHEMA),), reasons=True)
every_client = pytest.mark.parametrize("client", CLIENTS)


def turns(providers: Iterable[str], values: dict[str, Any]) -> list[Any]:
    """Each client over each of the providers with each of the values; in `make test` one of them, by turns."""
    return [
        pytest.param(client, provider, value, id=f"{client}-{provider}-{name}")
        for (i, (name, value)), (j, client), (k, provider) in product(
            enumerate(values.items()), enumerate(CLIENTS), enumerate(providers)
        )
        if WHOLE or (i + j + k) % len(values) == 0
    ]


streamed = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


# --- several proofs in one turn, with parallel calls

BLOCKS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Let me  see.", "signature": PROOF},
    {"type": "redacted_thinking", "data": REDACTED},
    {"type": "thinking", "thinking": "", "signature": OTHER_PROOF},
    {"type": "text", "text": "Looking."},
    {"type": "tool_use", "id": A.id, "name": A.name, "input": A.arguments},
    {"type": "tool_use", "id": B.id, "name": B.name, "input": B.arguments},
]
PARTS: list[dict[str, Any]] = [
    {"text": "Let me  see.", "thought": True},
    {"functionCall": {"id": A.id, "name": A.name, "args": A.arguments}, "thoughtSignature": PROOF},
    {"functionCall": {"id": B.id, "name": B.name, "args": B.arguments}, "thoughtSignature": OTHER_PROOF},
]
ITEMS: list[dict[str, Any]] = [
    {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Let me  see."}],
        "encrypted_content": PROOF,
    },
    {"id": "fc_1", "type": "function_call", "call_id": A.id, "name": A.name, "arguments": written(A.arguments)},
    {"id": "rs_2", "type": "reasoning", "summary": [], "encrypted_content": OTHER_PROOF},
    {"id": "fc_2", "type": "function_call", "call_id": B.id, "name": B.name, "arguments": written(B.arguments)},
]
EMPTY: dict[str, dict[str, Any]] = {
    "thinking": {"thinking": "", "signature": ""},
    "text": {"text": ""},
    "tool_use": {"input": {}},
}


def message(streams: bool) -> bytes:
    usage = {"input_tokens": 11, "output_tokens": 30}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None, "usage": usage}
    if not streams:
        return written({**head, "content": BLOCKS, "stop_reason": "tool_use"}).encode()
    told: list[dict[str, Any]] = [{"type": "message_start", "message": {**head, "content": [], "stop_reason": None}}]
    for at, block in enumerate(BLOCKS):
        begun = {**block, **EMPTY.get(block["type"], {})}
        told.append({"type": "content_block_start", "index": at, "content_block": begun})
        deltas: list[dict[str, Any]] = []
        if block["type"] == "thinking":
            if block["thinking"]:
                deltas.append({"type": "thinking_delta", "thinking": block["thinking"]})
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif block["type"] == "text":
            deltas.append({"type": "text_delta", "text": block["text"]})
        elif block["type"] == "tool_use":
            deltas.append({"type": "input_json_delta", "partial_json": written(block["input"])})
        told += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        told.append({"type": "content_block_stop", "index": at})
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    return stream(*told, {"type": "message_delta", "delta": end, "usage": usage}, {"type": "message_stop"})


def content(streams: bool) -> bytes:
    def event(parts: list[dict[str, Any]], **end: Any) -> dict[str, Any]:
        usage = {"promptTokenCount": 11, "candidatesTokenCount": 30, "totalTokenCount": 41}
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **end}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}

    if not streams:
        return written(event(PARTS, finishReason="STOP")).encode()
    return stream(*(event([part]) for part in PARTS), event([{"text": ""}], finishReason="STOP"), named=False)


def response(streams: bool) -> bytes:
    usage = {"input_tokens": 11, "output_tokens": 30, "total_tokens": 41}
    whole = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m"}
    whole |= {"error": None, "incomplete_details": None, "output": ITEMS, "usage": usage}
    if not streams:
        return written(whole).encode()
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    told: list[dict[str, Any]] = [
        {"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")
    ]
    for at, item in enumerate(ITEMS):
        empty: dict[str, Any] = {"summary": []} if item["type"] == "reasoning" else {"arguments": ""}
        told.append({"type": "response.output_item.added", "output_index": at, "item": item | empty})
        place = {"item_id": item["id"], "output_index": at}
        if item["type"] == "function_call":
            told.append({"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]})
        for part in item.get("summary", ()):
            place |= {"summary_index": 0}
            told.append({"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}})
            told.append({"type": "response.reasoning_summary_text.delta", **place, "delta": part["text"]})
        told.append({"type": "response.output_item.done", "output_index": at, "item": item})
    told.append({"type": "response.completed", "response": whole})
    return stream(*({**event, "sequence_number": at} for at, event in enumerate(told)))


SAYS = {"anthropic_messages": message, "google_gemini": content, "openai_responses": response}


@pytest.mark.parametrize(("client", "provider", "streams"), turns(SAYS, {"whole": False, "streamed": True}))
def test_every_proof_comes_back_where_it_was(play: Play, client: str, provider: str, streams: bool) -> None:
    play.says(provider, SAYS[provider](streams), stream=streams)
    heard = play.hears(client, THINKS, streams)
    assert heard.said.calls == (A, B)
    play.says(provider, PROVIDERS[provider].whole(Said("Snow.")), stream=False)
    again = Question(tools=THINKS.tools, reasons=True, turns=((heard.turn, RESULTS),))
    assert play.hears(client, again, stream=False).said == Said("Snow.")
    body = json.loads(play.asked(provider)[1])
    if provider == "anthropic_messages":
        assert body["messages"][1]["content"] == BLOCKS
        assert body["thinking"]["type"] == "enabled"
    elif provider == "google_gemini":
        assert [part for part in body["contents"][1]["parts"] if part != {"text": ""}] == PARTS
    else:
        items = [item for item in body["input"] if item.get("type") in ("reasoning", "function_call")]
        assert [item for item in items if item["type"] == "reasoning"] == [ITEMS[0], ITEMS[2]]
        assert [item["call_id"] for item in items if item["type"] == "function_call"] == [A.id, B.id]


# --- how much is thought


def body_of(client: str, play: Play, amount: int) -> dict[str, Any]:
    """What a client asks with a budget of so many tokens; 0: it is not to think. One protocol has efforts alone."""
    body: dict[str, Any] = CLIENTS[client].body(Question(), play.model, False)
    match client:
        case "openai_chat":
            body["reasoning"] = {"max_tokens": amount} if amount else {"enabled": False}
        case "openai_responses":
            body["reasoning"] = {"effort": "high" if amount else "none"}
        case "anthropic_messages":
            thinking = {"type": "enabled", "budget_tokens": amount}
            body["thinking"] = thinking if amount else {"type": "disabled"}
        case "google_gemini":
            body["generationConfig"]["thinkingConfig"] = {"thinkingBudget": amount}
    return body


def sent(play: Play, client: str, provider: str, body: dict[str, Any], *takes: str, **model: Any) -> dict[str, Any]:
    """What a provider is sent whose model lists `takes` and is like `model`."""
    Model.objects.filter(slug=play.model).update(supported_parameters=list(takes), **model)
    synchronize(play.gateway)
    answer = play.gateway.client.post(
        CLIENTS[client].path(play.model, False), json=body, headers={"Authorization": f"Bearer {play.tenant.secret}"}
    )
    assert answer.status_code == 200, answer.text
    got: dict[str, Any] = json.loads(play.asked(provider)[1])
    return got


LOWERED = 2500


@pytest.mark.parametrize(
    ("client", "provider", "budget"), turns(PROVIDERS, {str(budget): budget for budget in (3000, CAP, 50_000)})
)
def test_a_budget_stays_below_the_cap_whoever_lowered_it(play: Play, client: str, provider: str, budget: int) -> None:
    """The client's cap is 4000, and the offer writes no more than 2500: with either the budget would be refused."""
    play.says(provider, PROVIDERS[provider].whole(Said("Yes.")), stream=False)
    takes = ("thinking", "reasoning") if provider == "openai_chat" else ()
    got = sent(play, client, provider, body_of(client, play, budget), *takes, max_output=LOWERED)
    match provider:
        case "openai_chat":
            thought = (got.get("thinking") or {}).get("budget_tokens") or (got.get("reasoning") or {}).get("max_tokens")
            if client == "openai_responses":
                assert got["reasoning"]["effort"] == "high"
            else:
                assert thought == LOWERED - 1
        case "openai_responses":
            assert got["reasoning"]["effort"] == "high"
        case "anthropic_messages":
            own = CAP * 80 // 100 if client == "openai_responses" else budget
            assert (got["max_tokens"], got["thinking"]["budget_tokens"]) in (
                (LOWERED, LOWERED - 1),
                (LOWERED, min(own, LOWERED * 80 // 100)),
            )
        case "google_gemini":
            config = got["generationConfig"]
            assert config["maxOutputTokens"] == LOWERED
            assert config["thinkingConfig"]["thinkingBudget"] in (LOWERED - 1, LOWERED * 80 // 100)


@pytest.mark.parametrize(("client", "provider", "thinks"), turns(PROVIDERS, {"thinks": True, "does not": False}))
def test_a_wish_means_the_same_in_every_spelling(play: Play, client: str, provider: str, thinks: bool) -> None:
    """Half of the cap of 4000 is a medium effort; and none is none."""
    play.says(provider, PROVIDERS[provider].whole(Said("Yes.")), stream=False)
    body = CLIENTS[client].body(Question(reasons=True), play.model, False) if thinks else body_of(client, play, 0)
    takes = ("reasoning_effort",) if provider == "openai_chat" else ()
    got = sent(play, client, provider, body, *takes)
    match provider:
        case "openai_chat":
            assert got["reasoning_effort"] == ("medium" if thinks else "none")
        case "openai_responses":
            assert got["reasoning"]["effort"] == ("medium" if thinks else "none")
        case "anthropic_messages":
            thinking = {"type": "enabled", "budget_tokens": 2000} if thinks else {"type": "disabled"}
            assert got["thinking"] == thinking
        case "google_gemini":
            assert got["generationConfig"]["thinkingConfig"]["thinkingBudget"] == (2000 if thinks else 0)


# --- who gets it


@every_client
@streamed
def test_a_provider_that_demands_earlier_thoughts_gets_them(play: Play, client: str, streams: bool) -> None:
    """It names them `reasoning_content`, and signs nothing."""
    call = {"id": A.id, "type": "function", "function": {"name": A.name, "arguments": written(A.arguments)}}
    said = {"role": "assistant", "content": None, "reasoning_content": "Let me  see.", "tool_calls": [call]}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    head = {"id": "c", "created": 1, "model": "m"}
    if streams:
        delta = said | {"tool_calls": [call | {"index": 0}]}
        told = [{"index": 0, "delta": delta, "finish_reason": None}, {"index": 0, "delta": {}, "finish_reason": "stop"}]
        chunks = [{**head, "object": "chat.completion.chunk", "choices": [choice]} for choice in told]
        data = stream(*chunks, {**head, "choices": [], "usage": usage}, "[DONE]", named=False)
    else:
        choice = {"index": 0, "message": said, "finish_reason": "tool_calls"}
        data = written({**head, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    play.says("openai_chat", data, stream=streams)
    heard = play.hears(client, THINKS, streams)
    play.says("openai_chat", PROVIDERS["openai_chat"].whole(Said("Snow.")), stream=False)
    again = Question(tools=THINKS.tools, reasons=True, turns=((heard.turn, RESULTS[:1]),))
    body = CLIENTS[client].body(again, play.model, False)
    got = sent(play, client, "openai_chat", body, "reasoning_content", "reasoning_effort", "tools")
    (turn,) = (message for message in got["messages"] if message["role"] == "assistant")
    assert turn["reasoning_content"] == "Let me  see."
    assert turn["tool_calls"][0]["id"] == A.id


@pytest.mark.parametrize("provider", SAYS)
@every_client
def test_the_maker_of_a_thought_is_asked_first(play: Play, client: str, provider: str) -> None:
    """Though another offer comes before it: a protocol's providers sign in its format, if their rows say no other."""
    play.says(provider, SAYS[provider](False), stream=False)
    heard = play.hears(client, THINKS, False)
    play.says(provider, PROVIDERS[provider].whole(Said("Snow.")), stream=False)
    model = Model.objects.get(slug=play.model)
    model.offers.update(priority=5)
    other = make_provider(play.simulated.base_url)
    add_offer(model, other, "sim-small?text=other", priority=1)
    assert Provider.objects.get(offers__model=model, protocol=provider).reasoning_format == ""
    synchronize(play.gateway)
    assert play.hears(client, Question(), False).said.text == "other"
    again = Question(tools=THINKS.tools, reasons=True, turns=((heard.turn, RESULTS),))
    assert play.hears(client, again, False).said.text == "Snow."


def test_the_formats_are_those_that_the_protocols_write() -> None:
    from gateway.protocols.openai_chat.request.parts import CLAUDE, GEMINI
    from gateway.protocols.openai_responses.thoughts import FORMAT

    assert {"openai_responses": FORMAT, "anthropic_messages": CLAUDE, "google_gemini": GEMINI} == FORMATS
