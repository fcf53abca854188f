"""A generateContent body as a chat body."""

import json
from typing import Any

import pytest

from gateway.protocols.google_gemini.client_request import ChatForm, chat_form
from gateway.protocols.google_gemini.sides import read_counted
from gateway.protocols.google_gemini.signatures import NO_SIGNATURE, pack
from gateway.protocols.openai_chat import parse
from gateway.wire.errors import InvalidRequest

THINKING = "generationConfig.thinkingConfig"
USER = {"role": "user", "parts": [{"text": "hi"}]}


def read(*, stream: bool = False, **body: Any) -> ChatForm:
    form = chat_form({"contents": [USER]} | body, model="m-1", stream=stream)
    parse(form.body, 1000)  # whatever comes out, the chat form takes it
    return form


def messages(*contents: Any, **body: Any) -> Any:
    return read(contents=list(contents), **body).body["messages"]


def refused(**body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        form = chat_form({"contents": [USER]} | body, model="m-1", stream=False)
        try:
            parse(form.body, 1000)
        except InvalidRequest as error:
            error.param = form.told(error.param)
            raise
    return caught.value


def test_the_least() -> None:
    assert read().body == {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]}
    assert read(stream=True).body["stream_options"] == {"include_usage": True}


def test_both_spellings_of_names() -> None:
    camel: Any = {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {"maxOutputTokens": 50, "stopSequences": ["x"], "topP": 0.5},
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object"}}]}],
    }
    snake: Any = {
        "system_instruction": {"parts": {"text": "Be brief."}},
        "generation_config": {"max_output_tokens": 50, "stop_sequences": ["x"], "top_p": 0.5},
        "tool_config": {"function_calling_config": {"mode": "any"}},
        "tools": {"function_declarations": {"name": "f", "parameters_json_schema": {"type": "object"}}},
    }
    assert read(**camel).body == read(**snake).body
    body = read(**camel).body
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["max_tokens"], body["stop"], body["top_p"], body["tool_choice"]) == (50, ["x"], 0.5, "required")


def test_a_name_in_both_spellings_is_refused() -> None:
    assert refused(generationConfig={"topP": 1, "top_p": 0}).param == "generationConfig.topP"


def test_every_field_of_the_configuration() -> None:
    config = {
        "temperature": 1,
        "topP": 0.9,
        "topK": 40,
        "candidateCount": 2,
        "maxOutputTokens": 9,
        "stopSequences": ["a"],
        "presencePenalty": 1,
        "frequencyPenalty": -1,
        "seed": 7,
        "responseLogprobs": True,
        "logprobs": 3,
        "responseModalities": ["TEXT", "IMAGE"],
    }
    form = read(generationConfig=config)
    assert form.hints == ("top_k",)
    body = form.body
    del body["messages"]
    assert body == {
        "model": "m-1",
        "temperature": 1,
        "top_p": 0.9,
        "top_k": 40,
        "n": 2,
        "max_tokens": 9,
        "stop": ["a"],
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "seed": 7,
        "logprobs": True,
        "top_logprobs": 3,
        "modalities": ["text", "image"],
    }


