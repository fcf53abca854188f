"""Odd things that providers say and clients send, which were found in one protocol, in every direction of all."""

import base64
import json
from typing import Any

import pytest

from tests.pairs.bare import MODEL, Refused, sent, told
from tests.pairs.clients import CLIENTS
from tests.pairs.providers import PROVIDERS
from tests.pairs.said import PNG, SCHEMA, Call, Counts, Question, Said, Tool, stream, written

WEATHER, TIME = Tool("get_weather", parameters=SCHEMA), Tool("get_time")
ASK = Question(tools=(WEATHER, TIME))
every_client = pytest.mark.parametrize("client", CLIENTS)
every_provider = pytest.mark.parametrize("provider", PROVIDERS)
both = pytest.mark.parametrize("asks", [False, True], ids=["whole", "streamed"])
COUNTED = {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 11, "total_tokens": 31}}


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def chat(*deltas: dict[str, Any], finish: str = "stop") -> bytes:
    """A provider of chat completions."""
    return stream(*map(chunk, deltas), chunk({}, finish), COUNTED, "[DONE]", named=False)


def hear(client: str, provider: str, data: bytes, asks: bool, question: Question = ASK, *takes: str) -> Said:
    answer = told(client, provider, CLIENTS[client].body(question, MODEL, asks), [data], *takes, stream=asks)
    assert answer.fault is None
    said: Said = CLIENTS[client].hear(answer.text, asks).said
    return said


# --- calls ---------------------------------------------------------------------------------------------------------


def call(index: int | None, id: str | None, arguments: str, name: str | None = None) -> dict[str, Any]:
    inner = ({"name": name} if name is not None else {}) | {"arguments": arguments}
    made: dict[str, Any] = ({} if index is None else {"index": index}) | ({} if id is None else {"id": id})
    return {"tool_calls": [made | {"type": "function", "function": inner}]}


def both_at_once(index: int | None) -> dict[str, Any]:
    one, other = call(index, "call_1", '{"city":"Oslo"}', "get_weather"), call(index, "call_2", "{}", "get_time")
    return {"tool_calls": one["tool_calls"] + other["tool_calls"]}


OSLO, NOW = Call("call_1", "get_weather", {"city": "Oslo"}), Call("call_2", "get_time", {})
CALLS: dict[str, tuple[list[dict[str, Any]], tuple[Call, ...]]] = {
    "an id that changes while a call goes on": (
        [call(0, "call_1", "", "get_weather"), call(0, "later-0", '{"city":'), call(0, "later-0", '"Oslo"}')],
        (OSLO,),
    ),
    "an id that becomes the word null": (
        [call(0, "call_1", '{"city":', "get_weather"), call(0, "null", '"Oslo"}', "")],
        (OSLO,),
    ),
    "the same index for two calls": (
        [call(0, "call_1", '{"city":"Oslo"}', "get_weather"), call(0, "call_2", "{}", "get_time")],
        (OSLO, NOW),
    ),
    "no index": ([both_at_once(None)], (OSLO, NOW)),
    "index 0 for all": ([both_at_once(0)], (OSLO, NOW)),
    "a first index of 1 and holes": (
        [
            *(call(1, "call_1", "", "get_weather"), call(4, "call_2", "", "get_time")),
            *(call(1, None, '{"city":"Oslo"}'), call(4, None, "{}")),
        ],
        (OSLO, NOW),
    ),
    "a name that comes in pieces": (
        [call(0, "call_1", "", "get_"), call(0, None, '{"city":"Oslo"}', "weather")],
        (OSLO,),
    ),
}


@pytest.mark.parametrize("case", CALLS)
@every_client
@both
def test_calls_are_whole(case: str, client: str, asks: bool) -> None:
    deltas, calls = CALLS[case]
    said = hear(client, "openai_chat", chat(*deltas, finish="tool_calls"), asks)
    assert (said.calls, said.finish, said.counts) == (calls, "tool_calls", Counts(20, 11))


# --- thoughts and parts --------------------------------------------------------------------------------------------

THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm, two."}]}
THOUGHTS: dict[str, list[dict[str, Any]]] = {
    "reasoning": [{"reasoning": "Hm, "}, {"reasoning": "two."}],
    "reasoning_content": [{"reasoning_content": "Hm, "}, {"reasoning_content": "two."}],
    "both": [{"reasoning": "Hm, ", "reasoning_content": "Hm, "}, {"reasoning": "two.", "reasoning_content": "two."}],
    "typed parts": [{"content": [THOUGHT]}],
}


@pytest.mark.parametrize("name", THOUGHTS)
@every_client
@both
def test_a_thought_is_told_once_and_apart_from_the_text(name: str, client: str, asks: bool) -> None:
    data = chat({"role": "assistant", "content": ""}, *THOUGHTS[name], {"content": "42"})
    said = hear(client, "openai_chat", data, asks, Question(reasons=True))
    assert (said.thought, said.text) == ("Hm, two.", "42")


# --- counts --------------------------------------------------------------------------------------------------------


def totals(provider: str) -> bytes:
    """A provider that counts up with everything it says."""
    steps = ((50, 4), (50, 9), (50, 15))
    if provider == "google_gemini":
        return stream(
            *(
                {
                    "candidates": [
                        {"content": {"parts": [{"text": "x"}]}} | ({"finishReason": "STOP"} if at == 2 else {})
                    ],
                    "usageMetadata": {
                        "promptTokenCount": read,
                        "candidatesTokenCount": wrote,
                        "totalTokenCount": read + wrote,
                    },
                }
                for at, (read, wrote) in enumerate(steps)
            ),
            named=False,
        )
    if provider == "anthropic_messages":
        begun = {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 50}}}
        text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "xxx"}}
        deltas = [
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn" if at == 2 else None},
                "usage": {"output_tokens": wrote},
            }
            for at, (_, wrote) in enumerate(steps)
        ]
        return stream(begun, text, *deltas, {"type": "message_stop"})
    told_all = [
        chunk({"content": "x"}, "stop" if at == 2 else None)
        | {"usage": {"prompt_tokens": read, "completion_tokens": wrote}}
        for at, (read, wrote) in enumerate(steps)
    ]
    return stream(*told_all, "[DONE]", named=False)


@pytest.mark.parametrize("provider", ["openai_chat", "anthropic_messages", "google_gemini"])
@every_client
@both
def test_running_totals_are_not_added_up(provider: str, client: str, asks: bool) -> None:
    if client == provider and asks:  # what passes is the provider's own events, each with its total
        answer = told(client, provider, CLIENTS[client].body(ASK, MODEL, True), [totals(provider)], stream=True)
        assert answer.reader.usage is not None
        assert (answer.reader.usage.prompt, answer.reader.usage.completion) == (50, 15)
        return
    said = hear(client, provider, totals(provider), asks)
    assert (said.text, said.counts) == ("xxx", Counts(50, 15))


@every_client
def test_a_stream_is_asked_for_its_counts_whatever_the_client_says(client: str) -> None:
    body = CLIENTS[client].body(ASK, MODEL, True)
    if client == "openai_chat":
        body["stream_options"] = {"include_usage": False}
    assert sent(client, "openai_chat", body, stream=True)["stream_options"] == {"include_usage": True}


# --- what excludes each other at a provider -------------------------------------------------------------------------

CHOICES = {
    "openai_chat": "tool_choice",
    "openai_responses": "tool_choice",
    "google_gemini": "toolConfig.functionCallingConfig",
}


@pytest.mark.parametrize("client", CHOICES)
@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_a_forced_call_and_thinking_are_refused_by_name(client: str, choice: str) -> None:
    question = Question(tools=(WEATHER, TIME), choice=choice, reasons=True)
    refused = sent(client, "anthropic_messages", CLIENTS[client].body(question, MODEL, False))
    assert refused == Refused(CHOICES[client], "invalid_value")


@pytest.mark.parametrize("client", CLIENTS)
@every_provider
def test_no_tools_are_not_sent(client: str, provider: str) -> None:
    if client == provider and client != "openai_chat":
        return  # the client's own
    body = CLIENTS[client].body(Question(), MODEL, False) | {"tools": []}
    assert "tools" not in sent(client, provider, body)


# --- media ---------------------------------------------------------------------------------------------------------

JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + b"\0" * 12).decode()
HEAD = "data:image/png;base64,"


