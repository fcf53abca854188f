"""Usage that stands in odd places, comes in halves or grows, and totals that say more than their parts."""

import json
from typing import Any

import pytest

from billing.tokens import LARGEST, Tokens
from gateway.protocols.openai_chat.usage.reported import MAX_PLACES
from tests.protocols.openai_chat.answers import DONE, Seen, chunk, relay, relay_at_every_cut, shown, usage, whole

OK = chunk({"role": "assistant", "content": "ok"})
STOP = chunk({}, "stop")
CACHED = {"prompt_tokens_details": {"cached_tokens": 1000}}
FULL = {"prompt_tokens": 1200, "completion_tokens": 300, "total_tokens": 1500} | CACHED


def counts(prompt: int, completion: int, total: int | None = None, **more: Any) -> dict[str, Any]:
    made = {"prompt_tokens": prompt, "completion_tokens": completion}
    return made | ({} if total is None else {"total_tokens": total}) | more


def of(*sent: Any) -> tuple[Tokens | None, bool]:
    """What a stream's usage objects, one a chunk, come to, and whether that is suspect."""
    seen = relay([OK, *(chunk({"content": "x"}, usage=one) for one in sent), STOP, DONE])
    assert seen.fault is None
    return seen.known["usage"], seen.known["usage_suspect"]


# --- places ---------------------------------------------------------------------------------------------------------

PLACES: list[dict[str, Any]] = [
    {"x_groq": {"id": "r1", "usage": FULL}},
    {"metadata": {"usage": FULL}},
    {"choice": {"usage": FULL}},
    {"usage": FULL},
    {"usage": None, "x_groq": {"id": "r1", "usage": FULL}},
    {"usage": counts(1200, 300, 1500), "x_groq": {"usage": FULL}},  # The complete one counts, once.
    {"usage": FULL, "x_groq": {"usage": counts(7, 7)}, "choice": {"usage": counts(8, 8)}},
    {"usage": counts(0, 0, 0), "choice": {"usage": FULL}},
    {"usage": counts(-1, 5), "x_groq": {"usage": "x"}, "choice": {"usage": FULL}},
]


@pytest.mark.parametrize("places", PLACES)
def test_usage_is_found_where_it_stands_and_shown_where_it_belongs(places: dict[str, Any]) -> None:
    body = json.loads(whole({"content": "ok"}, **{k: v for k, v in places.items() if k != "choice"}))
    body["choices"][0] |= places.get("choice", {})
    for upstream in (OK + chunk({}, "stop", **places) + DONE, json.dumps(body).encode()):
        seen = relay_at_every_cut(upstream, include_usage=True)
        assert seen.known["usage"] == Tokens(1200, 300, cached=1000)
        assert [made["usage"] for made in seen.chunks if made["usage"]] == [shown(1200, 300, cached_tokens=1000)]
        assert (seen.early + seen.final).count(b'"prompt_tokens":') == 1
        assert b'"prompt_tokens":' not in (unasked := relay([upstream])).early + unasked.final
        made = relay([upstream], stream=False)
        assert made.body["usage"] == shown(1200, 300, cached_tokens=1000)
        assert made.final.count(b'"usage"') == 1
        assert made.body.get("x_groq") == ({"id": "r1"} if "id" in places.get("x_groq", {}) else None)
    assert seen.known["usage_suspect"] is (places.get("usage") == counts(-1, 5))


def test_usage_in_a_delta_or_message_is_found_too() -> None:
    for upstream in (OK + chunk({"usage": FULL}, "stop") + DONE, whole({"content": "ok", "usage": FULL})):
        assert relay_at_every_cut(upstream).known["usage"] == Tokens(1200, 300, cached=1000)


def test_each_choice_may_report_what_it_wrote() -> None:
    def both(one: dict[str, Any], other: dict[str, Any]) -> Seen:
        upstream = chunk({"content": "a"}, "stop", choice={"usage": one})
        return relay([upstream + chunk({"content": "b"}, "stop", index=1, choice={"usage": other}) + DONE], n=2)

    assert both(counts(9, 4), counts(9, 6)).known["usage"] == Tokens(9, 10)
    assert both(counts(9, 10), counts(9, 10)).known["usage"] == Tokens(9, 10)


