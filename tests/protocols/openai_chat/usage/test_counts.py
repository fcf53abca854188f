"""Usage objects of OpenAI chat upstreams: counts that are believed, and lies that never become a bill."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.tokens import LARGEST, Tokens
from gateway.protocols.openai_chat.usage.counts import BadUsage
from gateway.protocols.openai_chat.usage.counts import read as read_counts
from gateway.protocols.openai_chat.usage.counts import tokens as tokens_of
from gateway.protocols.openai_chat.usage.shown import show
from gateway.wire.dialects import EZROUTER, STANDARD, ZENMUX
from tests.protocols.openai_chat.answers import DONE, chunk, reader, relay, shown, usage, whole

REPORTING = replace(STANDARD, always_reports_usage=True)


def read(sent: Any) -> tuple[Tokens, Any] | None:
    """The counts of one object, and it; None for a placeholder."""
    counts = read_counts(sent)
    return (tokens_of(counts)[0], sent) if any(counts.values()) else None


def tokens(sent: Any) -> Tokens | None:
    read_ = read(sent)
    return read_ and read_[0]


CORE = {"prompt_tokens": 100, "completion_tokens": 50}


@pytest.mark.row("B237", "B239", "B240", "B242")
@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (CORE | {"total_tokens": 150}, Tokens(100, 50)),
        (CORE, Tokens(100, 50)),
        (CORE | {"total_tokens": 20}, Tokens(100, 50)),
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
        (CORE | {"cached_tokens": 0, "prompt_cache_hit_tokens": 60}, Tokens(100, 50, cached=60)),
        (
            CORE | {"prompt_tokens_details": {"cache_write_tokens": 0}, "cache_creation_input_tokens": 30},
            Tokens(100, 50, cache_write_5m=30),
        ),
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
        (CORE | {"prompt_tokens_details": {"video_tokens": 7}}, Tokens(100, 50, video_input=7)),
        (CORE | {"completion_tokens_details": {"image_tokens": 50}}, Tokens(100, 50, image_output=50)),
        (CORE | {"prompt_audio_seconds": 61}, Tokens(100, 50, seconds=61)),
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


def _one(names: list[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), values, max_size=len(names))


COUNTS = st.sampled_from([None, *range(20), LARGEST, LARGEST + 1, 1.0])  # few are none: one such is the end of it
READING = _one(["cached_tokens", "audio_tokens", "image_tokens"], COUNTS)
WRITING = _one(
    ["reasoning_tokens", "audio_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens", "text_tokens"],
    COUNTS,
)
USUAL = st.builds(
    lambda core, reading, writing: core | reading | writing,
    _one(["prompt_tokens", "completion_tokens", "total_tokens"], COUNTS),
    _one(["prompt_tokens_details"], st.none() | READING),
    _one(["completion_tokens_details"], st.none() | WRITING),
)


@given(USUAL)
def test_what_most_send_is_read_at_once_as_it_is_name_by_name(sent: dict[str, Any]) -> None:
    found: list[Any] = []
    for one in (sent, sent | {"of_the_vendor": 1}):
        try:
            found.append(read_counts(one))
        except BadUsage:
            found.append("a lie")
    assert found[0] == found[1]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(
    "name", ["prompt_tokens", "completion_tokens", "total_tokens", "cache_creation_input_tokens", "input_tokens"]
)
def test_a_count_that_is_none_is_a_lie(name: str, lie: Any) -> None:
    with pytest.raises(BadUsage):
        read(CORE | {name: lie})


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("name", ["cached_tokens", "audio_tokens", "image_tokens", "text_tokens", "web_search"])
def test_so_is_a_detail_that_is_none(name: str, lie: Any) -> None:
    with pytest.raises(BadUsage):
        read(CORE | {"prompt_tokens_details": {name: lie}})
    for written in ("reasoning_tokens", "text_tokens", "accepted_prediction_tokens"):
        with pytest.raises(BadUsage):
            read(CORE | {"completion_tokens_details": {written: lie}})


@pytest.mark.parametrize(
    "sent",
    [
        [],
        "12",
        0,
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


@pytest.mark.row("B237", "B239", "B240", "B243", "B244")
def test_the_client_is_shown_the_upstream_s_object_with_every_bucket() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 8, "new_detail": "x"}, "num_sources_used": 2}
    found = read({"input_tokens": 10, "output_tokens": 0, "cost": 0.5, "cost_details": {}} | details)
    assert found is not None
    full = shown(10, 0, cached_tokens=8)
    assert show(*found) == full | {
        "prompt_tokens_details": full["prompt_tokens_details"] | {"new_detail": "x"},
        "num_sources_used": 2,
    }


@pytest.mark.row("B239", "B240", "B242", "B135")
def test_every_bucket_is_under_every_name_that_a_page_has_for_it() -> None:
    sent = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 300, "audio_tokens": 10, "image_tokens": 20, "web_search": 3},
        "completion_tokens_details": {"reasoning_tokens": 40, "audio_tokens": 5}
        | {"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 7},
        "cache_creation_input_tokens": 50,
        "claude_cache_creation_1_h_tokens": 20,
    }
    found = read(sent)
    assert found is not None
    made = show(*found)
    assert made["prompt_tokens_details"] == {
        "cached_tokens": 300,
        "audio_tokens": 10,
        "image_tokens": 20,
        "text_tokens": 970,
        "cache_creation_input_tokens": 50,
        "cache_write_tokens": 50,
        "ephemeral_5m_input_tokens": 30,
        "ephemeral_1h_input_tokens": 20,
        "web_search": 3,
    }
    assert made["completion_tokens_details"] == {
        "reasoning_tokens": 40,
        "audio_tokens": 5,
        "text_tokens": 55,
        "accepted_prediction_tokens": 6,
        "rejected_prediction_tokens": 7,
    }
    assert (made["input_tokens"], made["output_tokens"], made["total_tokens"]) == (1000, 100, 1100)


@pytest.mark.row("B239", "B240")
def test_text_counts_are_the_provider_s_or_what_no_other_kind_has() -> None:
    def texts(reading: dict[str, Any], writing: dict[str, Any]) -> tuple[int, int]:
        found = read(CORE | {"prompt_tokens_details": reading, "completion_tokens_details": writing})
        assert found is not None
        made = show(*found)
        return made["prompt_tokens_details"]["text_tokens"], made["completion_tokens_details"]["text_tokens"]

    assert texts({"audio_tokens": 40, "image_tokens": 1}, {"audio_tokens": 20}) == (59, 30)
    assert texts({"text_tokens": 70, "audio_tokens": 10}, {"text_tokens": 0, "audio_tokens": 20}) == (70, 0)
    assert texts({"text_tokens": None}, {"text_tokens": None}) == (100, 50)


@pytest.mark.row("B237", "B238")
def test_an_estimate_is_shown_in_full() -> None:
    assert show(Tokens(10, 3, cached=4, reasoning=2)) == shown(10, 3, cached_tokens=4, reasoning_tokens=2)
    assert show(Tokens(10, 3), thought=7) == shown(10, 3, reasoning_tokens=3)


@pytest.mark.row("B243", "B244")
def test_the_two_other_names_never_disagree_with_the_counts() -> None:
    found = read(CORE | {"input_tokens": 1, "output_tokens": 0})
    assert found is not None
    assert show(*found) == shown(100, 50)


EXTRAS = {"usage_semantic": "openai", "usage_source": "openai"} | {
    "claude_cache_creation_5_m_tokens": 30,
    "claude_cache_creation_1_h_tokens": 20,
}


@pytest.mark.row("B245", "B246", "B247")
def test_one_dialect_has_names_of_its_own_and_no_other_learns_the_source() -> None:
    sent = {"prompt_tokens": 100, "completion_tokens": 5, "cache_creation_input_tokens": 50}
    sent |= {"claude_cache_creation_1_h_tokens": 20}
    upstream = [chunk({"content": "x"}, "stop"), chunk(choices=[], usage=sent), DONE]
    made = relay(upstream, dialect=EZROUTER).chunks[-1]["usage"]
    assert {name: made[name] for name in EXTRAS} == EXTRAS
    sourced = [upstream[0], chunk(choices=[], usage=sent | {"usage_source": "p"}), DONE]
    assert relay(sourced, dialect=EZROUTER).chunks[-1]["usage"]["usage_source"] == "p"
    for dialect in (STANDARD, ZENMUX):
        made = relay(sourced, dialect=dialect, include_usage=True).chunks[-1]["usage"]
        assert EXTRAS.keys().isdisjoint(made)
        assert made["prompt_tokens_details"]["ephemeral_1h_input_tokens"] == 20


@pytest.mark.row("B248")
@pytest.mark.parametrize(
    ("dollars", "number"),
    [
        ("0.000102000000", b"0.000102"),
        ("0", b"0"),
        ("2E-8", b"0.00000002"),
        ("12.500000000000", b"12.5"),
        ("1E+2", b"100"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_the_cost_is_told_to_who_asks_exactly(dollars: str, number: bytes, stream: bool) -> None:
    for asked in ({"usage": {"include": True}}, {"reasoning": {"usage": {"include": True}}}, {}):
        answer = reader(stream=stream, include_usage=stream and not asked, dialect=REPORTING, **asked)
        answer.feed(chunk({"content": "x"}, "stop") + usage(3, 1, cost=99) + DONE)
        answer.set_cost(Decimal(dollars))
        final = answer.final()
        assert (b'"cost":' + number + b"}" in final) is bool(asked)
        assert b"99" not in final


@pytest.mark.row("B248")
def test_a_cost_that_nobody_knows_is_not_shown() -> None:
    answer = reader(stream=False, usage={"include": True})
    answer.feed(chunk({"content": "x"}, "stop") + usage(3, 1) + DONE)
    answer.set_cost(None)
    assert b"cost" not in answer.final()


@pytest.mark.row("B242")
def test_a_repeated_running_total_is_not_added_up() -> None:
    upstream = [chunk({"content": "x"}, usage={"prompt_tokens": 50, "completion_tokens": n}) for n in (4, 9, 15)]
    seen = relay([*upstream, chunk({}, "stop"), DONE], include_usage=True)
    assert [made["usage"] for made in seen.chunks] == [None, None, None, None, shown(50, 15)]


@pytest.mark.row("B238")
@pytest.mark.parametrize("lie", [{"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": 1.5}, [], "x", False])
def test_a_lie_is_flagged_never_metered_and_never_shown(lie: Any) -> None:
    for upstream in (chunk({"content": "x"}, "stop", usage=lie) + DONE, whole({"content": "x"}, usage=lie)):
        for stream in (True, False):
            seen = relay([upstream], stream=stream, include_usage=stream)
            assert seen.fault is None
            assert (seen.known["usage"], seen.known["usage_suspect"]) == (None, True)
            assert b'"prompt_tokens"' not in seen.early + seen.final


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
DETAILS = (
    "cached_tokens",
    "audio_tokens",
    "text_tokens",
    "image_tokens",
    "reasoning_tokens",
    "cache_write_tokens",
    "web_search",
)
SECTIONS = ("prompt_tokens_details", "completion_tokens_details")
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
    made, object_ = found[0], show(*found, thought=7)
    for name in Tokens.__struct_fields__:
        count = getattr(made, name)
        assert type(count) is int
        assert 0 <= count <= LARGEST
    assert made.cached + made.cache_write_5m + made.cache_write_1h <= made.prompt
    assert made.audio_input + made.image_input + made.video_input <= made.prompt
    assert made.reasoning + made.audio_output + made.image_output <= made.completion
    assert object_["total_tokens"] == made.prompt + made.completion == made.total
    details = object_["completion_tokens_details"]
    assert 0 <= details["reasoning_tokens"] + details["audio_tokens"] <= made.completion
    assert all(type(object_[name][f"{kind}_tokens"]) is int for name in SECTIONS for kind in ("text", "audio"))
