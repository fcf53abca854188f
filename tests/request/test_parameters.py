"""Which parameters an offer takes: what is withheld and named, respelled, enforced by the gateway, or refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.openai_chat import WHOLE, ChatRequest, Fit
from gateway.request.parameters import BY_DEFAULT, check_modalities, fit, header_value, missing, supported_by
from gateway.wire.dialects import DIALECTS, EZROUTER, STANDARD, ZENMUX
from gateway.wire.errors import InvalidRequest
from tests.protocols.openai_chat.requests import PIXEL, ask, function, read, saying, sent, take

NOBODY_KNOWS = supported_by(())
# What one vendor's model page lists for a small model.
LISTED = supported_by(
    ("max_completion_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "stop")
)
RATE = function("rate")
GOVERNED: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.5,
    "frequency_penalty": 1,
    "presence_penalty": 1,
    "seed": 7,
    "logit_bias": {"1": 2},
    "logprobs": True,
    "verbosity": "low",
    "prediction": {"type": "content", "content": "x"},
    "web_search_options": {},
    "response_format": {"type": "json_schema", "json_schema": {"name": "a"}},
    "reasoning_effort": "low",
    "reasoning": {"enabled": True},
    "thinking": {"type": "enabled"},
    "functions": [{"name": "f"}],
    "parallel_tool_calls": False,
    "user_id": "u",
    "service_tier": "default",
    "store": True,
}


def upstream(request: ChatRequest, fitting: Fit) -> Any:
    return sent(request, fit=fitting)


def refused(request: ChatRequest, supported: frozenset[str] = NOBODY_KNOWS, **settings: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        fit(request, supported, STANDARD, strict=True, **settings)
    assert (caught.value.status, caught.value.code) == (400, "unsupported_parameter")
    assert caught.value.param is not None
    assert caught.value.message == f"Parameter {caught.value.param} is not supported."
    return caught.value


def test_an_ordinary_request_fits_as_it_is() -> None:
    request = read(temperature=0.5, max_tokens=9, stop="x", tools=[RATE], user="u")
    assert fit(request, NOBODY_KNOWS, STANDARD) is WHOLE
    assert fit(read(temperature=0.5, stop="x"), LISTED, STANDARD) is WHOLE
    assert upstream(request, WHOLE) == request.body | {"model": "up-1"}


@pytest.mark.row("B105", "B108")
@pytest.mark.parametrize("name", sorted(GOVERNED))
def test_a_known_parameter_that_a_model_does_not_list_is_withheld_and_named(name: str) -> None:
    request = read(**{name: GOVERNED[name]})
    fitting = fit(request, supported_by(("something_else",)), STANDARD)
    assert fitting.named == missing(request, supported_by(("something_else",))) == (name,)
    assert upstream(request, fitting) == ask(model="up-1")
    listed = fit(request, supported_by((name,)), STANDARD, strict=name != "functions")
    assert listed.named == ()
    assert upstream(request, listed) == ask(model="up-1", **{name: GOVERNED[name]})


@pytest.mark.row("B105", "B108")
@pytest.mark.parametrize("name", sorted(GOVERNED.keys() - {"user_id"}))
def test_a_strict_caller_is_refused_instead(name: str) -> None:
    request = read(**{name: GOVERNED[name]})
    assert refused(request, supported_by(("something_else",))).param == name


@pytest.mark.row("B105")
def test_the_words_of_a_refusal_are_the_dialect_s() -> None:
    with pytest.raises(InvalidRequest) as caught:
        fit(take(ask(seed=7), "zenmux"), supported_by(("stop",)), ZENMUX, strict=True)
    assert caught.value.message == "Parameter seed is not supported"


@pytest.mark.row("B106")
def test_an_unknown_parameter_is_sent_and_refused_to_a_strict_caller() -> None:
    request = read(top_k=5, some_new_field={"a": 1})
    for supported in (NOBODY_KNOWS, LISTED):
        assert fit(request, supported, STANDARD) is WHOLE
        assert missing(request, supported) == ()
    assert upstream(request, WHOLE) == ask(model="up-1", top_k=5, some_new_field={"a": 1})
    assert refused(request).param == "top_k"
    assert refused(request, supported_by(("top_k",))).param == "some_new_field"
    assert fit(request, supported_by(("top_k", "some_new_field")), STANDARD, strict=True) is WHOLE
    assert refused(read(**{"a\nb": 1})).param == "a?b"


@pytest.mark.row("B105")
def test_what_is_not_understood_in_the_gateway_s_own_fields_is_named() -> None:
    request = read(provider={"sort": "price", "routing": {"type": "order"}})
    fitting = fit(request, NOBODY_KNOWS, STANDARD)
    assert fitting.named == ("provider.sort",)
    assert upstream(request, fitting) == ask(model="up-1")
    assert refused(request).param == "provider.sort"
    assert fit(read(provider={"routing": {"type": "order"}}), NOBODY_KNOWS, STANDARD, strict=True) is WHOLE


@pytest.mark.row("B086", "B087", "B105")
def test_penalties_that_a_dialect_ignores_are_withheld_and_named() -> None:
    """Even from a strict caller: the dialect says that they are accepted."""
    request = take(ask(frequency_penalty=1, presence_penalty=1, temperature=1), "ezrouter")
    fitting = fit(request, NOBODY_KNOWS, DIALECTS["ezrouter"], strict=True)
    assert fitting.named == ("frequency_penalty", "presence_penalty")
    assert upstream(request, fitting) == ask(model="up-1", temperature=1, stream=True) | {
        "stream_options": {"include_usage": True}
    }


@pytest.mark.row("B095", "B096", "B098", "B099")
def test_labels_always_go() -> None:
    """They change no answer, and such lists have no words for them."""
    labels = {
        "user": "u",
        "safety_identifier": "s",
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
    }
    request = read(**labels)
    for supported in (NOBODY_KNOWS, LISTED):
        fitting = fit(request, supported, STANDARD, strict=True)
        assert fitting is WHOLE
        assert upstream(request, fitting) == ask(model="up-1", **labels)


@pytest.mark.row("B097")
def test_the_end_user_of_another_vendor_is_withheld_and_not_refused() -> None:
    """The gateway has recorded it, so it had its effect."""
    assert fit(read(user_id="u"), LISTED, STANDARD, strict=True).named == ("user_id",)
    assert fit(read(user_id="u"), NOBODY_KNOWS, STANDARD, strict=True) is WHOLE


@pytest.mark.row("B100", "B101")
@pytest.mark.parametrize(
    ("name", "harmless", "others"),
    [("service_tier", ["auto", "default"], []), ("store", [False], [True])],
)
def test_what_may_cost_or_keep_more_needs_the_list_s_word(name: str, harmless: list[Any], others: list[Any]) -> None:
    for value in harmless:
        assert fit(read(**{name: value}), NOBODY_KNOWS, STANDARD, strict=True) is WHOLE
    for value in others:
        request = read(**{name: value})
        assert fit(request, NOBODY_KNOWS, STANDARD).named == missing(request, NOBODY_KNOWS) == (name,)
        assert upstream(request, fit(request, NOBODY_KNOWS, STANDARD)) == ask(model="up-1")
        assert refused(request).param == name
        assert fit(request, supported_by((name,)), STANDARD, strict=True) is WHOLE


@pytest.mark.parametrize("tier", ["flex", "priority", "scale"])
@pytest.mark.parametrize("supported", [NOBODY_KNOWS, supported_by(("service_tier",))], ids=["unknown", "listed"])
def test_a_class_of_service_without_a_rate_is_withheld_whatever_the_list_says(
    tier: str, supported: frozenset[str]
) -> None:
    request = read(service_tier=tier)
    assert fit(request, supported, STANDARD).named == missing(request, supported) == ("service_tier",)
    assert upstream(request, fit(request, supported, STANDARD)) == ask(model="up-1")
    assert refused(request, supported).param == "service_tier"


@pytest.mark.row("B103")
def test_sound_is_asked_of_a_model_that_speaks() -> None:
    asked = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "mp3"}}
    request = read(**asked)
    for speaks in ((), ("text", "audio")):
        assert fit(request, LISTED, STANDARD, speaks=speaks, strict=True) is WHOLE
    fitting = fit(request, NOBODY_KNOWS, STANDARD, speaks=("text",))
    assert fitting.named == ("modalities", "audio")
    assert upstream(request, fitting) == ask(model="up-1")
    assert refused(request, speaks=("text",)).param == "modalities"
    assert fit(read(modalities=["text"]), NOBODY_KNOWS, STANDARD, speaks=("text",), strict=True) is WHOLE


@pytest.mark.row("B104")
def test_the_older_functions_are_refused_to_a_strict_caller() -> None:
    """And count as tools otherwise."""
    request = read(functions=[{"name": "f"}], function_call="auto")
    tools = supported_by(("tools", "tool_choice"))
    for supported in (NOBODY_KNOWS, tools):
        assert fit(request, supported, STANDARD) is WHOLE
        assert refused(request, supported).param == "functions"
    assert fit(request, LISTED, STANDARD).named == ("functions", "function_call")


def test_without_the_first_the_others_have_nothing_to_say() -> None:
    request = read(tools=[RATE], tool_choice="auto", parallel_tool_calls=True, logprobs=True, top_logprobs=5)
    supported = supported_by(("tool_choice", "parallel_tool_calls", "top_logprobs"))
    fitting = fit(request, supported, STANDARD)
    assert fitting.named == ("tools", "tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs")
    assert upstream(request, fitting) == ask(model="up-1")
    assert fit(request, supported_by(("tools", "logprobs", "top_logprobs")), STANDARD).named == (
        "tool_choice",
        "parallel_tool_calls",
    )


@pytest.mark.row("B085")
def test_several_choices_become_one_where_the_model_does_not_list_them() -> None:
    request = read(n=3)
    assert fit(request, NOBODY_KNOWS, STANDARD) is WHOLE
    fitting = fit(request, LISTED, STANDARD)
    assert fitting.named == ("n",)
    assert upstream(request, fitting) == ask(model="up-1")
    assert fit(read(n=1), LISTED, STANDARD) is WHOLE


@pytest.mark.row("B028")
def test_cache_breakpoints_are_stripped_where_the_model_does_not_list_them() -> None:
    """From texts, tools and calls; a strict caller is not refused, since no answer changes."""
    cache = {"cache_control": {"type": "ephemeral"}}
    text = {"type": "text", "text": "x"}
    call = {"id": "c", "type": "function", "function": {"name": "rate", "arguments": "{}"}}
    block = {"type": "tool_use", "id": "c", "name": "rate", "input": {}}
    user, assistant = (
        {"role": "user", "content": [text, text | cache]},
        {"role": "assistant", "content": [block | cache]},
    )
    request = read(messages=[user, assistant], tools=[RATE | cache, RATE])
    fitting = fit(request, supported_by(("tools",)), STANDARD, strict=True)
    assert fitting.named == ("cache_control",)
    body = upstream(request, fitting)
    assert body["messages"] == [
        {"role": "user", "content": [text, text]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    assert body["tools"] == [RATE, RATE]
    for supported in (NOBODY_KNOWS, supported_by(("tools", "cache_control"))):
        body = upstream(request, fit(request, supported, STANDARD))
        assert body["messages"][0] == user
        assert body["tools"] == [RATE | cache, RATE]


@pytest.mark.row("B088")
def test_stops_that_the_offer_does_not_take_are_the_gateway_s() -> None:
    """Never lost, so never named and never refused."""
    request = read(stop=["a", "b", "c", "d", "e", "f"])
    fitting = fit(request, NOBODY_KNOWS, STANDARD, strict=True)
    assert (fitting.named, fitting.enforced_stops) == ((), ("e", "f"))
    assert upstream(request, fitting) == ask(model="up-1", stop=["a", "b", "c", "d"])
    assert fit(request, LISTED, STANDARD, max_stops=16) is WHOLE
    one = read(stop="END")
    fitting = fit(one, supported_by(("temperature",)), STANDARD, strict=True)
    assert (fitting.named, fitting.enforced_stops) == ((), ("END",))
    assert upstream(one, fitting) == ask(model="up-1")


@pytest.mark.row("B177", "B179", "B183", "B184", "B190")
@pytest.mark.parametrize(
    ("fields", "supported", "spelled"),
    [
        ({"reasoning": {"effort": "high", "exclude": True}}, "reasoning_effort", {"reasoning_effort": "high"}),
        ({"reasoning": {"enabled": False}}, "reasoning_effort", {"reasoning_effort": "none"}),
        ({"thinking": {"type": "disabled"}}, "reasoning", {"reasoning": {"enabled": False}}),
        ({"reasoning_effort": "low"}, "thinking", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        (
            {"reasoning": {"max_tokens": 300}, "max_tokens": 1000},
            "reasoning_effort",
            {"reasoning_effort": "low", "max_tokens": 1000},
        ),
        (
            {"reasoning": {"effort": "high"}, "thinking": {"type": "disabled"}, "max_tokens": 10_000},
            "thinking",
            {"thinking": {"type": "enabled", "budget_tokens": 8000}, "max_tokens": 10_000},
        ),
    ],
)
def test_reasoning_is_put_in_the_spelling_that_the_model_lists(
    fields: dict[str, Any], supported: str, spelled: dict[str, Any]
) -> None:
    """It is one wish, so nothing is lost, named or refused."""
    request = read(**fields)
    listed = supported_by((supported, "max_tokens"))
    fitting = fit(request, listed, STANDARD, strict=True)
    assert fitting.named == missing(request, listed) == ()
    assert upstream(request, fitting) == ask(model="up-1", **spelled)


@pytest.mark.row("B061")
def test_a_model_that_demands_its_thoughts_back_gets_them() -> None:
    """From wherever the client kept them; what it sent itself stays, and a turn without thoughts gets none."""
    details = [
        {"type": "reasoning.text", "text": "Ask "},
        {"type": "reasoning.summary", "summary": "twice."},
        {"type": "reasoning.encrypted", "data": "x"},
    ]
    turns: list[dict[str, Any]] = [
        {"role": "assistant", "content": "a", "reasoning": "Ask once."},
        {"role": "assistant", "content": "b", "reasoning_details": details},
        {"role": "assistant", "content": "c", "reasoning": "x", "reasoning_content": "mine"},
        {"role": "assistant", "content": "d", "reasoning_details": details[2:]},
        {"role": "user", "content": "e", "reasoning": "not the model's"},
    ]
    request = read(messages=turns)
    fitting = fit(request, supported_by(("reasoning", "reasoning_content")), STANDARD, strict=True)
    assert upstream(request, fitting)["messages"] == [
        turns[0] | {"reasoning_content": "Ask once."},
        turns[1] | {"reasoning_content": "Ask twice."},
        *turns[2:],
    ]
    assert upstream(request, fit(request, supported_by(("reasoning",)), STANDARD))["messages"] == turns


@pytest.mark.row("B192")
def test_a_model_that_does_not_reason_is_not_asked_to() -> None:
    """One that can, by its capabilities, gets the wish in each spelling."""
    request = read(reasoning={"enabled": True}, reasoning_effort="low", thinking={"type": "enabled"})
    fitting = fit(request, LISTED, STANDARD)
    assert fitting.named == ("reasoning", "reasoning_effort", "thinking")
    assert upstream(request, fitting) == ask(model="up-1")
    able = supported_by(("temperature",), ("reasoning",))
    assert upstream(request, fit(request, able, STANDARD, strict=True)) == request.body | {"model": "up-1"}


@pytest.mark.row("B178")
def test_a_dialects_effort_goes_to_a_model_that_would_think_anyway() -> None:
    """In a spelling that it takes, and only when the client has said nothing of the matter."""
    names = ("reasoning", BY_DEFAULT)
    for listed, expected in (
        (("reasoning_effort",), {"reasoning_effort": "high"}),
        (("thinking",), {"thinking": {"type": "enabled", "budget_tokens": 10240}}),
        (("seed",), {"reasoning": {"enabled": True, "effort": "high"}}),
    ):
        supported = supported_by(listed, names)
        assert upstream(read(), fit(read(), supported, EZROUTER)) == ask(model="up-1") | expected
        assert fit(read(), supported, STANDARD) is WHOLE
        assert fit(read(), supported_by(listed, names[:1]), EZROUTER) is WHOLE
        for wish in ({"reasoning": {"exclude": True}}, {"thinking": {"type": "disabled"}}, {"reasoning_effort": "max"}):
            body = upstream(read(**wish), fit(read(**wish), supported, EZROUTER))
            assert "high" not in str(body)
    assert fit(read(), supported_by((), names), EZROUTER) is WHOLE, "what it takes is not known"


def test_words_of_lists_that_mean_more_than_one_field() -> None:
    assert supported_by(()) == supported_by((), ("reasoning",)) == frozenset()
    assert supported_by(("structured_outputs",)) >= {"response_format"}
    assert supported_by(("tools",)) >= {"functions", "function_call"}
    assert supported_by(("thinking",), ("reasoning",)) == {"thinking"}


@pytest.mark.row("B042")
@pytest.mark.parametrize(
    ("part", "modality", "path"),
    [
        ({"type": "image_url", "image_url": {"url": PIXEL}}, "image", "image_url.url"),
        ({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}, "audio", "input_audio"),
        ({"type": "file", "file": {"file_id": "f"}}, "file", "file"),
        ({"type": "file", "file": {"file_data": "https://example.org/a.mp4"}}, "video", "file"),
        ({"type": "video_url", "video_url": {"url": "https://example.org/a"}}, "video", "video_url.url"),
    ],
)
def test_a_part_that_the_model_does_not_read_is_refused_by_its_modality(
    part: dict[str, Any], modality: str, path: str
) -> None:
    request = take(saying({"type": "text", "text": "x"}, part))
    for reads in ((), ("text", modality)):
        check_modalities(request, reads)
    with pytest.raises(InvalidRequest) as caught:
        check_modalities(request, ("text",))
    assert (caught.value.status, caught.value.param) == (400, f"messages[0].content[1].{path}")
    assert f"holds {modality} input, which model m-1 does not read: it reads text." in caught.value.message
    check_modalities(read(), ("text",))


@given(st.lists(st.text(max_size=30), max_size=300))
def test_the_header_is_ascii_and_bounded(names: list[str]) -> None:
    value = header_value(names)
    assert value.isascii()
    assert value.isprintable()
    assert len(value) <= 2000


def test_the_header_names_parameters() -> None:
    assert header_value(("seed", "provider.sort", "é\r\nx,")) == "seed, provider.sort, ???x?"
