"""OpenAI chat requests as a whole: what is read, in which order faults are told, and what an upstream then gets."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols import PROTOCOLS
from gateway.protocols.openai_chat import KNOWN_FIELDS, ChatRequest, parse, upstream_body
from gateway.protocols.openai_chat.answer.writer import CHAT
from gateway.protocols.sides import Ours
from gateway.wire.dialects import DIALECTS
from gateway.wire.errors import InvalidRequest
from tests.protocols.openai_chat.requests import HI, ask, fault, function, read, refused, sent, take

OPTIONAL = sorted(KNOWN_FIELDS - {"model", "messages"})


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
        modalities={},
        file_ids=(),
        stops=(),
        reasoning=None,
        hides_reasoning=False,
        wants_cost=False,
        cache_control=False,
        thoughts=frozenset(),
        routing=None,
        model_routing=None,
        unknown=(),
        not_understood=(),
        ignored=(),
        changes={},
    )


def test_it_is_in_the_registry() -> None:
    assert PROTOCOLS["openai_chat"].client.writer(take(ask()), Ours("id", 1, "m-1")) is CHAT


def test_it_reads_what_the_gateway_acts_on() -> None:
    request = read(
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=500,
        max_completion_tokens=20,
        n=2,
        user="alice@example.org",
        metadata={"job": "7"},
        stop=["\n\n", "END"],
        logprobs=True,
        functions=[{"name": "f"}],
    )
    assert (request.stream, request.include_usage, request.output_cap, request.n) == (True, True, 20, 2)
    assert (request.end_user, request.metadata) == ("alice@example.org", {"job": "7"})
    assert (request.stops, request.logprobs, request.legacy_functions) == (("\n\n", "END"), True, True)


@pytest.mark.row("B107")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_null_is_absent(dialect: str) -> None:
    """Every optional field may be null, which says nothing, and an upstream does not see it."""
    request = take(ask(**dict.fromkeys(OPTIONAL)), dialect)
    plain = take(ask(), dialect)
    for name in set(ChatRequest.__struct_fields__) - {"text_bytes"}:
        assert getattr(request, name) == getattr(plain, name)
    assert sent(request) == sent(plain)


# Each body has one fault more than the next one, and the first in the documented order is told.
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user"}, None]}, "messages[1]"),
    ({"messages": [{"role": "robot", "content": [7]}, {"role": "user"}]}, "messages[1].content"),
    (
        {
            "messages": [{"role": "robot", "content": [7]}],
            "stream": False,
            "stream_options": {"include_usage": True},
        },
        "stream_options",
    ),
    ({"stream_options": None, "n": 0}, "n"),
    ({"n": 1, "temperature": -1}, "temperature"),
    (
        {
            "temperature": 1,
            "stream": True,
            "stream_options": {"include_usage": True},
            "usage": {"include": False},
        },
        "stream_options.include_usage",
    ),
    ({"usage": None, "include_reasoning": True, "reasoning": {"exclude": True}}, "include_reasoning"),
    (
        {"include_reasoning": None, "provider": {"routing": {"type": "fastest", "providers": []}}},
        "provider.routing.type",
    ),
    ({"provider": {"routing": {"type": "order", "providers": []}}}, "provider.routing.providers"),
    ({"provider": None, "top_p": 7, "tools": 7, "api_base": "http://x/"}, "api_base"),
]


@pytest.mark.row("B281")
@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_of_several_faults_the_first_in_the_documented_order_is_told(first: int) -> None:
    body = ask()
    for fields, _ in reversed(FAULTS[first:]):
        body |= fields
    assert fault(body)[0] == FAULTS[first][1]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (None, None, "invalid_type"),
        ([], None, "invalid_type"),
        ("x", None, "invalid_type"),
        (ask(model=["m"]), "model", "invalid_type"),
        (ask(model="m\r\nx-evil: 1"), "model", "invalid_value"),
        (ask(model="m\x00"), "model", "invalid_value"),
        (ask(model="m\x7f"), "model", "invalid_value"),
        (ask(model="m" * 257), "model", "invalid_value"),
        (ask(stream="yes"), "stream", "invalid_type"),
        (ask(stream=1), "stream", "invalid_type"),
        (ask(stream=True, stream_options=[]), "stream_options", "invalid_type"),
        (ask(stream=True, stream_options={"include_usage": "yes"}), "stream_options.include_usage", "invalid_type"),
    ],
)
def test_it_refuses_and_names_the_parameter(body: Any, param: str | None, code: str) -> None:
    assert fault(body) == (param, code)


@pytest.mark.row("B067")
@pytest.mark.parametrize("model", [{}, {"model": None}, {"model": ""}])
def test_a_model_is_required(model: dict[str, Any]) -> None:
    body = {"messages": [HI]} | model
    assert fault(body) == ("model", "missing_required_parameter")
    assert refused(body).message.startswith("Parameter model is required. GET /v1/models")
    assert refused(body, "zenmux").message == "Parameter model is required"


@pytest.mark.row("B068")
@pytest.mark.parametrize("name", ["acme/m-1", "m-1", "acme/m-1:north", "zenmux/auto"])
def test_a_model_s_name_may_have_an_author_or_not(name: str) -> None:
    assert read(model=name).model == name


@pytest.mark.row("B109")
def test_only_true_streams() -> None:
    """Absent, null and false are one JSON object; a dialect may answer with a stream in any case."""
    assert [read(stream=value).stream for value in (True, False, None)] == [True, False, False]
    for body in (ask(), ask(stream=False), ask(stream=True)):
        request = take(body, "ezrouter")
        assert request.stream
        assert sent(request)["stream"] is True


@pytest.mark.row("B110")
def test_options_of_a_stream_that_is_none_are_refused_or_ignored() -> None:
    body = ask(stream_options={"include_usage": True})
    assert fault(body) == ("stream_options", "unsupported_parameter")
    assert fault(body | {"stream": False}, "zenmux") == ("stream_options", "unsupported_parameter")
    message = "Parameter stream_options is not supported while stream is false"
    assert refused(body).message.startswith(message)
    assert refused(body, "zenmux").message == message
    assert take(body, "ezrouter").stream


@pytest.mark.row("B111")
def test_usage_in_a_stream_is_shown_on_request() -> None:
    """The upstream is asked in any case, so that there is something to bill."""
    asked, unasked = read(stream=True, stream_options={"include_usage": True}), read(stream=True)
    assert (asked.include_usage, unasked.include_usage) == (True, False)
    assert sent(asked)["stream_options"] == sent(unasked)["stream_options"] == {"include_usage": True}


@pytest.mark.row("B113", "B189", "B248")
@pytest.mark.parametrize("place", [{"usage": {"include": True}}, {"reasoning": {"usage": {"include": True}}}])
def test_usage_may_be_asked_for_in_two_more_places(place: dict[str, Any]) -> None:
    """There it is asked for with its cost, and it may not disagree with the usual place."""
    streamed = take(ask(stream=True) | place)
    assert (streamed.include_usage, streamed.wants_cost) == (True, True)
    whole = take(ask() | place)
    assert (whole.include_usage, whole.wants_cost) == (False, True)
    agreed = ask(stream=True, stream_options={"include_usage": True})
    assert take(agreed | place).include_usage
    disagreed = ask(stream=True, stream_options={"include_usage": False}) | place
    assert fault(disagreed) == ("stream_options.include_usage", "invalid_value")
    said = "Parameter stream_options.include_usage conflict with usage.include"
    assert refused(disagreed, "zenmux").message == said


@pytest.mark.parametrize("value", [True, {}, {"include": "yes"}, {"include": None}])
def test_a_wrong_usage_is_refused(value: Any) -> None:
    assert str(fault(ask(usage=value))[0]).startswith("usage")
    assert str(fault(ask(reasoning={"usage": value}))[0]).startswith("reasoning.usage")


@pytest.mark.row("B096", "B097", "B099")
@pytest.mark.parametrize(
    ("fields", "end_user"),
    [
        ({"user": "a", "user_id": "b", "safety_identifier": "c"}, "a"),
        ({"user": "", "user_id": "b", "safety_identifier": "c"}, "b"),
        ({"user": None, "safety_identifier": "c"}, "c"),
        ({"user": "ü 1"}, "ü 1"),
        ({"user": "\U0001f469\u200d\U0001f4bb"}, "\U0001f469\u200d\U0001f4bb"),
        ({"user": ""}, None),
        ({"user": "a" * 512}, "a" * 512),
    ],
)
def test_the_end_user_has_three_names(fields: dict[str, Any], end_user: str | None) -> None:
    assert read(**fields).end_user == end_user


@pytest.mark.row("B106")
def test_the_upstream_gets_every_field_the_client_sent() -> None:
    fields = {
        "temperature": 0.1,
        "seed": 7,
        "reasoning": {"effort": "low"},
        "thinking": {"type": "enabled", "budget_tokens": 9},
        "some_new_field": [1, {"a": "\u2028é"}],
        "another_new_field": None,
        "user_id": "u",
        "prompt_cache_key": "k",
        "metadata": {"a": "b"},
        "prediction": {"type": "content", "content": "x"},
        "tools": [function("f", parameters={"type": "object", "x-mine": 1.5})],
        "tool_choice": "auto",
    }
    request = read(**fields)
    assert sent(request) == ask(**fields) | {"model": "up-1"}
    assert request.unknown == ("some_new_field", "another_new_field")


@pytest.mark.row("B165")
def test_the_gateway_s_own_fields_stay_here() -> None:
    """Where to go and what to show are its own to decide."""
    fields = {
        "provider": {"routing": {"type": "priority"}},
        "model_routing_config": {"preference": "x"},
        "usage": {"include": True},
        "include_reasoning": False,
    }
    request = read(**fields)
    assert sent(request) == ask(model="up-1")
    assert request.body == ask(**fields)


@pytest.mark.row("B078", "B079")
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
        ({"max_completion_tokens": None, "max_tokens": 50}, 9, {"max_tokens": 9}),
        ({"max_completion_tokens": None}, 9, {"max_tokens": 9}),
    ],
)
def test_the_cap_is_written_where_the_client_wrote_it(
    fields: dict[str, Any], output_cap: int | None, caps: dict[str, int]
) -> None:
    """Two names for one cap; the newer one wins over the older."""
    body = sent(read(**fields), output_cap=output_cap)
    assert {name: cap for name, cap in body.items() if name.startswith("max_")} == caps


@pytest.mark.row("B079")
@pytest.mark.parametrize("fields", [{}, {"max_tokens": 50}])
def test_a_provider_that_takes_the_newer_cap_gets_it_under_that_name(fields: dict[str, Any]) -> None:
    body = sent(read(**fields), output_cap=9, cap_field="max_completion_tokens")
    assert body == ask(model="up-1", max_completion_tokens=9)
    body = sent(read(max_tokens=50), cap_field="max_completion_tokens")
    assert body == ask(model="up-1", max_completion_tokens=50)


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


@pytest.mark.row("B115")
def test_an_empty_list_of_tools_is_not_sent() -> None:
    """Nor is the choice among them, which providers refuse without tools."""
    assert sent(read(tools=[], tool_choice="auto", parallel_tool_calls=True)) == ask(model="up-1")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
words = st.sampled_from(
    ["text", "image_url", "input_audio", "file", "video_url", "tool_use", "tool_result", "thinking", "refusal"]
)
named = st.dictionaries(
    st.sampled_from(["url", "data", "format", "file_data", "file_id", "filename", "type", "name", "id", "function"])
    | st.sampled_from(["include", "enabled", "effort", "routing", "providers", "mode", "tools", "json_schema"]),
    anything | st.sampled_from(["https://x/", "data:image/png;base64,AA==", "AA==", "wav", "function", "auto", "f"]),
)
parts = st.fixed_dictionaries(
    {"type": words | anything},
    optional=dict.fromkeys(
        (*("text", "image_url", "input_audio", "file", "video_url", "refusal", "cache_control"), "id", "content"),
        anything | named,
    ),
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "function", "system"]) | anything},
    optional={
        "content": st.text() | st.lists(parts | anything) | anything,
        "tool_calls": st.lists(named) | anything,
        "reasoning_details": st.lists(named) | anything,
        "tool_call_id": anything,
        "function_call": named | anything,
        "name": anything,
    },
)
fields = st.dictionaries(
    st.sampled_from([*OPTIONAL, "extra_body", "headers", "new"]),
    anything | named | st.lists(named, max_size=3) | st.sampled_from(["auto", "none", "low", 1, 0.5]),
    max_size=5,
)
conversations = st.lists(messages | anything, max_size=4) | anything


@st.composite
def bodies(draw: st.DrawFn) -> Any:
    return {"model": draw(st.just("m") | anything), "messages": draw(conversations)} | draw(fields)


@given(bodies() | anything, st.sampled_from(sorted(DIALECTS)))
def test_whatever_comes_is_taken_or_refused(body: Any, dialect: str) -> None:
    """Never another exception, never a changed body, and what was taken can be sent."""
    before = json.dumps(body)
    try:
        request = parse(body, 10_000, DIALECTS[dialect])
    except InvalidRequest as error:
        assert error.status == 400
        assert min(error.message) >= " "
        json.dumps(error.body())
        return
    assert request.n >= 1
    assert 0 <= request.text_bytes <= 10_000
    assert upstream_body(request, model="u", output_cap=5, cap_field="max_tokens", ask_usage=True)
    assert json.dumps(body) == before
