"""What a provider of the Gemini protocol is sent for a chat body."""

from typing import Any

import pytest

from gateway.protocols.google_gemini.signatures import NO_SIGNATURE
from gateway.protocols.google_gemini.upstream_request import Ability, body, native_body, path
from gateway.protocols.openai_chat import parse
from gateway.wire.errors import InvalidRequest
from tests.protocols.google_gemini.talk import NOW, WEATHER, message_of, shown

USER = {"role": "user", "content": "hi"}
FORMAT = "google-gemini-v1"
THREE = Ability(levels=("low", "medium", "high"), signs=True)


def sent(*messages: Any, ability: Ability | None = None, output_cap: int | None = None, **fields: Any) -> Any:
    chat = {"model": "m-1", "messages": list(messages or [USER])} | fields
    parse(chat, 1000)
    return body(chat, ability=ability or Ability(), output_cap=output_cap)


def contents(*messages: Any, **fields: Any) -> Any:
    return sent(*messages, **fields)["contents"]


def config(**fields: Any) -> Any:
    return sent(**fields).get("generationConfig", {})


def refused(*messages: Any, **fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        sent(*messages, **fields)
    return caught.value.param


def called(*ids: str, **message: Any) -> dict[str, Any]:
    function = {"name": "get_w", "arguments": '{"city":"Oslo"}'}
    calls = [{"id": id, "type": "function", "function": function} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls} | message


def result(id: str, content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def test_the_least_and_the_paths() -> None:
    assert sent() == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    assert path("g-1", True) == "/models/g-1:streamGenerateContent?alt=sse"
    assert path("models/g-1", False) == "/models/g-1:generateContent"
    assert path("../x?y", False) == "/models/..%2Fx%3Fy:generateContent"


def test_instructions_have_one_place_and_none_is_lost() -> None:
    made = sent(
        {"role": "system", "content": "a"}, USER, {"role": "developer", "content": [{"type": "text", "text": "b"}]}
    )
    assert made["systemInstruction"] == {"parts": [{"text": "a"}, {"text": "b"}]}
    assert made["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]


def test_instructions_alone_are_said() -> None:
    made = sent({"role": "system", "content": "a"})
    assert made == {"contents": [{"role": "user", "parts": [{"text": "a"}]}]}


def test_empty_texts_do_not_go() -> None:
    empty = {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "x"}]}
    assert contents(empty, {"role": "assistant", "content": ""}, {"role": "user", "content": ""}, USER) == [
        {"role": "user", "parts": [{"text": "x"}, {"text": "hi"}]}
    ]
    assert refused({"role": "user", "content": ""}) == "messages"


def test_results_stand_in_the_order_of_their_calls() -> None:
    made = contents(USER, called("a", "b"), result("b", '{"t":2}'), result("a", ""), USER)
    call = {"name": "get_w", "args": {"city": "Oslo"}}
    assert made[1:] == [
        {"role": "model", "parts": [{"functionCall": {"id": "a"} | call}, {"functionCall": {"id": "b"} | call}]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "a", "name": "get_w", "response": {"output": ""}}},
                {"functionResponse": {"id": "b", "name": "get_w", "response": {"t": 2}}},
            ],
        },
        {"role": "user", "parts": [{"text": "hi"}]},
    ]


def test_ids_do_not_go_where_they_are_not_taken() -> None:
    made = contents(USER, called("a"), result("a"), ability=Ability(ids=False))
    assert "id" not in made[1]["parts"][0]["functionCall"]
    assert "id" not in made[2]["parts"][0]["functionResponse"]


def test_a_call_without_a_result_and_a_result_without_a_call() -> None:
    def responses(*messages: Any) -> list[Any]:
        """What stands behind the call: each result, and what the user says."""
        parts = [part for content in contents(*messages)[2:] for part in content["parts"]]
        return [(part["functionResponse"]["id"], part["functionResponse"]["response"]) if "functionResponse" in part
                else part["text"] for part in parts]  # fmt: skip

    ok, none = ("a", {"output": "ok"}), {"output": "The tool gave no result."}
    assert responses(USER, called("a", "b"), result("a"), USER) == [ok, ("b", none), "hi"]
    assert responses(USER, called("b", "a"), result("a")) == [("b", none), ok]
    assert responses(USER, called("a")) == [("a", none)]
    for more in ("c", "a"):
        told = [f"Result of the tool call {more}:", "late"]
        assert responses(USER, called("a"), result("a"), result(more, "late"), USER) == [ok, *told, "hi"]


