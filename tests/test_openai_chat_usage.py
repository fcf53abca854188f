"""Usage objects of OpenAI chat upstreams: counts that are believed, and lies that never become a bill."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.tokens import LARGEST, Tokens
from gateway.protocols.openai_chat_usage import BadUsage, read, show
from tests.openai_answers import DONE, chunk, relay, usage, whole


def tokens(sent: Any) -> Tokens | None:
    read_ = read(sent)
    return read_ and read_[0]


CORE = {"prompt_tokens": 100, "completion_tokens": 50}


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (CORE | {"total_tokens": 150}, Tokens(100, 50)),
        (CORE, Tokens(100, 50)),
        (CORE | {"total_tokens": 999}, Tokens(100, 50)),
        ({"prompt_tokens": 100, "total_tokens": 150}, Tokens(100, 50)),
        ({"completion_tokens": 50, "total_tokens": 150}, Tokens(100, 50)),
        ({"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5}, Tokens(5, 0)),
        ({"input_tokens": 100, "output_tokens": 50}, Tokens(100, 50)),
        (CORE | {"input_tokens": 1, "output_tokens": 0}, Tokens(100, 50)),
        ({"input_tokens": 9, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 8}}, Tokens(9, 3, cached=8)),
        (CORE | {"prompt_tokens_details": None, "completion_tokens_details": None}, Tokens(100, 50)),
        (
            CORE
            | {
                "prompt_tokens_details": {
                    "cached_tokens": 40,
                    "audio_tokens": 10,
                    "image_tokens": 20,
                    "text_tokens": 70,
                },
                "completion_tokens_details": {"reasoning_tokens": 30, "audio_tokens": 5, "text_tokens": 15},
            },
            Tokens(100, 50, cached=40, audio_input=10, image_input=20, reasoning=30, audio_output=5),
        ),
        (CORE | {"prompt_cache_hit_tokens": 60, "prompt_cache_miss_tokens": 40}, Tokens(100, 50, cached=60)),
        (CORE | {"cached_tokens": 60}, Tokens(100, 50, cached=60)),
        (CORE | {"prompt_tokens_details": {"cache_creation_input_tokens": 30}}, Tokens(100, 50, cache_write_5m=30)),
        (CORE | {"cache_creation_input_tokens": 30}, Tokens(100, 50, cache_write_5m=30)),
        (CORE | {"prompt_tokens_details": {"cache_write_tokens": 30}}, Tokens(100, 50, cache_write_5m=30)),
        (
            CORE | {"prompt_tokens_details": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}},
            Tokens(100, 50, cache_write_5m=10, cache_write_1h=20),
        ),
        (
            CORE
            | {
                "prompt_tokens_details": {"cache_creation_input_tokens": 45, "ephemeral_1h_input_tokens": 20},
            },
            Tokens(100, 50, cache_write_5m=25, cache_write_1h=20),
        ),
        (CORE | {"claude_cache_creation_1_h_tokens": 7}, Tokens(100, 50, cache_write_1h=7)),
        (CORE | {"prompt_tokens_details": {"web_search": 3}}, Tokens(100, 50, web_searches=3)),
        (CORE | {"server_tool_use": {"web_search_requests": 2}}, Tokens(100, 50, web_searches=2)),
        (
            {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 442}
            | {"completion_tokens_details": {"reasoning_tokens": 400}},
            Tokens(30, 412, reasoning=400),
        ),
        (
            {"prompt_tokens": 30, "completion_tokens": 412, "total_tokens": 442}
            | {"completion_tokens_details": {"reasoning_tokens": 400}},
            Tokens(30, 412, reasoning=400),
        ),
        ({"prompt_tokens": 0, "completion_tokens": 5}, Tokens(0, 5)),
        ({"prompt_tokens": LARGEST, "completion_tokens": LARGEST}, Tokens(LARGEST, LARGEST)),
        (
            CORE
            | {
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 40, "audio_tokens": 30}
                | {"image_tokens": 70},
                "completion_tokens_details": {"reasoning_tokens": 20, "audio_tokens": 30},
            },
            Tokens(100, 50, 60, 40, audio_input=30, image_input=70, reasoning=20, audio_output=30),
        ),
    ],
)
def test_it_reads_the_counts(sent: dict[str, Any], meant: Tokens) -> None:
    assert tokens(sent) == meant


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"total_tokens": 0},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"prompt_tokens": None, "completion_tokens": None},
    ],
)
def test_a_placeholder_is_no_usage(sent: dict[str, Any]) -> None:
    assert read(sent) is None


LIES: list[Any] = [-1, 1.0, 1.5, 1e300, True, False, "7", [7], {}, LARGEST + 1, 10**30]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens", "total_tokens", "cache_creation_input_tokens"])
def test_a_count_that_is_none_is_a_lie(name: str, lie: Any) -> None:
    with pytest.raises(BadUsage):
        read(CORE | {name: lie})


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("name", ["cached_tokens", "audio_tokens", "image_tokens", "web_search"])
def test_so_is_a_detail_that_is_none(name: str, lie: Any) -> None:
    with pytest.raises(BadUsage):
        read(CORE | {"prompt_tokens_details": {name: lie}})
    with pytest.raises(BadUsage):
        read(CORE | {"completion_tokens_details": {"reasoning_tokens": lie}})


@pytest.mark.parametrize(
    "sent",
    [
        [],
        "12",
        0,
        {"prompt_tokens": 5},
        {"completion_tokens": 5},
        {"total_tokens": 9},
        {"prompt_tokens": 50, "total_tokens": 20},
        CORE | {"prompt_tokens_details": []},
        CORE | {"prompt_tokens_details": {"cached_tokens": 101}},
        CORE | {"prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 50}},
        CORE | {"prompt_tokens_details": {"audio_tokens": 60, "image_tokens": 50}},
        CORE | {"completion_tokens_details": {"reasoning_tokens": 51}},
        CORE | {"completion_tokens_details": {"reasoning_tokens": 30, "audio_tokens": 30}},
    ],
)
def test_counts_that_contradict_each_other_are_a_lie(sent: Any) -> None:
    with pytest.raises(BadUsage):
        read(sent)


def test_the_client_is_shown_the_upstream_s_object_with_its_core_complete() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 8, "new_detail": "x"}, "num_sources_used": 2}
    shown = read({"input_tokens": 10, "output_tokens": 3, "cost": 0.5, "cost_details": {}} | details)
    assert shown is not None
    assert (
        shown[1]
        == {
            "input_tokens": 10,
            "output_tokens": 3,
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "total_tokens": 13,
        }
        | details
    )


def test_an_estimate_is_shown_in_full() -> None:
    assert show(Tokens(10, 3, cached=4, reasoning=2)) == {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0, "image_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2, "audio_tokens": 0},
    }


@pytest.mark.parametrize("lie", [{"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": 1.5}, [], "x", False])
def test_a_lie_is_flagged_never_metered_and_never_shown(lie: Any) -> None:
    for upstream in (chunk({"content": "x"}, "stop", usage=lie) + DONE, whole({"content": "x"}, usage=lie)):
        for stream in (True, False):
            seen = relay([upstream], stream=stream, include_usage=stream)
            assert seen.fault is None
            assert (seen.known["usage"], seen.known["usage_suspect"]) == (None, True)
            assert b'"usage"' not in seen.early + seen.final


def test_the_last_of_several_usages_stands_lie_or_not() -> None:
    text, lie = chunk({"content": "x"}, "stop"), chunk(choices=[], usage={"prompt_tokens": -1})
    seen = relay([text + usage(3, 1) + usage(3, 4)])
    assert seen.known["usage"] == Tokens(3, 4)
    seen = relay([text + lie + usage(3, 4)])
    assert (seen.known["usage"], seen.known["usage_suspect"]) == (Tokens(3, 4), False)
    seen = relay([text + usage(3, 4) + lie])
    assert (seen.known["usage"], seen.known["usage_suspect"]) == (None, True)


counts = st.none() | st.integers(-5, 60) | st.sampled_from([LARGEST, 10**30, 1.5, True, "9", []])
NAMES = ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "cached_tokens")
DETAILS = ("cached_tokens", "audio_tokens", "image_tokens", "reasoning_tokens", "cache_write_tokens", "web_search")
sections = st.none() | st.fixed_dictionaries({}, optional=dict.fromkeys(DETAILS, counts)) | counts
objects = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(NAMES, counts)
    | dict.fromkeys(("prompt_tokens_details", "completion_tokens_details", "server_tool_use"), sections),
)


@given(objects | counts)
def test_nothing_but_sane_counts_comes_out(sent: Any) -> None:
    try:
        found = read(sent)
    except BadUsage:
        return
    if found is None:
        return
    made, shown = found
    for field in fields(Tokens):
        count = getattr(made, field.name)
        assert type(count) is int
        assert 0 <= count <= LARGEST
    assert made.cached + made.cache_write_5m + made.cache_write_1h <= made.prompt
    assert made.audio_input + made.image_input <= made.prompt
    assert made.reasoning + made.audio_output <= made.completion
    assert shown["total_tokens"] == made.prompt + made.completion == made.total
