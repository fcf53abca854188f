"""Failures that gateways have had between protocols, each tried in every direction where it can occur.

What passes between the same protocol is the client's own, so most of it is tried between two. Signatures and budgets of
thoughts are tried in `test_pairs` and where each protocol is.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from time import process_time
from typing import Any

import pytest

from gateway.protocols.openai_chat.request.foreign_clients import NO_RESULT, answered
from gateway.protocols.openai_responses.upstream_request import body as responses_body
from tests.pairs.bare import MODEL, Refused, send, sent, told
from tests.pairs.bare import read as read_as
from tests.pairs.clients import CLIENTS
from tests.pairs.providers import PROVIDERS
from tests.pairs.said import SCHEMA, Call, Counts, Question, Said, Tool, events, written

ways = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
every_pair = pytest.mark.parametrize(("client", "provider"), [(one, other) for one in CLIENTS for other in PROVIDERS])


def translated(*providers: str) -> pytest.MarkDecorator:
    """Pairs of two protocols, with these providers or with all."""
    pairs = [(one, other) for one in CLIENTS for other in providers or PROVIDERS if one != other]
    return pytest.mark.parametrize(("client", "provider"), pairs)


def to_items(chat: dict[str, Any]) -> Any:
    return responses_body(chat, model="m-up", output_cap=None, stream=False, reasons=False)


ASK = Question(tools=(Tool("now"), Tool("get_weather", parameters=SCHEMA)))


def heard(client: str, provider: str, data: bytes, *, streamed: bool, question: Question = ASK) -> Any:
    """What a client makes of a provider's bytes."""
    body = CLIENTS[client].body(question, MODEL, streamed)
    answer = told(client, provider, body, [data], stream=streamed)
    assert answer.fault is None
    return CLIENTS[client].hear(answer.text, streamed)


def kept(client: str, said: Said) -> Any:
    """An earlier answer as a client keeps it."""
    speaks = PROVIDERS["openai_chat"]
    return heard(client, "openai_chat", speaks.whole(said), streamed=False).turn


def turns(client: str, provider: str, question: Question) -> list[Any]:
    """What a provider is sent of a conversation, without thoughts and what the user asks first."""
    body = sent(client, provider, CLIENTS[client].body(question, MODEL, False))
    return [turn for turn in PROVIDERS[provider].got(body).turns if turn[0] not in ("user", "thought")]


# --- tool_use without its result; ids too long for the other side --------------------------------------------------

A, B = Call("call_a", "now", {}), Call("call_b", "get_weather", {"city": "Oslo"})


@translated()
def test_a_call_without_a_result_has_one_that_says_so(client: str, provider: str) -> None:
    turn = kept(client, Said(calls=(A, B), finish="tool_calls"))
    calls = [("call", call.id, call.name, call.arguments) for call in (A, B)]
    one = turns(client, provider, replace(ASK, turns=((turn, ((A, "12:00"),)),)))
    assert one == [*calls, ("result", "call_a", "12:00"), ("result", "call_b", NO_RESULT)]
    none = turns(client, provider, replace(ASK, turns=((turn, ()),)))
    assert none == [*calls, ("result", "call_a", NO_RESULT), ("result", "call_b", NO_RESULT)]


@translated()
def test_a_result_of_no_call_is_told_by_the_user(client: str, provider: str) -> None:
    turn = kept(client, Said(calls=(A,), finish="tool_calls"))
    question = replace(ASK, turns=((turn, ((A, "12:00"), (B, "Snow"))),))
    body = sent(client, provider, CLIENTS[client].body(question, MODEL, False))
    if client == "google_gemini":  # which matches them by name and refuses it itself
        assert body == Refused("contents[2].parts[1].functionResponse", "invalid_value")
        return
    got = PROVIDERS[provider].got(body).turns
    assert [turn for turn in got if turn[0] == "result"] == [("result", "call_a", "12:00")]
    told_by_user = "".join(turn[1] for turn in got if turn[0] == "user").replace("\n", "")
    assert told_by_user == f"{ASK.text}Result of the tool call call_b:Snow"


LONGEST = {"openai_chat": 40, "openai_responses": 64, "anthropic_messages": 256, "google_gemini": 1 << 16}
STRANGE = Call("call:odd/1|é", "now", {})