def test_the_older_form_of_calls() -> None:
    older = {"role": "assistant", "content": None, "function_call": {"name": "get_w", "arguments": ""}}
    made = sent(
        USER, older, {"role": "function", "name": "get_w", "content": "ok"},
        functions=[WEATHER["function"]], function_call={"name": "get_w"},
    )  # fmt: skip
    assert made["contents"][1]["parts"][0]["functionCall"] == {"id": "get_w", "name": "get_w", "args": {}}
    assert made["contents"][2]["parts"][0]["functionResponse"]["response"] == {"output": "ok"}
    assert made["toolConfig"]["functionCallingConfig"] == {"mode": "ANY", "allowedFunctionNames": ["get_w"]}


@pytest.mark.parametrize("written", ['{"a":', "[1]", "7", "nonsense", '{"a":NaN}'])
def test_arguments_that_are_no_object_go_as_text(written: str) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "get_w", "arguments": written}}
    made = contents(USER, {"role": "assistant", "tool_calls": [call]}, result("a"))
    assert made[1]["parts"][0]["functionCall"]["args"] == {"arguments": written}


@pytest.mark.parametrize("case", ["thoughts", "tools_parallel", "tool_one"])
@pytest.mark.parametrize("lost", ["", "reasoning_details", "extra_content"])
def test_a_signature_comes_back_on_its_call(case: str, lost: str) -> None:
    """Turn 1 as a client got it, with or without what some clients drop; turn 2 as the provider gets it."""
    turn = message_of(shown(case)[1])
    turn.pop(lost, None)
    for call in turn["tool_calls"] if lost == "extra_content" else ():
        call.pop(lost, None)
    results = [result(call["id"]) for call in turn["tool_calls"]]
    parts = contents(USER, turn, *results, tools=[WEATHER, NOW], ability=THREE)[1]["parts"]
    signed = [part.get("thoughtSignature") for part in parts if "functionCall" in part]
    signature = "c2lnL+8=" if case == "thoughts" else "U0lHMQ=="
    assert signed == [signature] + [None] * (len(results) - 1)


def test_a_lost_signature_is_told_where_the_model_demands_one() -> None:
    old, step = called("o"), called("a", "b")
    history = [USER, old, result("o"), USER, step, result("a"), result("b"), called("c"), result("c")]

    def signatures_of(ability: Ability) -> list[Any]:
        turns = contents(*history, ability=ability)
        return [part.get("thoughtSignature") for turn in turns for part in turn["parts"] if "functionCall" in part]

    assert signatures_of(THREE) == [None, NO_SIGNATURE, None, NO_SIGNATURE]
    assert signatures_of(Ability()) == [None] * 4


def test_thoughts_and_texts_go_back_part_by_part() -> None:
    details = [
        {"type": "reasoning.text", "text": "Hm.", "signature": "VGg=", "format": FORMAT, "index": 0},
        {"type": "reasoning.text", "text": "Theirs.", "format": "anthropic-claude-v1", "index": 1},
        {"type": "reasoning.encrypted", "data": "VHg=", "format": FORMAT, "index": 2, "span": [1, 2]},
        {"type": "reasoning.encrypted", "data": "RW4=", "format": FORMAT, "index": 3, "span": [3, 3]},
    ]
    turn = {"role": "assistant", "content": "421", "reasoning_details": details}
    assert contents(USER, turn, USER)[1]["parts"] == [
        {"text": "Hm.", "thought": True, "thoughtSignature": "VGg="},
        {"text": "4"},
        {"text": "2", "thoughtSignature": "VHg="},
        {"text": "1"},
        {"text": "", "thoughtSignature": "RW4="},
    ]