def picture(client: str, kind: str, data: str) -> dict[str, Any]:
    """A question with a picture, said to be of a kind."""
    body: dict[str, Any] = CLIENTS[client].body(Question(image=data), MODEL, False)
    text = json.dumps(body).replace("image/png", kind)
    made: dict[str, Any] = json.loads(text)
    return made


@pytest.mark.parametrize("kind", ["image/jpg", "image/png", "image/jpeg"])
@every_client
@pytest.mark.parametrize("provider", ["anthropic_messages", "google_gemini"])
def test_a_picture_has_the_type_of_its_bytes(kind: str, client: str, provider: str) -> None:
    if client == provider:
        return  # the client's own
    got = PROVIDERS[provider].got(sent(client, provider, picture(client, kind, JPEG)))
    assert got.image == ("image/jpeg", JPEG)


REFUSED_AT = {"anthropic_messages": "messages[0].content", "google_gemini": "contents[0].parts[1]"}


@pytest.mark.parametrize("client", REFUSED_AT)
@every_provider
def test_a_data_url_in_the_place_of_base64_is_refused_by_name(client: str, provider: str) -> None:
    body = picture(client, "image/png", HEAD + PNG)
    assert sent(client, provider, body) == Refused(REFUSED_AT[client], "invalid_value")


# --- a structured answer by a tool of the gateway's ------------------------------------------------------------------

OPEN = {"type": "object", "properties": {"q": {"type": "object"}}}


def tool_use(name: str, given: dict[str, Any]) -> bytes:
    block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": given}
    usage = {"input_tokens": 9, "output_tokens": 9}
    return written(
        {"type": "message", "role": "assistant", "content": [block], "stop_reason": "tool_use", "usage": usage}
    ).encode()


@pytest.mark.parametrize("client", [client for client in CLIENTS if client != "anthropic_messages"])
@both
def test_only_the_gateways_own_tool_is_the_answer(client: str, asks: bool) -> None:
    question = Question(tools=(WEATHER,), schema=OPEN)
    names = [
        tool["name"]
        for tool in sent(client, "anthropic_messages", CLIENTS[client].body(question, MODEL, False))["tools"]
    ]
    assert names == ["get_weather", "answer_in_json"]
    real = hear(client, "anthropic_messages", tool_use("get_weather", {"city": "Oslo"}), asks, question)
    assert (real.text, real.finish) == ("", "tool_calls")
    assert real.calls == (Call("toolu_1", "get_weather", {"city": "Oslo"}),)
    ours = hear(client, "anthropic_messages", tool_use("answer_in_json", {"q": {"a": 1}}), asks, question)
    assert (json.loads(ours.text), ours.finish, ours.calls) == ({"q": {"a": 1}}, "stop", ())


# --- failures in a 200 ----------------------------------------------------------------------------------------------


def failed(provider: str, code: str) -> bytes:
    """A whole body of a 200 that is a failure."""
    kinds = {"limited": "rate_limit_error", "overloaded": "overloaded_error"}
    if provider == "anthropic_messages":
        return written({"type": "error", "error": {"type": kinds[code], "message": "No."}}).encode()
    if provider == "google_gemini":
        status = {"limited": (429, "RESOURCE_EXHAUSTED"), "overloaded": (503, "UNAVAILABLE")}[code]
        return written({"error": {"code": status[0], "status": status[1], "message": "No."}}).encode()
    if provider == "openai_responses":
        codes = {"limited": "rate_limit_exceeded", "overloaded": "server_is_overloaded"}
        return written({"status": "failed", "error": {"code": codes[code], "message": "No."}, "output": []}).encode()
    numbers = {"limited": 429, "overloaded": 503}
    return written({"error": {"message": "No.", "code": numbers[code], "type": kinds[code]}}).encode()


@pytest.mark.parametrize(("code", "fault"), [("limited", "rate_limited"), ("overloaded", "overloaded")])
@every_client
@every_provider
@both
def test_a_failure_in_a_200_keeps_its_meaning(code: str, fault: str, client: str, provider: str, asks: bool) -> None:
    answer = told(client, provider, CLIENTS[client].body(ASK, MODEL, asks), [failed(provider, code)], stream=asks)
    assert (answer.fault, answer.text) == (fault, "")