@translated()
def test_ids_are_such_as_the_other_side_takes(client: str, provider: str) -> None:
    """The same for a call and its result, different ones for different ids, and as they were where they can be."""
    long = ["x" * (LONGEST[provider] + 40) + end for end in "12"]
    calls = (*(Call(id, "now", {}) for id in long), A, STRANGE)
    turn = kept(client, Said(calls=calls, finish="tool_calls"))
    question = replace(ASK, turns=((turn, tuple((call, f"said {at}") for at, call in enumerate(calls))),))
    got = turns(client, provider, question)
    ids = [turn[1] for turn in got if turn[0] == "call"]
    assert [(turn[1], turn[2]) for turn in got if turn[0] == "result"] == [
        (id, f"said {at}") for at, id in enumerate(ids)
    ]
    assert len(set(ids)) == len(calls)
    assert max(map(len, ids)) <= LONGEST[provider] or provider == "google_gemini"  # which has no bound
    assert ids[2] == A.id
    if provider == "anthropic_messages":
        assert all(id.replace("_", "").replace("-", "").isalnum() and id.isascii() for id in ids)
    assert turns(client, provider, question) == got


# --- system prompts ------------------------------------------------------------------------------------------------


CAPS: dict[str, dict[str, Any]] = {
    "openai_chat": {"max_tokens": 9},
    "openai_responses": {"max_output_tokens": 9},
    "anthropic_messages": {"max_tokens": 9},
    "google_gemini": {"generationConfig": {"maxOutputTokens": 9}},
}


def instructed(client: str) -> dict[str, Any]:
    """A conversation with instructions wherever the client may have them."""
    if client == "openai_responses":
        said = [("developer", "two"), ("system", "three"), ("user", "Hi."), ("assistant", "Yes?")]
        said += [("developer", "four"), ("user", "Go on.")]
        items = [{"role": role, "content": text} for role, text in said]
        return {"model": MODEL, "instructions": "one", "input": items, **CAPS[client]}
    if client == "google_gemini":
        said = [("user", "Hi."), ("model", "Yes?"), ("user", "Go on.")]
        return {
            "systemInstruction": {"parts": [{"text": text} for text in ("one", "two", "three", "four")]},
            "contents": [{"role": role, "parts": [{"text": text}]} for role, text in said],
            **CAPS[client],
        }
    if client == "anthropic_messages":
        system = [{"type": "text", "text": text} for text in ("one", "two", "three")]
        said = [("user", "Hi."), ("assistant", "Yes?"), ("system", "four"), ("user", "Go on.")]
        body: dict[str, Any] = {"model": MODEL, **CAPS[client], "system": system}
        return body | {"messages": [{"role": role, "content": text} for role, text in said]}
    said = [("system", "one"), ("developer", "two"), ("user", "Hi."), ("assistant", "Yes?"), ("system", "three")]
    messages = [{"role": role, "content": text} for role, text in [*said, ("user", "Go on."), ("developer", "four")]]
    return {"model": MODEL, "messages": messages, **CAPS[client]}


@translated()
def test_all_instructions_reach_the_provider_in_order(client: str, provider: str) -> None:
    got = PROVIDERS[provider].got(sent(client, provider, instructed(client)))
    assert got.system.replace("\n", "") == "onetwothreefour"
    assert got.turns == (("user", "Hi."), ("said", "Yes?"), ("user", "Go on."))


# --- empty texts ---------------------------------------------------------------------------------------------------


def with_empty_texts(client: str) -> dict[str, Any]:
    """A call beside an empty text, a result that is empty, an empty text beside one that is not."""
    if client == "openai_responses":
        call: dict[str, Any] = {"type": "function_call", "call_id": "call_a", "name": "now", "arguments": ""}
        result = {"type": "function_call_output", "call_id": "call_a", "output": ""}
        texts = [{"type": "input_text", "text": ""}, {"type": "input_text", "text": "Go on."}]
        said = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": ""}, call, result]
        return {
            "model": MODEL,
            "instructions": "",
            "input": [*said, {"role": "user", "content": texts}],
            **CAPS[client],
        }
    if client == "google_gemini":
        parts: list[Any] = [
            [{"text": "Hi."}],
            [{"text": ""}, {"functionCall": {"id": "call_a", "name": "now", "args": {}}}],
            [{"functionResponse": {"id": "call_a", "name": "now", "response": {"output": ""}}}],
            [{"text": ""}, {"text": "Go on."}],
        ]
        contents = [{"role": "model" if at == 1 else "user", "parts": part} for at, part in enumerate(parts)]
        return {"systemInstruction": {"parts": [{"text": ""}]}, "contents": contents, **CAPS[client]}
    empty, text = {"type": "text", "text": ""}, {"type": "text", "text": "Go on."}
    if client == "anthropic_messages":
        turns: list[Any] = [
            "Hi.",
            [empty, {"type": "tool_use", "id": "call_a", "name": "now", "input": {}}],
            [{"type": "tool_result", "tool_use_id": "call_a", "content": [empty]}, empty, text],
        ]
        roles = ("user", "assistant", "user")
        body: dict[str, Any] = {"model": MODEL, **CAPS[client], "system": [empty]}
        return body | {"messages": [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=True)]}
    call = {"id": "call_a", "type": "function", "function": {"name": "now", "arguments": ""}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": ""},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_a", "content": [empty]},
        {"role": "user", "content": [empty, text]},
    ]
    return {"model": MODEL, "messages": messages, **CAPS[client]}