def test_the_word_alone_is_no_usage() -> None:
    upstream = chunk({"content": 'their "usage" is'}, x={"usage": [1]}) + chunk({"content": "usage"}, "stop") + DONE
    seen = relay_at_every_cut(upstream)
    assert (seen.known["usage"], seen.known["usage_suspect"]) == (None, False)
    many: dict[str, Any] = {f"v{at}": {"usage": counts(1, 1)} for at in range(10 * MAX_PLACES)}
    assert relay([chunk({"content": "a"}, "stop", **many), DONE]).known["usage"] == Tokens(1, 1)


# --- halves, placeholders, growth -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ([counts(250, 0, 250), counts(0, 12, 12)], Tokens(250, 12)),
        ([counts(0, 12, 12), counts(250, 0, 250)], Tokens(250, 12)),
        ([{"prompt_tokens": 250}, {"completion_tokens": 12}], Tokens(250, 12)),
        ([{"prompt_tokens": 250, "completion_tokens": None}, counts(0, 12, 262)], Tokens(250, 12)),
        ([counts(250, 0, 250) | CACHED | {"prompt_tokens": 1250}, counts(0, 12, 12)], Tokens(1250, 12, cached=1000)),
        ([counts(50, at, 50 + at) for at in (4, 9, 15)], Tokens(50, 15)),
        ([counts(50, 15, 65), counts(50, 12)], Tokens(50, 12)),  # The total was that of the counts before.
        ([counts(50, 15, 65), counts(0, 0, 0), {}, {"total_tokens": 0}], Tokens(50, 15)),
        ([counts(50, 15, 65), {"prompt_tokens_details": {"cached_tokens": 40}}], Tokens(50, 15, cached=40)),
        ([counts(0, 12, 262)], Tokens(250, 12)),
        ([counts(250, 0, 262)], Tokens(250, 12)),
        ([{"input_tokens": 250}, {"output_tokens": 12}], Tokens(250, 12)),
        ([counts(0, 12, 12)], Tokens(0, 12)),  # Half of it is not known: whoever bills estimates that.
        ([counts(250, 0, 250)], Tokens(250, 0)),
        ([{"prompt_tokens": 250}], Tokens(250, 0)),
    ],
)
def test_field_by_field_the_last_that_is_no_placeholder_counts(sent: list[Any], meant: Tokens) -> None:
    assert of(*sent) == (meant, False)
    upstream = OK + b"".join(chunk(choices=[], usage=one) for one in sent) + STOP + DONE
    assert relay_at_every_cut(upstream, stream=False).known["usage"] == meant


# --- totals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "meant", "suspect"),
    [
        (counts(31, 27, 458), Tokens(31, 427, reasoning=400), True),
        (counts(31, 27, 458, completion_tokens_details={"reasoning_tokens": 20}), Tokens(31, 427, reasoning=420), True),
        (counts(31, 27, 458, completion_tokens_details={"reasoning_tokens": 0}), Tokens(31, 427, reasoning=400), True),
        (
            counts(31, 27, 458, completion_tokens_details={"reasoning_tokens": 400}),
            Tokens(31, 427, reasoning=400),
            False,
        ),
        (
            counts(31, 27, 468, completion_tokens_details={"reasoning_tokens": 400}),
            Tokens(31, 437, reasoning=410),
            True,
        ),
        (counts(31, 27, 58), Tokens(31, 27), False),
        (counts(31, 27, 40), Tokens(31, 27), False),
        (counts(31, 27, 0), Tokens(31, 27), False),
        (counts(20, 12, 1032, **CACHED), Tokens(1020, 12, cached=1000), False),
        (
            counts(20, 12, 1432, completion_tokens_details={"reasoning_tokens": 400}, **CACHED),
            Tokens(1020, 412, cached=1000, reasoning=400),
            False,
        ),
    ],
)
def test_what_a_total_has_beyond_its_parts_was_written_or_read(sent: Any, meant: Tokens, suspect: bool) -> None:
    for upstream in (OK + STOP + chunk(choices=[], usage=sent) + DONE, whole({"content": "ok"}, usage=sent)):
        for stream in (True, False):
            seen = relay_at_every_cut(upstream, stream=stream, include_usage=stream)
            assert (seen.known["usage"], seen.known["usage_suspect"]) == (meant, suspect)
            told = seen.chunks[-1]["usage"] if stream else seen.body["usage"]
            assert told["total_tokens"] == told["prompt_tokens"] + told["completion_tokens"] == meant.total
            assert told["completion_tokens_details"]["reasoning_tokens"] == meant.reasoning