@pytest.mark.parametrize(("config", "wish", "shows"), [
    ({"includeThoughts": True}, {"enabled": True}, True),
    ({"includeThoughts": False}, None, False),
    ({"thinkingBudget": 0}, {"enabled": False}, False),
    ({"thinkingBudget": -1}, {"enabled": True}, False),
    ({"thinkingBudget": 512, "includeThoughts": True}, {"enabled": True, "max_tokens": 512}, True),
    ({"thinkingLevel": "high"}, {"enabled": True, "effort": "high"}, False),
    ({"thinkingLevel": "MINIMAL"}, {"enabled": True, "effort": "minimal"}, False),
    ({"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}, None, False),
])  # fmt: skip
def test_thinking(config: Any, wish: Any, shows: bool) -> None:
    form = read(generationConfig={"thinkingConfig": config})
    assert (form.body.get("reasoning"), form.shows_thoughts) == (wish, shows)


def test_structured_output() -> None:
    openapi = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}, "propertyOrdering": ["a"]}
    config = {"responseMimeType": "application/json", "responseSchema": openapi}
    asked = read(generationConfig=config).body["response_format"]
    assert asked["json_schema"]["schema"] == {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
    config = {"responseMimeType": "application/json", "responseJsonSchema": {"type": "array"}}
    asked = read(generationConfig=config).body["response_format"]
    assert asked == {"type": "json_schema", "json_schema": {"name": "response", "schema": {"type": "array"}}}
    only = read(generationConfig={"responseMimeType": "application/json"}).body["response_format"]
    assert only == {"type": "json_object"}
    assert read(generationConfig={"responseMimeType": "text/x.enum"}).only_native == (
        "generationConfig.responseMimeType",
    )


def test_media() -> None:
    parts = [
        {"text": "look"},
        {"inlineData": {"mimeType": "image/png", "data": "_-8="}},
        {"inline_data": {"mime_type": "audio/mpeg", "data": "UklG"}},
        {"inlineData": {"mimeType": "video/mp4", "data": "UklG"}},
        {"inlineData": {"mimeType": "application/pdf", "data": "UklG", "displayName": "a.pdf"}},
        {"fileData": {"fileUri": "https://img.test/a.jpg"}},
        {"fileData": {"fileUri": "https://youtu.be/x"}},
        {"fileData": {"fileUri": "https://doc.test/a", "mimeType": "application/pdf"}},
    ]
    content = messages({"parts": parts})[0]["content"]
    assert content == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,/+8="}},
        {"type": "input_audio", "input_audio": {"data": "UklG", "format": "mp3"}},
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,UklG"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,UklG"}},
        {"type": "image_url", "image_url": {"url": "https://img.test/a.jpg"}},
        {"type": "video_url", "video_url": {"url": "https://youtu.be/x"}},
        {"type": "file", "file": {"file_data": "https://doc.test/a"}},
    ]


@pytest.mark.parametrize("uri", [
    "gs://bucket/a.png",
    "https://generativelanguage.googleapis.com/v1beta/files/abc",
    "files/abc",
    "file:///etc/passwd",
    "https://[",
])  # fmt: skip
def test_what_lies_in_an_account_of_the_gateways_is_nobodys_to_name(uri: str) -> None:
    error = refused(contents=[{"parts": [{"fileData": {"fileUri": uri}}]}])
    assert error.param == "contents[0].parts[0].fileData.fileUri"


def test_kept_content_is_refused_by_name() -> None:
    assert refused(cachedContent="cachedContents/1").param == "cachedContent"
    assert refused(cached_content="cachedContents/1").param == "cachedContent"


CALL = {"functionCall": {"name": "get_w", "args": {"city": "Oslo"}}}


def test_calls_without_ids_find_their_results() -> None:
    history = messages(
        USER,
        {"role": "model", "parts": [CALL | {"thoughtSignature": "U0lH"}, CALL, {"functionCall": {"name": "now"}}]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "now", "response": {"output": "12:00"}}},
                {"functionResponse": {"name": "get_w", "response": {"t": 1}}},
                {"text": "go on"},
                {"functionResponse": {"name": "get_w", "response": {"t": 2}}},
            ],
        },
    )
    ids = [call["id"] for call in history[1]["tool_calls"]]
    assert ids == ["call_1_0", "call_1_1", "call_1_2"]
    assert [(turn["role"], turn.get("tool_call_id"), turn["content"]) for turn in history[2:]] == [
        ("tool", "call_1_2", "12:00"),
        ("tool", "call_1_0", '{"t":1}'),
        ("tool", "call_1_1", '{"t":2}'),
        ("user", None, "go on"),
    ]
    (entry,) = history[1]["reasoning_details"]
    assert (entry["data"], entry["id"], entry["format"]) == ("U0lH", "call_1_0", "google-gemini-v1")


def test_ids_win_over_names() -> None:
    calls: Any = [{"functionCall": {"id": id, "name": "get_w", "args": {}}} for id in ("a", "b")]
    answers = [{"functionResponse": {"id": id, "name": "get_w", "response": {"n": id}}} for id in ("b", "a")]
    history = messages(USER, {"role": "model", "parts": calls}, {"parts": answers})
    assert [turn["tool_call_id"] for turn in history[2:]] == ["b", "a"]