@pytest.mark.parametrize("span", [[0, 99], [-1, 1], ["a", 2], [2, 1], None])
def test_a_text_that_was_changed_is_signed_as_a_whole(span: Any) -> None:
    entry = {"type": "reasoning.encrypted", "data": "VHg=", "format": FORMAT, "span": span}
    turn = {"role": "assistant", "content": "42", "reasoning_details": [entry]}
    assert contents(USER, turn, USER)[1]["parts"] == [{"text": "42", "thoughtSignature": "VHg="}]


def test_pictures_of_an_answer_go_back_signed() -> None:
    turn = message_of(shown("picture")[1])
    assert contents(USER, turn, USER)[1]["parts"] == [
        {"text": "Here: "},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}, "thoughtSignature": "UGlj"},
    ]


def test_media() -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:IMAGE/JPG;charset=x;base64,_9j-\n", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://img.test/gone.png", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,UklG", "filename": "a.pdf"}},
        {"type": "video_url", "video_url": {"url": "https://youtu.be/x"}},
    ]
    made = sent({"role": "user", "content": content})
    assert made["contents"][0]["parts"] == [
        {"text": "look"},
        {"inlineData": {"mimeType": "image/jpeg", "data": "/9j+"}},
        {"fileData": {"fileUri": "https://img.test/gone.png", "mimeType": "image/png"}},
        {"inlineData": {"mimeType": "application/pdf", "data": "UklG"}},
        {"fileData": {"fileUri": "https://youtu.be/x"}},
    ]
    assert made["generationConfig"] == {"mediaResolution": "MEDIA_RESOLUTION_LOW"}


@pytest.mark.parametrize(("form", "kind"), [
    ("wav", "audio/wav"), ("mp3", "audio/mp3"), ("flac", "audio/flac"), ("ogg", "audio/ogg"), ("opus", "audio/ogg"),
    ("m4a", "audio/m4a"), ("aac", "audio/aac"), ("webm", "audio/webm"), ("pcm16", "audio/pcm"),
])  # fmt: skip
def test_audio(form: str, kind: str) -> None:
    piece = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": form}}
    parts = contents({"role": "user", "content": [piece]})[0]["parts"]
    assert parts == [{"inlineData": {"mimeType": kind, "data": "UklGRg=="}}]


def test_what_cannot_be_carried_is_refused_by_name() -> None:
    assert (
        refused({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}) == "messages[0].content[0]"
    )
    assert refused(USER, {"role": "assistant", "audio": {"id": "a"}}, USER) == "messages[1].audio"
    fields: tuple[dict[str, Any], ...] = (
        {"logit_bias": {"1": 5}},
        {"parallel_tool_calls": False},
        {"verbosity": "low"},
        {"prediction": {}},
        {"store": True},
        {"service_tier": "flex"},
        {"min_p": 0.1},
    )
    for field in fields:
        assert refused(**field) == next(iter(field))
    location = {"type": "approximate", "approximate": {"city": "Oslo"}}
    assert refused(web_search_options={"user_location": location}) == "web_search_options.user_location"
    assert refused(seed=2**40) == "seed"
    assert refused(USER, {"role": "assistant", "content": "a", "images": 7}, USER) == "messages[1].images"


def test_what_asks_for_nothing_and_labels_do_not_go() -> None:
    assert sent(
        user="u", metadata={"a": "b"}, parallel_tool_calls=True, store=False, service_tier="auto", modalities=["text"],
        response_format={"type": "text"}, stream=True, stream_options={"include_usage": True}, tools=[],
    ) == sent()  # fmt: skip


def test_every_field_of_the_configuration() -> None:
    assert config(
        temperature=1, top_p=0.9, top_k=40, n=2, max_tokens=9, stop="a", presence_penalty=1, frequency_penalty=-1,
        seed=7, logprobs=True, top_logprobs=3, modalities=["text", "image"],
    ) == {
        "temperature": 1, "topP": 0.9, "topK": 40, "candidateCount": 2, "maxOutputTokens": 9, "stopSequences": ["a"],
        "presencePenalty": 1, "frequencyPenalty": -1, "seed": 7, "responseLogprobs": True, "logprobs": 3,
        "responseModalities": ["TEXT", "IMAGE"],
    }  # fmt: skip
    assert sent(max_tokens=9, output_cap=5)["generationConfig"] == {"maxOutputTokens": 5}
    assert config(max_tokens=9, max_completion_tokens=7) == {"maxOutputTokens": 7}


