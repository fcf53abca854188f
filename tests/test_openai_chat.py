"""OpenAI chat requests: what is taken, what is refused by name, and what an upstream then gets."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import strict_json
from gateway.errors import InvalidRequest
from gateway.protocols import PROTOCOLS
from gateway.protocols.openai_chat import ChatRequest, parse, upstream_body

OPTIONAL = (
    *("stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "stop", "tools", "metadata"),
    *("user", "user_id", "safety_identifier", "temperature", "top_p", "presence_penalty"),
)
HI: dict[str, Any] = {"role": "user", "content": "hi"}


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": "m-1", "messages": [HI]} | fields


def read(**fields: Any) -> ChatRequest:
    body = ask(**fields)
    return parse(body, len(strict_json.dumps(body)))


def refused(body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse(body, 100)
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    return caught.value


def sent(request: ChatRequest, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "model": "up-1",
        "output_cap": None,
        "cap_field": "max_tokens",
        "ask_usage": True,
    }
    return json.loads(upstream_body(request, **settings | changes))


def test_it_reads_the_smallest_request() -> None:
    body = ask()
    assert parse(body, 52) == ChatRequest(
        body=body,
        model="m-1",
        stream=False,
        include_usage=False,
        output_cap=None,
        n=1,
        end_user=None,
        metadata={},
        text_bytes=52,
        images=0,
        audios=0,
        files=0,
    )


def test_it_is_in_the_registry() -> None:
    assert PROTOCOLS["openai_chat"].parse(ask(), 9).model == "m-1"


def test_it_reads_what_the_gateway_acts_on() -> None:
    request = read(
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=500,
        max_completion_tokens=20,
        n=2,
        user="alice@example.org",
        metadata={"job": "7"},
    )
    assert (request.stream, request.include_usage, request.output_cap, request.n) == (True, True, 20, 2)
    assert (request.end_user, request.metadata) == ("alice@example.org", {"job": "7"})


def test_null_is_absent() -> None:
    request = read(**dict.fromkeys(OPTIONAL))
    assert (request.stream, request.include_usage, request.output_cap, request.n) == (False, False, None, 1)
    assert (request.end_user, request.metadata) == (None, {})


@pytest.mark.parametrize(
    ("fields", "end_user"),
    [
        ({"user": "a", "user_id": "b", "safety_identifier": "c"}, "a"),
        ({"user": "", "user_id": "b", "safety_identifier": "c"}, "b"),
        ({"user": None, "safety_identifier": "c"}, "c"),
        ({"user_id": "ü 1"}, "ü 1"),
        ({"user": "\U0001f469\u200d\U0001f4bb"}, "\U0001f469\u200d\U0001f4bb"),
        ({"user": ""}, None),
        ({"user": "a" * 512}, "a" * 512),
    ],
)
def test_the_end_user_has_three_names(fields: dict[str, Any], end_user: str | None) -> None:
    assert read(**fields).end_user == end_user


@pytest.mark.parametrize(
    "message",
    [
        {"role": "developer", "content": "x"},
        {
            "role": "system",
            "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        },
        {"role": "user", "content": "", "name": "bob"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}], "reasoning_details": []},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{"}},
        {"role": "assistant", "refusal": "no"},
        {"role": "assistant", "audio": {"id": "a"}},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "{}"}]},
        {"role": "function", "name": "f", "content": "{}"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
        {"role": "user", "content": [{"type": "something_new", "value": [1]}]},
    ],
)
def test_it_takes_every_form_of_message(message: dict[str, Any]) -> None:
    request = read(messages=[HI, message])
    assert sent(request)["messages"] == [HI, message]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (None, None, "invalid_type"),
        ([], None, "invalid_type"),
        ("x", None, "invalid_type"),
        ({"messages": [HI]}, "model", "missing_required_parameter"),
        (ask(model=None), "model", "missing_required_parameter"),
        (ask(model=""), "model", "missing_required_parameter"),
        (ask(model=["m"]), "model", "invalid_type"),
        (ask(model="m\r\nx-evil: 1"), "model", "invalid_value"),
        (ask(model="m\x00"), "model", "invalid_value"),
        (ask(model="m\x7f"), "model", "invalid_value"),
        (ask(model="m" * 257), "model", "invalid_value"),
        ({"model": "m"}, "messages", "missing_required_parameter"),
        (ask(messages=None), "messages", "missing_required_parameter"),
        (ask(messages={}), "messages", "invalid_type"),
        (ask(messages="hi"), "messages", "invalid_type"),
        (ask(messages=[]), "messages", "invalid_value"),
        (ask(messages=[HI, None]), "messages[1]", "invalid_value"),
        (ask(messages=["hi"]), "messages[0]", "invalid_type"),
        (ask(messages=[{"content": "x"}]), "messages[0].role", "missing_required_parameter"),
        (ask(messages=[HI | {"role": "robot"}]), "messages[0].role", "invalid_value"),
        (ask(messages=[HI | {"role": ["user"]}]), "messages[0].role", "invalid_value"),
        (ask(messages=[{"role": "user"}]), "messages[0].content", "invalid_value"),
        (ask(messages=[HI | {"content": None}]), "messages[0].content", "invalid_value"),
        (ask(messages=[{"role": "tool", "tool_calls": [{}]}]), "messages[0].content", "invalid_value"),
        (ask(messages=[{"role": "assistant"}]), "messages[0].content", "invalid_value"),
        (ask(messages=[{"role": "assistant", "tool_calls": []}]), "messages[0].content", "invalid_value"),
        (ask(messages=[HI | {"content": 5}]), "messages[0].content", "invalid_type"),
        (ask(messages=[HI | {"content": {"type": "text"}}]), "messages[0].content", "invalid_type"),
        (ask(messages=[HI | {"content": ["x"]}]), "messages[0].content[0]", "invalid_type"),
        (ask(messages=[HI | {"content": [{}]}]), "messages[0].content[0]", "invalid_type"),
        (
            ask(messages=[HI | {"content": [{"type": "text", "text": 1}]}]),
            "messages[0].content[0].text",
            "invalid_type",
        ),
        (
            ask(messages=[HI | {"content": [{"type": "image_url", "image_url": {}}]}]),
            "messages[0].content[0].image_url",
            "invalid_type",
        ),
        (
            ask(messages=[HI | {"content": [{"type": "input_audio", "input_audio": {"data": 1}}]}]),
            "messages[0].content[0].input_audio",
            "invalid_type",
        ),
        (
            ask(messages=[HI | {"content": [{"type": "file", "file": {"filename": "x.pdf"}}]}]),
            "messages[0].content[0].file",
            "invalid_value",
        ),
        (ask(stream="yes"), "stream", "invalid_type"),
        (ask(stream=1), "stream", "invalid_type"),
        (ask(stream_options={"include_usage": True}), "stream_options", "unsupported_parameter"),
        (ask(stream=False, stream_options={}), "stream_options", "unsupported_parameter"),
        (ask(stream=True, stream_options=[]), "stream_options", "invalid_type"),
        (
            ask(stream=True, stream_options={"include_usage": "yes"}),
            "stream_options.include_usage",
            "invalid_type",
        ),
        (ask(max_tokens=10**12), "max_tokens", "invalid_value"),
        (ask(max_tokens=2**31 + 1), "max_tokens", "invalid_value"),
        (ask(max_tokens=0), "max_tokens", "invalid_value"),
        (ask(max_tokens=-1), "max_tokens", "invalid_value"),
        (ask(max_tokens="10"), "max_tokens", "invalid_type"),
        (ask(max_tokens=True), "max_tokens", "invalid_type"),
        (ask(max_tokens=1.5), "max_tokens", "invalid_type"),
        (ask(max_tokens=5.0), "max_tokens", "invalid_type"),
        (ask(max_completion_tokens=0), "max_completion_tokens", "invalid_value"),
        (ask(max_completion_tokens=5, max_tokens="5"), "max_tokens", "invalid_type"),
        (ask(n=0), "n", "invalid_value"),
        (ask(n=1000), "n", "invalid_value"),
        (ask(n=True), "n", "invalid_type"),
        (ask(n=1.0), "n", "invalid_type"),
        (ask(temperature="hot"), "temperature", "invalid_type"),
        (ask(temperature=True), "temperature", "invalid_type"),
        (ask(top_p=[1]), "top_p", "invalid_type"),
        (ask(frequency_penalty={}), "frequency_penalty", "invalid_type"),
        (ask(stop=1), "stop", "invalid_type"),
        (ask(stop=["a", 1]), "stop", "invalid_type"),
        (ask(stop=["a"] * 17), "stop", "invalid_value"),
        (ask(tools={}), "tools", "invalid_type"),
        (ask(tools=["f"]), "tools", "invalid_type"),
        (ask(user=7), "user", "invalid_type"),
        (ask(user="a\x00"), "user", "invalid_value"),
        (ask(user="a\r\nb"), "user", "invalid_value"),
        (ask(user="a", user_id="b\n"), "user_id", "invalid_value"),
        (ask(user="a" * 513), "user", "invalid_value"),
        (ask(metadata=[]), "metadata", "invalid_type"),
        (ask(metadata={str(i): "" for i in range(17)}), "metadata", "invalid_value"),
        (ask(metadata={"k" * 65: "v"}), "metadata", "invalid_value"),
        (ask(metadata={"k\n": "v"}), "metadata", "invalid_value"),
        (ask(metadata={"k": 1}), "metadata.k", "invalid_type"),
        (ask(metadata={"k": "v" * 513}), "metadata.k", "invalid_value"),
        (ask(metadata={"k": "a\x00"}), "metadata.k", "invalid_value"),
        (ask(metadata={"k": "a\r\nb"}), "metadata.k", "invalid_value"),
    ],
)
def test_it_refuses_and_names_the_parameter(body: Any, param: str | None, code: str) -> None:
    error = refused(body)
    assert (error.param, error.code) == (param, code)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": [HI]}, "Parameter model is required."),
        ({"model": "m"}, "Parameter messages is required."),
        (ask(messages=[]), "Parameter messages can not be empty."),
        (ask(messages=[None]), "Parameter messages can not contain null elements."),
        (ask(messages=[{"role": "user"}]), "Parameter messages can not contain elements without content."),
        (
            ask(stream_options={"include_usage": True}),
            "Parameter stream_options is not supported while stream is false.",
        ),
    ],
)
def test_documented_messages_are_kept(body: Any, message: str) -> None:
    assert refused(body).message == message


@pytest.mark.parametrize("cap", [1, 4096, 2**31])
def test_caps_within_bounds_pass(cap: int) -> None:
    assert read(max_tokens=cap).output_cap == cap


def test_media_are_counted_and_their_base64_is_no_text() -> None:
    image = "data:image/png;base64," + "iVBO" * 1000
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": image, "detail": "low"}},
        {"type": "image_url", "image_url": "https://example.org/a.png"},
        {"type": "input_audio", "input_audio": {"data": "UklG" * 500, "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64," + "JVBE" * 300}},
        {"type": "file", "file": {"file_data": "JVBE" * 200, "filename": "a.pdf"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "video_url", "video_url": {"url": "DATA:video/mp4;BASE64," + "AAAA" * 100}},
    ]
    request = read(messages=[{"role": "user", "content": parts}])
    assert (request.images, request.audios, request.files) == (2, 1, 4)
    whole = len(strict_json.dumps(request.body))
    assert request.text_bytes == whole - 4000 - 2000 - 1200 - 800 - 400
    assert parse(request.body, 100).text_bytes == 0


@pytest.mark.parametrize(
    "url",
    ["data:text/plain,aGVs", "https://x/;base64," + "A" * 999, "data:" + "a" * 300 + ";base64,AAAA", ""],
)
def test_what_is_not_marked_as_base64_counts_as_text(url: str) -> None:
    body = ask(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])
    assert parse(body, 1000).text_bytes == 1000


def test_the_upstream_gets_every_field_the_client_sent() -> None:
    fields = {
        "temperature": 0.1,
        "seed": None,
        "reasoning": {"effort": "low"},
        "thinking": {"type": "enabled", "budget_tokens": 9},
        "some_new_field": [1, {"a": "\u2028é"}],
        "user_id": "u",
    }
    assert sent(read(**fields)) == ask(**fields) | {"model": "up-1"}


def test_the_gateway_s_own_fields_stay_here() -> None:
    request = read(provider={"routing": {"type": "priority"}}, model_routing_config={"preference": "x"})
    assert sent(request) == ask(model="up-1")
    assert request.body["provider"] == {"routing": {"type": "priority"}}


@pytest.mark.parametrize(
    ("fields", "output_cap", "caps"),
    [
        ({}, None, {}),
        ({}, 9, {"max_tokens": 9}),
        ({"max_tokens": 50}, None, {"max_tokens": 50}),
        ({"max_tokens": 50}, 9, {"max_tokens": 9}),
        ({"max_completion_tokens": 50}, 9, {"max_completion_tokens": 9}),
        ({"max_completion_tokens": 50}, None, {"max_completion_tokens": 50}),
        ({"max_completion_tokens": 50, "max_tokens": 10**6}, 9, {"max_completion_tokens": 9}),
        ({"max_completion_tokens": 50, "max_tokens": 10**6}, None, {"max_completion_tokens": 50}),
        (
            {"max_completion_tokens": None, "max_tokens": 50},
            9,
            {"max_completion_tokens": None, "max_tokens": 9},
        ),
        ({"max_completion_tokens": None}, 9, {"max_completion_tokens": None, "max_tokens": 9}),
    ],
)
def test_the_cap_is_written_where_the_client_wrote_it(
    fields: dict[str, Any], output_cap: int | None, caps: dict[str, int]
) -> None:
    body = sent(read(**fields), output_cap=output_cap)
    assert {name: cap for name, cap in body.items() if name.startswith("max_")} == caps


def test_a_cap_the_client_did_not_send_gets_the_provider_s_name() -> None:
    assert sent(read(), output_cap=9, cap_field="max_completion_tokens") == ask(model="up-1", max_completion_tokens=9)


@pytest.mark.parametrize(
    ("fields", "ask_usage", "options"),
    [
        ({"stream": True}, True, {"include_usage": True}),
        ({"stream": True, "stream_options": None}, True, {"include_usage": True}),
        ({"stream": True, "stream_options": {"include_usage": False}}, True, {"include_usage": True}),
        (
            {"stream": True, "stream_options": {"include_obfuscation": False}},
            True,
            {"include_obfuscation": False, "include_usage": True},
        ),
        ({"stream": True, "stream_options": {"include_usage": True}}, False, None),
        ({"stream": False}, True, None),
        ({"stream": None, "stream_options": None}, True, None),
    ],
)
def test_a_stream_is_always_asked_for_usage(
    fields: dict[str, Any], ask_usage: bool, options: dict[str, bool] | None
) -> None:
    request = read(**fields)
    before = json.dumps(request.body)
    assert sent(request, ask_usage=ask_usage).get("stream_options") == options
    assert json.dumps(request.body) == before


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "input_audio", "file", "video_url", "x"]) | anything},
    optional={
        name: anything | st.dictionaries(st.sampled_from(["url", "data", "file_data", "file_id"]), anything)
        for name in ("text", "image_url", "input_audio", "file", "video_url")
    },
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]) | anything},
    optional={"content": st.text() | st.lists(parts | anything) | anything, "tool_calls": anything},
)
bodies = st.fixed_dictionaries(
    {"model": st.just("m") | anything, "messages": st.lists(messages | anything) | anything},
    optional=dict.fromkeys((*OPTIONAL, "extra_body", "provider", "headers"), anything),
)


@given(bodies | anything)
def test_whatever_comes_is_taken_or_refused(body: Any) -> None:
    try:
        request = parse(body, 10_000)
    except InvalidRequest as error:
        assert error.status == 400
        assert min(error.message) >= " "
        json.dumps(error.body())
        return
    assert request.n >= 1
    assert 0 <= request.text_bytes <= 10_000
    assert upstream_body(request, model="u", output_cap=5, cap_field="max_tokens", ask_usage=True)