@translated("anthropic_messages", "google_gemini")
def test_empty_texts_do_not_go_to_those_who_refuse_them(client: str, provider: str) -> None:
    body = sent(client, provider, with_empty_texts(client))
    assert not {"system", "systemInstruction"} & body.keys()
    raw = json.dumps(body)
    assert '"text": ""' not in raw
    assert '"content": []' not in raw
    got = PROVIDERS[provider].got(body).turns
    assert [turn for turn in got if turn[0] != "result"] == [
        *(("user", "Hi."), ("call", "call_a", "now", {}), ("user", "Go on.")),
    ]


# --- stop sequences ------------------------------------------------------------------------------------------------

STOPS = ["one", "two", "three", "four", "END"]


def stopping(client: str, streamed: bool) -> dict[str, Any]:
    """A request with as many sequences as the client may send."""
    body: dict[str, Any] = CLIENTS[client].body(Question(), MODEL, streamed)
    if client == "openai_chat":
        return {**body, "stop": STOPS}
    if client == "anthropic_messages":
        return {**body, "stop_sequences": STOPS}
    return {**body, "generationConfig": {**body["generationConfig"], "stopSequences": STOPS}}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", [client for client in CLIENTS if client != "openai_responses"])
@ways
def test_a_stop_sequence_ends_the_text_whoever_looks_for_it(client: str, provider: str, streamed: bool) -> None:
    body = stopping(client, streamed)
    speaks = PROVIDERS[provider]
    asked = json.loads(send(read_as(client, body, stream=streamed), provider).body)
    went = asked.get("stop") or asked.get("stop_sequences") or asked.get("generationConfig", {}).get("stopSequences")
    looks = {"openai_chat": 4, "openai_responses": 0}.get(provider, 5)
    assert (went or []) == STOPS[:looks]
    if looks == 5:
        return
    said = Said("12345END678")
    answer = told(client, provider, body, [speaks.stream(said) if streamed else speaks.whole(said)], stream=streamed)
    if client == "anthropic_messages":
        message = (
            [json.loads(answer.text)] if not streamed else [e["delta"] for e in events(answer.text) if "delta" in e]
        )
        ends = {"stop_reason": "stop_sequence", "stop_sequence": "END"}
        assert ends.items() <= message[-1].items()
        assert "678" not in answer.text
    else:
        hears = CLIENTS[client].hear(answer.text, streamed).said
        assert (hears.text, hears.finish) == ("12345", "stop")


@pytest.mark.parametrize("client", CLIENTS)
@ways
def test_the_sequence_that_a_provider_found_is_told(client: str, streamed: bool) -> None:
    """Where the client's protocol has a place for it; for the others it is an ordinary end."""
    speaks = PROVIDERS["anthropic_messages"]
    data = speaks.stream(Said("12345")) if streamed else speaks.whole(Said("12345"))
    found = data.replace(b'"end_turn"', b'"stop_sequence"').replace(b'"stop_sequence":null}', b'"stop_sequence":"END"}')
    found = found.replace(b'"stop_sequence":null', b'"stop_sequence":"END"')
    answer = told(client, "anthropic_messages", CLIENTS[client].body(ASK, MODEL, streamed), [found], stream=streamed)
    told_so = {"openai_chat": '"stop_reason":"END"', "anthropic_messages": '"stop_sequence":"END"'}
    assert told_so.get(client, "") in answer.text
    assert answer.reader.finish_reason == "stop"


