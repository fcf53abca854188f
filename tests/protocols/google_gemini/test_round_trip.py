"""A client's body through the chat form to a provider of the same protocol: what arrives means what was sent."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.google_gemini.client_request import chat_form
from gateway.protocols.google_gemini.upstream_request import Ability, body
from gateway.protocols.openai_chat import parse
from tests.protocols.google_gemini.talk import opened, parts_of, shown, stream_of, written

THREE = Ability(levels=("minimal", "low", "medium", "high"))


def through(sent: dict[str, Any], ability: Ability = THREE) -> Any:
    """What a provider gets of a client's body."""
    form = chat_form(sent, model="m-1", stream=False)
    assert form.only_native == ()
    parse(form.body, len(json.dumps(sent)))
    return body(form.body, ability=ability)


FULL: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "Be kind."}]},
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": "Weather?"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
                {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
                {"fileData": {"fileUri": "https://img.test/a.jpg", "mimeType": "image/jpeg"}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "Both.", "thought": True, "thoughtSignature": "VGg="},
                {"text": "I look it up."},
                {
                    "functionCall": {"id": "a", "name": "get_w", "args": {"city": "Oslo", "n": 1.5}},
                    "thoughtSignature": "U0lHMQ==",
                },
                {"functionCall": {"id": "b", "name": "get_w", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "a", "name": "get_w", "response": {"output": "12 °C"}}},
                {"functionResponse": {"id": "b", "name": "get_w", "response": {"t": [1, 2], "error": None}}},
            ],
        },
        {"role": "model", "parts": [{"text": "12 °C and 7.", "thoughtSignature": "RW5k"}]},
        {"role": "user", "parts": [{"text": "Thanks."}]},
    ],
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "get_w",
                    "description": "Weather.",
                    "parametersJsonSchema": {
                        "type": "object",
                        "properties": {"city": {"type": "string"}, "n": {"type": "number"}},
                        "required": ["city"],
                    },
                },
                {"name": "now"},
            ]
        },
        {"googleSearch": {}},
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["get_w", "now"]}},
    "generationConfig": {
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 40,
        "candidateCount": 2,
        "maxOutputTokens": 500,
        "stopSequences": ["END"],
        "presencePenalty": 0.5,
        "frequencyPenalty": -0.5,
        "seed": 7,
        "responseLogprobs": True,
        "logprobs": 2,
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "HIGH"},
    },
}


FIRST: list[Any] = FULL["contents"][:1]


def test_everything_at_once() -> None:
    assert through(FULL) == FULL


@pytest.mark.parametrize(("config", "arrives"), [
    ({"thinkingBudget": 0}, {"thinkingBudget": 0}),
    ({"includeThoughts": True, "thinkingBudget": -1}, {"includeThoughts": True, "thinkingBudget": -1}),
    ({"includeThoughts": True, "thinkingBudget": 2048}, {"includeThoughts": True, "thinkingBudget": 2048}),
    ({"thinkingBudget": 2048}, {"includeThoughts": True, "thinkingBudget": 2048}),
])  # fmt: skip
def test_budgets(config: Any, arrives: Any) -> None:
    sent = {"contents": FIRST, "generationConfig": {"thinkingConfig": config}}
    assert through(sent, Ability())["generationConfig"]["thinkingConfig"] == arrives