def test_a_result_without_a_call_is_refused() -> None:
    answer = {"parts": [{"functionResponse": {"name": "get_w", "response": {}}}]}
    assert refused(contents=[USER, answer]).param == "contents[1].parts[0].functionResponse"
    twice = {"parts": [*answer["parts"], *answer["parts"]]}
    error = refused(contents=[USER, {"role": "model", "parts": [CALL]}, twice])
    assert error.param == "contents[2].parts[1].functionResponse"


def test_a_turn_may_come_in_several_contents() -> None:
    first, second = ({"role": "model", "parts": [CALL]} for _ in "ab")
    answers = [{"parts": [{"functionResponse": {"name": "get_w", "response": {"n": n}}}]} for n in (1, 2)]
    history = messages(USER, first, second, *answers)
    assert [call["id"] for call in history[1]["tool_calls"]] == ["call_1_0", "call_2_0"]
    assert [turn.get("tool_call_id") for turn in history[2:]] == ["call_1_0", "call_2_0"]
    error = refused(contents=[USER, first, USER, second, *answers])
    assert error.param == "contents[5].parts[0].functionResponse"


def test_media_in_a_result_follow_it() -> None:
    answer = {
        "functionResponse": {
            "name": "get_w",
            "response": {"output": "see"},
            "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBO"}}],
        }
    }
    history = messages(USER, {"role": "model", "parts": [CALL]}, {"parts": [answer]})
    assert history[2] == {"role": "tool", "tool_call_id": "call_1_0", "content": "see"}
    assert history[3]["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}]


def test_thoughts_and_signatures_of_a_turn() -> None:
    turn = messages(
        USER,
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True, "thoughtSignature": "VGg="},
                {"text": "I look "},
                {"text": "it up.", "thoughtSignature": "VHg="},
                {"text": "", "thoughtSignature": "RW4="},
                CALL | {"thoughtSignature": NO_SIGNATURE},
            ],
        },
        {"parts": [{"functionResponse": {"name": "get_w", "response": {}}}]},
    )[1]
    assert turn["content"] == "I look it up."
    form = "google-gemini-v1"
    assert turn["reasoning_details"] == [
        {"type": "reasoning.text", "text": "Hm.", "format": form, "index": 0, "signature": "VGg="},
        {"type": "reasoning.encrypted", "data": "VHg=", "format": form, "index": 1, "span": [7, 13]},
        {"type": "reasoning.encrypted", "data": "RW4=", "format": form, "index": 2, "span": [13, 13]},
    ]


@pytest.mark.parametrize("alphabet", [str, lambda packed: packed.translate(str.maketrans("+/", "-_")).rstrip("=")])
def test_what_others_thought_is_unpacked(alphabet: Any) -> None:
    entries = [
        {
            "type": "reasoning.text",
            "text": "Hm ÿ÷\u2028?>",
            "signature": "+/8=",
            "format": "anthropic-claude-v1",
            "index": 0,
        },
        {"type": "reasoning.encrypted", "data": "~~~", "format": "anthropic-claude-v1", "index": 1},
    ]
    parts = [{"text": "Hm", "thought": True}, CALL | {"thoughtSignature": alphabet(pack(entries))}]
    answer = {"parts": [{"functionResponse": {"name": "get_w", "response": {}}}]}
    turn = messages(USER, {"role": "model", "parts": parts}, answer)[1]
    assert turn["reasoning_details"] == entries


def test_a_turn_that_said_nothing_is_left_out() -> None:
    assert messages(USER, {"role": "model", "parts": []}, USER) == [{"role": "user", "content": "hi"}] * 2


def test_tools_and_the_choice_among_them() -> None:
    declared = [
        {
            "name": "get_w",
            "description": "d",
            "parameters": {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}},
        },
        {"name": "now", "parametersJsonSchema": {"type": "object", "$defs": {}}},
    ]
    tools = [{"functionDeclarations": declared}, {"googleSearch": {}}]
    body = read(tools=tools).body
    assert body["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert body["tools"][1]["function"] == {"name": "now", "parameters": {"type": "object", "$defs": {}}}
    assert body["web_search_options"] == {}
    one, two = ({"type": "function", "function": {"name": name}} for name in ("get_w", "now"))
    for calling, choice in (
        ({"mode": "NONE"}, "none"),
        ({"mode": "AUTO"}, None),
        ({"mode": "ANY"}, "required"),
        ({"mode": "ANY", "allowedFunctionNames": ["get_w"]}, one),
        ({"mode": "ANY", "allowedFunctionNames": ["get_w", "now"]}, {"mode": "required", "tools": [one, two]}),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["now"]}, {"mode": "auto", "tools": [two]}),
    ):
        made = read(tools=tools, toolConfig={"functionCallingConfig": calling}).body.get("tool_choice")
        assert (made["allowed_tools"] if type(made) is dict and "allowed_tools" in made else made) == choice