# --- the beginning and the end of streams --------------------------------------------------------------------------

BEGINNINGS = {
    "openai_chat": '"role":"assistant"',
    "openai_responses": '"type":"response.created"',
    "anthropic_messages": '"type":"message_start"',
}


def frames(data: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in data.split(b"\n\n") if frame]


@every_pair
def test_a_beginning_that_comes_twice_is_told_once(client: str, provider: str) -> None:
    first, *rest = frames(PROVIDERS[provider].stream(Said("Hello.")))
    twice = [first] if provider == "google_gemini" else [first, first]  # it has no beginning of its own
    body = CLIENTS[client].body(Question(), MODEL, True)
    answer = told(client, provider, body, [*twice, *rest], stream=True)
    assert CLIENTS[client].hear(answer.text, True).said.text == "Hello."
    if client in BEGINNINGS:
        assert answer.text.replace(" ", "").count(BEGINNINGS[client]) == 1


@every_pair
def test_a_stream_that_only_lacks_its_last_word_is_whole(client: str, provider: str) -> None:
    """It has said why it ended; that all is said is another event, which some servers forget."""
    data = PROVIDERS[provider].stream(Said("Hello."))
    last = {"openai_chat": b"data: [DONE]\n\n", "anthropic_messages": frames(data)[-1]}.get(provider, b"")
    cut = data[: len(data) - len(last)]
    body = CLIENTS[client].body(Question(), MODEL, True)
    answer = told(client, provider, body, [cut], stream=True)
    assert (answer.fault, CLIENTS[client].hear(answer.text, True).said) == (None, Said("Hello."))


@every_pair
def test_a_stream_that_does_not_say_why_it_ended_is_broken_off(client: str, provider: str) -> None:
    told_all = frames(PROVIDERS[provider].stream(Said("Hello.")))
    ends = {"openai_chat": 3, "anthropic_messages": 2}.get(provider, 1)
    if provider == "google_gemini":  # its last event has text, too
        text = b'{"candidates":[{"content":{"parts":[{"text":"Hello."}],"role":"model"},"index":0}]}'
        told_all = [b"data: " + text + b"\n\n", b""]
    body = CLIENTS[client].body(Question(), MODEL, True)
    answer = told(client, provider, body, told_all[:-ends], stream=True)
    assert answer.fault == "truncated"
    assert CLIENTS[client].broken(answer.text) == ("Hello.", CLIENTS[client].CUT[1])


# --- cache tokens --------------------------------------------------------------------------------------------------


def counted(provider: str) -> dict[str, Any]:
    """5,000 tokens, of which 3,000 were read from the cache, and 1,000 written to it where that is counted."""
    if provider == "anthropic_messages":
        usage = {"input_tokens": 1000, "cache_read_input_tokens": 3000, "cache_creation_input_tokens": 1000}
        return usage | {"output_tokens": 7, "cache_creation": {"ephemeral_1h_input_tokens": 1000}}
    if provider == "google_gemini":
        counts = {"promptTokenCount": 5000, "cachedContentTokenCount": 3000, "candidatesTokenCount": 7}
        return counts | {"totalTokenCount": 5007}
    cached = {"cached_tokens": 3000, "cache_write_tokens": 1000}
    if provider == "openai_responses":
        return {"input_tokens": 5000, "input_tokens_details": cached, "output_tokens": 7, "total_tokens": 5007}
    return {"prompt_tokens": 5000, "prompt_tokens_details": cached, "completion_tokens": 7, "total_tokens": 5007}


@every_pair
@ways
def test_what_was_cached_is_counted_once(client: str, provider: str, streamed: bool) -> None:
    """A client of Messages is told it beside the others, all others within them; the sum is the same."""
    speaks, old = PROVIDERS[provider], Said("Hello.", counts=Counts(11, 7))
    data = speaks.stream(old) if streamed else speaks.whole(old)
    usage = counted(provider)
    parts = frames(data) if streamed else [data]
    made = []
    for part in parts:
        head, _, body = part.rpartition(b"data: ") if streamed else (b"", b"", part)
        try:
            value = json.loads(body)
        except ValueError:
            made.append(part)
            continue
        for holder in (value, value.get("message"), value.get("response")):
            for name in ("usage", "usageMetadata"):
                if type(holder) is dict and holder.get(name):
                    holder[name] = usage
        made.append((head + b"data: " if streamed else b"") + written(value).encode() + (b"\n\n" if streamed else b""))
    hears = heard(client, provider, b"".join(made), streamed=streamed)
    assert (hears.said.counts.prompt, hears.said.counts.cached, hears.said.counts.completion) == (5000, 3000, 7)