PRO = Ability(least=128, most=32_768, stops=False)


@pytest.mark.parametrize(("fields", "ability", "thinking"), [
    ({}, Ability(), None),
    ({"reasoning": {"enabled": True}}, Ability(), {"includeThoughts": True, "thinkingBudget": -1}),
    ({"reasoning": {"enabled": True, "exclude": True}}, Ability(), {"thinkingBudget": -1}),
    ({"reasoning": {"enabled": False}}, Ability(), {"thinkingBudget": 0}),
    ({"reasoning": {"enabled": False}}, PRO, {"thinkingBudget": 128}),
    ({"reasoning_effort": "none"}, Ability(), {"thinkingBudget": 0}),
    ({"reasoning_effort": "minimal"}, Ability(), {"includeThoughts": True, "thinkingBudget": 0}),
    ({"reasoning_effort": "high", "max_tokens": 10_000}, Ability(), {"includeThoughts": True, "thinkingBudget": 8000}),
    ({"reasoning_effort": "high", "max_tokens": 900}, Ability(), {"includeThoughts": True, "thinkingBudget": 899}),
    ({"reasoning_effort": "high", "max_tokens": 100}, Ability(), {"includeThoughts": True, "thinkingBudget": 0}),
    ({"reasoning": {"max_tokens": 9}}, Ability(), {"includeThoughts": True, "thinkingBudget": 128}),
    ({"reasoning": {"max_tokens": 99_999}}, PRO, {"includeThoughts": True, "thinkingBudget": 32_768}),
    ({"reasoning": {"max_tokens": 99_999}, "max_tokens": 4000}, PRO, {"includeThoughts": True, "thinkingBudget": 3999}),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, PRO, {"includeThoughts": True, "thinkingBudget": 2000}),
    ({"thinking": {"type": "disabled"}}, Ability(), {"thinkingBudget": 0}),
    ({"reasoning_effort": "xhigh"}, THREE, {"includeThoughts": True, "thinkingLevel": "HIGH"}),
    ({"reasoning_effort": "minimal"}, THREE, {"includeThoughts": True, "thinkingLevel": "LOW"}),
    ({"reasoning": {"enabled": False}}, THREE, {"thinkingLevel": "LOW"}),
    ({"reasoning": {"enabled": True}}, THREE, {"includeThoughts": True}),
    ({"reasoning": {"max_tokens": 3000}}, THREE, {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
    ({"include_reasoning": True}, THREE, {"includeThoughts": True}),
])  # fmt: skip
def test_thinking(fields: Any, ability: Ability, thinking: Any) -> None:
    assert sent(ability=ability, **fields).get("generationConfig", {}).get("thinkingConfig") == thinking


def test_tools_without_parameters_go_without() -> None:
    bare = [{"type": "function", "function": {"name": name}} for name in ("a", "b", "c")]
    bare[1]["function"]["parameters"] = {}  # type: ignore[index]
    bare[2]["function"]["parameters"] = {"type": "object", "properties": {}}  # type: ignore[index]
    declared = sent(tools=bare)["tools"][0]["functionDeclarations"]
    assert declared == [{"name": "a"}, {"name": "b"}, {"name": "c"}]


def test_the_choice_among_tools() -> None:
    tools = [WEATHER, NOW]
    one = {"type": "function", "function": {"name": "now"}}
    for choice, calling, names in (
        ("auto", None, ["get_w", "now"]),
        ("none", {"mode": "NONE"}, ["get_w", "now"]),
        ("required", {"mode": "ANY"}, ["get_w", "now"]),
        (one, {"mode": "ANY", "allowedFunctionNames": ["now"]}, ["get_w", "now"]),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [one]}},
         {"mode": "ANY", "allowedFunctionNames": ["now"]}, ["get_w", "now"]),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [one]}}, None, ["now"]),
    ):  # fmt: skip
        made = sent(tools=tools, tool_choice=choice)
        assert made.get("toolConfig", {}).get("functionCallingConfig") == calling
        assert [declared["name"] for declared in made["tools"][0]["functionDeclarations"]] == names