def test_names_that_a_chat_refuses_are_mapped() -> None:
    tools = [{"functionDeclarations": [{"name": "srv.get:w"}, {"name": "fine"}]}]
    call = {"role": "model", "parts": [{"functionCall": {"name": "srv.get:w", "args": {}}}]}
    answer = {"parts": [{"functionResponse": {"name": "srv.get:w", "response": {}}}]}
    form = read(contents=[USER, call, answer], tools=tools)
    name = form.body["tools"][0]["function"]["name"]
    assert name != "srv.get:w" and form.names.back(name) == "srv.get:w"
    assert form.body["messages"][1]["tool_calls"][0]["function"]["name"] == name
    assert form.body["tools"][1]["function"]["name"] == "fine"


@pytest.mark.parametrize(("body", "path"), [
    ({"tools": [{"codeExecution": {}}]}, "tools[0].codeExecution"),
    ({"tools": [{"urlContext": {}}]}, "tools[0].urlContext"),
    ({"tools": [{"googleSearch": {"excludeDomains": ["a"]}}]}, "tools[0].googleSearch"),
    ({"toolConfig": {"retrievalConfig": {"languageCode": "no"}}}, "toolConfig.retrievalConfig"),
    ({"generationConfig": {"speechConfig": {}}}, "generationConfig.speechConfig"),
    ({"generationConfig": {"responseModalities": ["AUDIO"]}}, "generationConfig.responseModalities"),
    ({"generationConfig": {"mediaResolution": "MEDIA_RESOLUTION_LOW"}}, "generationConfig.mediaResolution"),
    ({"safetySettings": [{"category": "C", "threshold": "BLOCK_LOW_AND_ABOVE"}]}, "safetySettings"),
    ({"contents": [USER, {"role": "model", "parts": [{"executableCode": {"code": "1"}}]}]},
     "contents[1].parts[0].executableCode"),
    ({"contents": [{"parts": [{"text": "x", "videoMetadata": {"fps": 1}}]}]}, "contents[0].parts[0].videoMetadata"),
    ({"somethingNew": 1}, "somethingNew"),
])  # fmt: skip
def test_what_only_google_has_is_named(body: Any, path: str) -> None:
    assert read(**body).only_native == (path,)


def test_filters_that_are_off_ask_nothing() -> None:
    assert read(safetySettings=[{"category": "C", "threshold": "BLOCK_NONE"}]).only_native == ()


def test_labels_and_the_class_of_service() -> None:
    body = read(labels={"team": "a"}, serviceTier="SERVICE_TIER_FLEX").body
    assert (body["metadata"], body["service_tier"]) == ({"team": "a"}, "flex")