# --- schemas -------------------------------------------------------------------------------------------------------

ODD: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string", "minLength": 1}}}},
    "properties": {
        "place": {"$ref": "#/$defs/place"},
        "tags": {"type": "array"},
        "pairs": {"type": ["array", "null"], "uniqueItems": True},
        "size": {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 2},
        "kind": {"const": "k"},
        "either": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    },
    "anyOf": [{"required": ["place"]}, {"required": ["tags"]}],
}


def lists_without_items(schema: Any) -> list[Any]:
    if type(schema) is list:
        return [found for inner in schema for found in lists_without_items(inner)]
    if type(schema) is not dict:
        return []
    kind = schema.get("type")
    is_list = kind == "array" or (type(kind) is list and "array" in kind)
    return ([schema] if is_list and "items" not in schema else []) + lists_without_items(list(schema.values()))


@translated()
def test_a_tool_s_schema_has_nothing_that_the_other_side_refuses(client: str, provider: str) -> None:
    question = Question(tools=(Tool("get_weather", parameters=ODD),))
    body = sent(client, provider, CLIENTS[client].body(question, MODEL, False))
    ((_, schema),) = PROVIDERS[provider].got(body).tools
    raw = json.dumps(schema)
    assert schema["type"] == "object"
    assert set(ODD["properties"]) <= set(schema["properties"])
    if provider == "google_gemini":
        for keyword in ("$schema", "$defs", "$ref", "oneOf", "const", "multipleOf", "exclusiveMinimum", "minLength"):
            assert f'"{keyword}":' not in raw
        return
    assert not {"anyOf", "oneOf", "allOf"} & schema.keys()
    assert "It must also match this JSON Schema" in schema["description"]
    if provider in ("openai_chat", "openai_responses"):
        assert lists_without_items(schema) == []
    assert '"multipleOf": 2' in raw  # what is known goes as it is


@translated("anthropic_messages", "google_gemini")
def test_a_schema_of_an_answer_has_nothing_that_the_other_side_refuses(client: str, provider: str) -> None:
    form = {name: value for name, value in ODD.items() if name != "anyOf"}
    body = sent(client, provider, CLIENTS[client].body(Question(schema=form), MODEL, False))
    got = PROVIDERS[provider].got(body)
    raw = json.dumps(got.schema)
    for keyword in ("$schema", "oneOf", "multipleOf", "exclusiveMinimum", "minLength", "uniqueItems"):
        assert f'"{keyword}":' not in raw, keyword
    assert "multipleOf" in raw  # told in words


def test_a_stream_of_nothing_is_an_empty_answer() -> None:
    """Only signs of life, or only the end: in every protocol an answer that is none (nothing is told as success)."""
    wait = b": wait\n\n"
    lives = {"openai_chat": wait + b"data: [DONE]\n\n", "anthropic_messages": b"event: ping\ndata: {}\n\n"}
    for provider in PROVIDERS:
        for client in CLIENTS:
            body = CLIENTS[client].body(Question(), MODEL, True)
            answer = told(client, provider, body, [lives.get(provider, wait)], stream=True)
            assert (answer.fault, answer.text) == ("invalid_response", "")


@pytest.mark.parametrize(
    "match", [answered, lambda messages: to_items({"messages": messages})], ids=["chat", "responses"]
)
def test_many_calls_and_results_are_matched_in_linear_time(match: Callable[[list[dict[str, Any]]], Any]) -> None:
    """In the worst order of all, for whoever looks for each result among the calls that wait."""

    def seconds(many: int) -> float:
        function = {"name": "now", "arguments": ""}
        calls = [{"id": f"call_{at}", "type": "function", "function": function} for at in range(many)]
        results = [{"role": "tool", "tool_call_id": f"call_{at}", "content": "x"} for at in reversed(range(many))]
        begun = process_time()
        match(
            [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": None, "tool_calls": calls}, *results]
        )
        return process_time() - begun

    few = min(seconds(500) for _ in range(3))
    assert min(seconds(8000) for _ in range(3)) < 16 * few * 5  # squared it were 256 times as long