def test_openapi_becomes_json_schema_and_back() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {"a": {"type": "STRING", "nullable": True}, "b": {"type": "ARRAY", "items": {"type": "INTEGER"}}},
        "required": ["a"],
    }
    tools = [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]
    sent = {"contents": FIRST, "tools": tools}
    assert through(sent, Ability(json_schemas=False))["tools"] == tools


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.:-]{0,20}", fullmatch=True)
keys = st.text("abcdef_$", min_size=1, max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text('aÅ\u2028"\\', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(keys, values, max_size=3)
base64s = st.sampled_from(["QQ==", "+/8=", "c2lnbmF0dXJl"])


@st.composite
def conversations(draw: st.DrawFn) -> dict[str, Any]:
    """Turns of a user and a model; calls are signed as Google does, the first of each turn."""
    contents: list[Any] = []
    for turn in range(draw(st.integers(1, 3))):
        contents.append(
            {"role": "user", "parts": [{"text": text} for text in draw(st.lists(words, min_size=1, max_size=2))]}
        )
        parts: list[Any] = []
        if draw(st.booleans()):
            parts.append({"text": draw(words), "thought": True})
        for text in draw(st.lists(words, max_size=2)):
            parts.append({"text": text, "thoughtSignature": draw(base64s)})
        calls = draw(st.lists(st.tuples(names, objects, objects), max_size=3))
        for at, (name, args, _) in enumerate(calls):
            call = {"functionCall": {"id": f"c{turn}_{at}", "name": name, "args": args}}
            parts.append(call if at else call | {"thoughtSignature": draw(base64s)})
        if not any("thought" not in part for part in parts):
            parts.append({"text": draw(words)})
        contents.append({"role": "model", "parts": parts})
        if calls:
            results = [
                {"functionResponse": {"id": f"c{turn}_{at}", "name": name, "response": response}}
                for at, (name, _, response) in enumerate(calls)
            ]
            contents.append({"role": "user", "parts": results})
    return {"contents": contents}


@settings(deadline=None)
@given(conversations())
def test_any_conversation(sent: dict[str, Any]) -> None:
    # What the chat form does not tell apart: a result whose one field is `output` is its text.
    names_of = {declared["name"] for declared in _declared(sent)}
    tools = [{"functionDeclarations": [{"name": name} for name in sorted(names_of)]}] if names_of else []
    whole = sent | ({"tools": tools} if tools else {})
    arrived = through(whole)
    form = chat_form(whole, model="m-1", stream=False)
    assert json.dumps(_named_back(arrived["contents"], form.names)) == json.dumps(sent["contents"])


def _declared(sent: dict[str, Any]) -> list[Any]:
    parts = [part for content in sent["contents"] for part in content["parts"]]
    return [part["functionCall"] for part in parts if "functionCall" in part]


def _named_back(contents: Any, names: Any) -> Any:
    """The provider of another gateway knows a function by the chat form's name; the client by its own."""
    for content in contents:
        for part in content["parts"]:
            for kind in ("functionCall", "functionResponse"):
                if kind in part:
                    part[kind]["name"] = names.back(part[kind]["name"])
    return contents


@pytest.mark.parametrize("case", ["tool_one", "tools_parallel", "thoughts", "signed_text", "picture"])
def test_a_turn_comes_back_as_it_was_signed(case: str) -> None:
    """A provider's answer, to a chat client and back: each signature byte for byte on its part."""
    _, chunks = shown(case)
    events = opened(written(chunks))
    model: dict[str, Any] = {"role": "model", "parts": [part for part in parts_of(events) if part != {"text": ""}]}
    calls = [part["functionCall"] for part in model["parts"] if "functionCall" in part]
    if case == "picture":  # A picture of the model's is no part of a chat client's messages.
        assert chat_form({"contents": [model]}, model="m-1", stream=False).only_native
        return
    user = {"role": "user", "parts": [{"text": "hi"}]}
    results = [{"functionResponse": {"id": call["id"], "name": call["name"], "response": {}}} for call in calls]
    contents = [user, model, {"role": "user", "parts": results} if results else user]
    arrived = through({"contents": contents})["contents"]
    recorded = [part for part in parts_of(opened(stream_of(case))) if "thoughtSignature" in part]
    signed = [part for part in arrived[1]["parts"] if "thoughtSignature" in part]
    assert [_essence(part) for part in signed] == [_essence(part) for part in recorded]


def _essence(part: dict[str, Any]) -> Any:
    """A part without the id that a call got on the way."""
    call = part.get("functionCall", {})
    return part["thoughtSignature"], part.get("text"), call.get("name"), call.get("args")