@pytest.mark.parametrize(("body", "param"), [
    ({"contents": None}, "contents"),
    ({"contents": 7}, "contents"),
    ({"contents": []}, "contents"),
    ({"contents": [7]}, "contents[0]"),
    ({"contents": [{"role": "system", "parts": [{"text": "x"}]}]}, "contents[0].role"),
    ({"contents": [{"parts": []}]}, "contents[0].parts"),
    ({"contents": [{"parts": [{"text": 7}]}]}, "contents[0].parts[0].text"),
    ({"contents": [{"parts": [{"text": "a", "inlineData": {}}]}]}, "contents[0].parts[0]"),
    ({"contents": [{"parts": [{"inlineData": {"data": "AAAA"}}]}]}, "contents[0].parts[0].inlineData.mimeType"),
    ({"contents": [{"parts": [{"inlineData": {"mimeType": "image/png"}}]}]}, "contents[0].parts[0].inlineData.data"),
    ({"contents": [USER, {"parts": [{"text": "a"}, {"inlineData": {"mimeType": "image/svg+xml", "data": "AAAA"}}]}]},
     "contents[1].parts[1]"),
    ({"contents": [{"role": "model", "parts": [{"functionCall": {"args": {}}}]}]},
     "contents[0].parts[0].functionCall.name"),
    ({"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": 7}}]}]},
     "contents[0].parts[0].functionCall.args"),
    ({"systemInstruction": {"parts": [{"inlineData": {}}]}}, "systemInstruction.parts[0].text"),
    ({"generationConfig": {"temperature": 3}}, "generationConfig.temperature"),
    ({"generationConfig": {"candidateCount": 99}}, "generationConfig.candidateCount"),
    ({"generationConfig": {"thinkingConfig": {"thinkingBudget": -2}}}, f"{THINKING}.thinkingBudget"),
    ({"generationConfig": {"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}}},
     f"{THINKING}.thinkingBudget"),
    ({"generationConfig": {"thinkingConfig": {"thinkingLevel": "SOME"}}}, f"{THINKING}.thinkingLevel"),
    ({"generationConfig": {"responseSchema": {}}}, "generationConfig.responseSchema"),
    ({"toolConfig": {"functionCallingConfig": {"mode": "SOME"}}}, "toolConfig.functionCallingConfig.mode"),
    ({"tools": [{"functionDeclarations": [{"description": "d"}]}]}, "tools[0].functionDeclarations[0].name"),
    ({"tools": [{"functionDeclarations": [{"name": "f", "parameters": 7}]}]},
     "tools[0].functionDeclarations[0].parameters"),
    ({"model": "models/other"}, "model"),
])  # fmt: skip
def test_refusals_name_the_clients_own_path(body: Any, param: str) -> None:
    assert refused(**body).param == param


def test_a_body_that_is_no_object() -> None:
    with pytest.raises(InvalidRequest):
        chat_form([], model="m-1", stream=False)


def test_counting_takes_contents_or_a_whole_request() -> None:
    whole = {"model": "models/m-1", "contents": [USER], "systemInstruction": {"parts": [{"text": "s"}]}}
    asked = read_counted({"generateContentRequest": whole}, 100, model="m-1")
    assert [turn["role"] for turn in asked.body["messages"]] == ["system", "user"]
    alone = read_counted({"contents": [USER]}, 100, model="m-1")
    assert alone.body["messages"] == [{"role": "user", "content": "hi"}]


def test_many_calls_are_matched_in_linear_time() -> None:
    calls = [{"functionCall": {"id": str(at), "name": "f", "args": {}}} for at in range(9000)]
    answers = [{"functionResponse": {"name": "f", "response": {"n": at}}} for at in range(9000)]
    history = messages(USER, {"role": "model", "parts": calls}, {"parts": answers[::-1]})
    assert json.loads(history[2]["content"]) == {"n": 8999}
    assert [turn["tool_call_id"] for turn in history[2:]] == [str(at) for at in range(9000)]


def test_contents_of_the_model_that_follow_each_other_are_one_turn() -> None:
    """As Google's SDKs keep a stream: a content an event. Other providers want all calls of a step in one turn."""
    thought = {"text": "Hm", "thought": True, "thoughtSignature": "U0lH"}
    calls: Any = [{"functionCall": {"id": id, "name": "f", "args": {}}} for id in ("a", "b")]
    results = [{"functionResponse": {"id": id, "name": "f", "response": {"output": id}}} for id in ("a", "b")]
    contents = [
        {"role": "user", "parts": [{"text": "hi"}]},
        *({"role": "model", "parts": [part]} for part in (thought, {"text": "One "}, {"text": "two."}, *calls)),
        {"role": "model", "parts": []},
        {"role": "user", "parts": results},
        {"role": "model", "parts": [{"text": "Done."}]},
    ]
    _, turn, *answers, done = chat_form({"contents": contents}, model="m", stream=False).body["messages"]
    assert turn["content"] == "One two."
    assert [call["id"] for call in turn["tool_calls"]] == ["a", "b"]
    assert turn["reasoning_details"] == [
        {"type": "reasoning.text", "text": "Hm", "signature": "U0lH", "format": "google-gemini-v1", "index": 0}
    ]
    assert [(answer["tool_call_id"], answer["content"]) for answer in answers] == [("a", "a"), ("b", "b")]
    assert done == {"role": "assistant", "content": "Done."}