def test_a_custom_tool_is_a_function_of_one_text() -> None:
    custom = {
        "name": "sh",
        "description": "d",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "a"}},
    }
    call = {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    made = sent(
        USER, {"role": "assistant", "tool_calls": [call]}, result("a"), tools=[{"type": "custom", "custom": custom}]
    )
    (declared,) = made["tools"][0]["functionDeclarations"]
    assert declared["parametersJsonSchema"]["required"] == ["input"]
    assert "lark" in declared["parametersJsonSchema"]["properties"]["input"]["description"]
    assert made["contents"][1]["parts"][0]["functionCall"]["args"] == {"input": "ls"}


def test_names_that_google_refuses_are_mapped() -> None:
    tool = {"type": "function", "function": {"name": "2fa-check"}}
    call = {"id": "a", "type": "function", "function": {"name": "2fa-check", "arguments": "{}"}}
    made = sent(
        USER, {"role": "assistant", "tool_calls": [call]}, result("a"),
        tools=[tool], tool_choice={"type": "function", "function": {"name": "2fa-check"}},
    )  # fmt: skip
    (declared,) = made["tools"][0]["functionDeclarations"]
    name = declared["name"]
    assert name[0] == "_" and len(name) <= 64
    assert made["contents"][1]["parts"][0]["functionCall"]["name"] == name
    assert made["contents"][2]["parts"][0]["functionResponse"]["name"] == name
    assert made["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == [name]


SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["p"],
    "properties": {"p": {"$ref": "#/$defs/P"}},
    "$defs": {"P": {"type": "object", "additionalProperties": False, "properties": {"x": {"type": "integer"}}}},
}


def test_structured_output_is_native() -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "r", "strict": True, "schema": SCHEMA}}
    inlined = {
        "type": "object",
        "additionalProperties": False,
        "required": ["p"],
        "properties": {"p": SCHEMA["$defs"]["P"]},  # type: ignore[index]
    }
    assert config(response_format=asked) == {"responseMimeType": "application/json", "responseJsonSchema": inlined}
    assert config(response_format={"type": "json_object"}) == {"responseMimeType": "application/json"}
    older = sent(response_format=asked, ability=Ability(json_schemas=False))["generationConfig"]["responseSchema"]
    assert older["properties"]["p"] == {"type": "OBJECT", "properties": {"x": {"type": "INTEGER"}}}


def test_a_schema_that_refers_nowhere_is_refused_by_name() -> None:
    broken = {"type": "object", "properties": {"p": {"$ref": "#/$defs/Q"}}}
    asked = {"type": "json_schema", "json_schema": {"name": "r", "schema": broken}}
    assert refused(response_format=asked) == "response_format.json_schema.schema"
    tool = {"type": "function", "function": {"name": "f", "parameters": broken}}
    assert refused(tools=[WEATHER, tool]) == "tools[1].function.parameters"


def test_all_schemas_of_a_request_share_one_bound() -> None:
    nodes = {f"a{at}": {"anyOf": [{"$ref": f"#/$defs/a{at + 1}"}] * 2} for at in range(11)} | {
        "a11": {"type": "string"}
    }
    schema = {"type": "object", "properties": {"p": {"$ref": "#/$defs/a0"}}, "$defs": nodes}
    tools = [{"type": "function", "function": {"name": f"t{at}", "parameters": schema}} for at in range(9)]
    sent(tools=tools[:1])
    assert refused(tools=tools) == "tools[1].function.parameters"


def test_a_body_of_the_same_protocol_passes_with_every_field() -> None:
    snake = {"contents": [], "generation_config": {"max_output_tokens": 9, "speech_config": {}}, "x": 1, "model": "m"}
    assert native_body(snake) == {"contents": [], "generation_config": snake["generation_config"], "x": 1}
    capped = {"contents": [], "generation_config": {"speech_config": {}, "maxOutputTokens": 5}, "x": 1}
    assert native_body(snake, output_cap=5) == capped
    assert native_body({}, output_cap=5) == {"generationConfig": {"maxOutputTokens": 5}}


def test_a_search_is_a_tool() -> None:
    assert sent(web_search_options={})["tools"] == [{"googleSearch": {}}]
    assert sent(safety_settings=[{"category": "C", "threshold": "OFF"}])["safetySettings"][0]["threshold"] == "OFF"