def test_a_total_that_cannot_be_is_a_lie() -> None:
    assert of(counts(31, 27, LARGEST)) == (Tokens(31, LARGEST - 31, reasoning=LARGEST - 58), True)
    assert of(counts(31, 27, LARGEST + 1)) == (None, True)


def test_hidden_thinking_does_not_make_an_answer_look_cut_off() -> None:
    upstream = OK + STOP + usage(31, 27, total_tokens=458) + DONE
    assert relay_at_every_cut(upstream, output_cap=100).deltas[-1] == ({}, "stop")
    assert relay_at_every_cut(upstream, output_cap=100).known["finish_reason"] == "stop"


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ({"prompt_cache_hit_tokens": 60, "prompt_cache_miss_tokens": 40}, {"cached": 60}),
        ({"cache_read_input_tokens": 60}, {"cached": 60}),
        ({"prompt_tokens_details": {"cache_read_input_tokens": 60}}, {"cached": 60}),
        ({"num_cached_tokens": 60}, {"cached": 60}),
        ({"cached_tokens": 0, "prompt_tokens_details": {"cached_tokens": None}, "cachedTokens": 60}, {"cached": 60}),
        ({"reasoning_tokens": 40}, {"reasoning": 40}),
        ({"completion_tokens_details": {"thinking_tokens": 40}}, {"reasoning": 40}),
        ({"cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}}, None),
    ],
)
def test_vendors_own_names_are_read(sent: dict[str, Any], meant: dict[str, int] | None) -> None:
    buckets = {"cache_write_5m": 10, "cache_write_1h": 20} if meant is None else meant
    assert of(counts(100, 50) | sent) == (Tokens(100, 50, **buckets), False)


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        # The other protocol's own shape: what was cached is not in its `input_tokens`.
        ({"input_tokens": 20, "output_tokens": 5, "cache_read_input_tokens": 40}, Tokens(60, 5, cached=40)),
        (
            {"input_tokens": 20, "output_tokens": 5, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 40},
            Tokens(90, 5, cached=40, cache_write_5m=30),
        ),
        (counts(20, 5, cache_read_input_tokens=40_000), Tokens(40_020, 5, cached=40_000)),
        (counts(20, 5, cached_tokens=10, usage_semantic="anthropic"), Tokens(30, 5, cached=10)),
        (counts(60, 5, 65, input_tokens=20, cache_read_input_tokens=40), Tokens(60, 5, cached=40)),
        (counts(60, 5, cache_read_input_tokens=40), Tokens(60, 5, cached=40)),
    ],
)
def test_what_was_cached_is_in_the_prompt_however_it_was_counted(sent: dict[str, Any], meant: Tokens) -> None:
    assert of(sent) == (meant, False)


def test_a_provider_that_counted_and_said_nothing_is_read() -> None:
    for upstream in (
        b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":64}}',
        b'{"choices":null,"usage":{"prompt_tokens":9,"completion_tokens":64}}',
        b'{"error":{"message":"x"},"usage":{"prompt_tokens":9,"completion_tokens":64}}',
        usage(9, 64) + DONE,
    ):
        seen = relay_at_every_cut(upstream)
        assert seen.fault is not None
        assert (seen.known["usage"], seen.early, seen.final) == (Tokens(9, 64), b"", b"")
