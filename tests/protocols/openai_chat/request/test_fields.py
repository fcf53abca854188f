"""Fields of a chat request that stand on their own: sampling, stops, formats, labels, web search."""

from copy import deepcopy
from typing import Any

import pytest

from gateway.protocols.openai_chat import Fit
from gateway.wire import strict_json
from gateway.wire.dialects import DIALECTS
from tests.protocols.openai_chat.requests import HI, ask, called, fault, read, refused, sent, take

NOTHING: dict[str, Any] = {}


@pytest.mark.row("B081")
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_cap_is_a_whole_number_of_tokens(name: str) -> None:
    for cap in (1, 4096, 2**31):
        assert read(**{name: cap}).output_cap == cap
    for cap in (0, -1, 2**31 + 1, 10**12):
        assert fault(ask(**{name: cap})) == (name, "invalid_value")
    for wrong in ("10", True, 1.5, 5.0, [1]):
        assert fault(ask(**{name: wrong})) == (name, "invalid_type")


def test_both_caps_are_checked_whichever_wins() -> None:
    assert fault(ask(max_completion_tokens=5, max_tokens="5")) == ("max_tokens", "invalid_type")


@pytest.mark.row("B082", "B083")
def test_temperature_is_not_negative_and_its_end_is_the_dialect_s() -> None:
    for dialect in DIALECTS:
        for value in (0, 0.7, 1, 2):
            assert sent(take(ask(temperature=value), dialect))["temperature"] == value
        assert fault(ask(temperature=-0.1), dialect) == ("temperature", "invalid_value")
        for wrong in ("hot", True, [1]):
            assert fault(ask(temperature=wrong), dialect) == ("temperature", "invalid_type")
    assert take(ask(temperature=2.5), "zenmux")
    assert fault(ask(temperature=2.5)) == fault(ask(temperature=2.5), "ezrouter") == ("temperature", "invalid_value")
    assert refused(ask(temperature=-1), "zenmux").message == "Parameter temperature is not valid"


@pytest.mark.row("B085")
def test_n_is_one_in_most_dialects() -> None:
    """The vendors' misspelling is kept where clients match on it."""
    for dialect in DIALECTS:
        assert take(ask(n=1), dialect).n == take(ask(n=None), dialect).n == take(ask(), dialect).n == 1
        for n in (0, -1, 9, 1000):
            assert fault(ask(n=n), dialect)[0] == "n"
        for wrong in (True, 1.0, "1", [1]):
            assert fault(ask(n=wrong), dialect) == ("n", "invalid_type")
    for n in (2, 8):
        assert take(ask(n=n)).n == n
        assert fault(ask(n=n), "ezrouter") == ("n", "unsupported_parameter")
        assert refused(ask(n=n), "zenmux").message == "Parameter n grater than 1 is not supported"


@pytest.mark.row("B084", "B086", "B087", "B091", "B093")
@pytest.mark.parametrize(
    ("name", "good", "beyond", "wrong"),
    [
        ("top_p", [0, 0.5, 1], [-0.01, 1.01], ["1", True]),
        ("frequency_penalty", [-2, 0, 2.0], [-2.1, 3], ["1", False]),
        ("presence_penalty", [-2, 0, 2.0], [-2.1, 3], [[], {}]),
        ("seed", [0, -1, 2**63 - 1], [2**63], [1.5, "7", True]),
        ("logit_bias", [{}, {"50256": -100, "7": 100, "8": 0.5}], [{"1": 101}, {"1": -100.5}], [[], {"1": "2"}]),
        ("top_logprobs", [0], [-1, 21], [1.0, True, "5"]),
    ],
)
def test_numbers_have_their_range(name: str, good: list[Any], beyond: list[Any], wrong: list[Any]) -> None:
    for value in good:
        assert sent(read(**{name: value}))[name] == value
    for value in beyond:
        assert fault(ask(**{name: value})) == (name, "invalid_value")
    for value in wrong:
        assert fault(ask(**{name: value})) == (name, "invalid_type")


@pytest.mark.row("B086", "B087")
def test_one_dialect_takes_penalties_and_ignores_them() -> None:
    """Whatever they are; and says which it ignored."""
    request = take(ask(frequency_penalty=7, presence_penalty="x"), "ezrouter")
    assert request.ignored == ("frequency_penalty", "presence_penalty")
    assert take(ask(frequency_penalty=None), "ezrouter").ignored == ()


@pytest.mark.row("B092", "B093")
def test_top_logprobs_needs_logprobs() -> None:
    for top in (1, 20):
        request = read(logprobs=True, top_logprobs=top)
        assert request.logprobs
        assert sent(request)["top_logprobs"] == top
        for without in (NOTHING, {"logprobs": False}, {"logprobs": None}):
            assert fault(ask(top_logprobs=top, **without)) == ("top_logprobs", "invalid_value")
    assert read(top_logprobs=0).logprobs is False
    assert fault(ask(logprobs=1)) == ("logprobs", "invalid_type")


@pytest.mark.row("B088")
def test_stop_is_a_sequence_or_as_many_as_the_dialect_has() -> None:
    sixteen = [f"<{i}>" for i in range(16)]
    assert read(stop="END").stops == ("END",)
    assert read(stop=[]).stops == read(stop=None).stops == read().stops == ()
    assert read(stop=sixteen).stops == tuple(sixteen)
    assert fault(ask(stop=[*sixteen, "x"])) == ("stop", "invalid_value")
    assert take(ask(stop=sixteen), "ezrouter").stops == tuple(sixteen)
    assert take(ask(stop=sixteen[:4]), "zenmux").stops == tuple(sixteen[:4])
    assert fault(ask(stop=sixteen[:5]), "zenmux") == ("stop", "invalid_value")
    for wrong in (1, {"a": 1}, ["a", 1], ["a", None]):
        assert fault(ask(stop=wrong)) == ("stop", "invalid_type")
    for empty in ("", ["a", ""], ["a" * 1025]):
        assert fault(ask(stop=empty)) == ("stop", "invalid_value")


@pytest.mark.row("B094")
def test_verbosity_has_three_levels() -> None:
    for value in ("low", "medium", "high"):
        assert sent(read(verbosity=value))["verbosity"] == value
    assert fault(ask(verbosity="loud")) == ("verbosity", "invalid_value")
    assert fault(ask(verbosity=1)) == ("verbosity", "invalid_type")


@pytest.mark.row("B095")
def test_metadata_are_at_most_sixteen_pairs() -> None:
    pairs = {str(at): "v" for at in range(16)}
    assert read(metadata=pairs).metadata == pairs
    assert read(metadata={"k" * 64: "v" * 512}).metadata == {"k" * 64: "v" * 512}
    for wrong, param, code in (
        ([], "metadata", "invalid_type"),
        ({**pairs, "x": ""}, "metadata", "invalid_value"),
        ({"k" * 65: "v"}, "metadata", "invalid_value"),
        ({"k\n": "v"}, "metadata", "invalid_value"),
        ({"k": 1}, "metadata.k", "invalid_type"),
        ({"k": None}, "metadata.k", "invalid_type"),
        ({"k": "v" * 513}, "metadata.k", "invalid_value"),
        ({"k": "a\x00"}, "metadata.k", "invalid_value"),
        ({"k": "a\r\nb"}, "metadata.k", "invalid_value"),
    ):
        assert fault(ask(metadata=wrong)) == (param, code)


@pytest.mark.row("B096", "B099")
@pytest.mark.parametrize("name", ["user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"])
def test_labels_are_short_and_free_of_control_characters(name: str) -> None:
    assert sent(read(**{name: "ü" * 512}))[name] == "ü" * 512
    for wrong, code in ((7, "invalid_type"), ("a\x00", "invalid_value"), ("a\r\nb", "invalid_value")):
        assert fault(ask(**{name: wrong})) == (name, code)
    assert fault(ask(**{name: "a" * 513})) == (name, "invalid_value")


@pytest.mark.row("B097")
def test_user_id_has_a_pattern() -> None:
    assert read(user_id="aZ0_-" * 102).end_user == "aZ0_-" * 102
    for wrong, code in (
        ("a b", "invalid_value"),
        ("ü", "invalid_value"),
        ("a\n", "invalid_value"),
        (7, "invalid_type"),
    ):
        assert fault(ask(user_id=wrong)) == ("user_id", code)
    assert fault(ask(user_id="a" * 513)) == ("user_id", "invalid_value")


@pytest.mark.row("B090", "B098", "B099", "B100", "B101", "B102", "B103")
@pytest.mark.parametrize(
    ("name", "good", "wrong"),
    [
        ("seed", 7, "7"),
        ("prompt_cache_key", "k", 7),
        ("prompt_cache_retention", "24h", 24),
        ("safety_identifier", "s", {}),
        ("store", True, "yes"),
        ("service_tier", "flex", 1),
        ("prediction", {"type": "content", "content": "x"}, "x"),
        ("audio", {"voice": "alloy", "format": "mp3"}, "alloy"),
        ("modalities", ["text", "audio"], ["text", 7]),
        ("modalities", ["text"], "text"),
        ("parallel_tool_calls", False, "no"),
        ("include_reasoning", True, 1),
    ],
)
def test_fields_that_some_pages_call_unsupported_are_taken(name: str, good: Any, wrong: Any) -> None:
    """Where they go depends on the offer; their form is checked in any case."""
    assert take(ask(**{name: good})).body[name] == good
    assert fault(ask(**{name: wrong})) == (name, "invalid_type")


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.row("B193", "B194", "B196", "B198", "B199")
@pytest.mark.parametrize(
    "value",
    [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "city_card"}},
        {"type": "json_schema", "json_schema": {"name": "a-Z_9" * 12 + "abcd", "schema": SCHEMA, "strict": True}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": None, "description": "Facts"}},
    ],
)
def test_an_answer_s_format_is_text_json_or_by_schema(value: dict[str, Any]) -> None:
    for dialect in DIALECTS:
        assert sent(take(ask(response_format=value), dialect))["response_format"] == value


@pytest.mark.row("B196", "B197", "B198", "B199", "B203")
@pytest.mark.parametrize(
    ("value", "path", "code"),
    [
        ("json", "", "invalid_type"),
        ({}, ".type", "missing_required_parameter"),
        ({"type": "xml"}, ".type", "invalid_value"),
        ({"type": ["text"]}, ".type", "invalid_value"),
        ({"type": "json_schema"}, ".json_schema", "missing_required_parameter"),
        ({"type": "json_schema", "json_schema": "x"}, ".json_schema", "invalid_type"),
        ({"type": "json_schema", "json_schema": {}}, ".json_schema.name", "missing_required_parameter"),
        ({"type": "json_schema", "json_schema": {"name": 7}}, ".json_schema.name", "invalid_type"),
        ({"type": "json_schema", "json_schema": {"name": "a b"}}, ".json_schema.name", "invalid_value"),
        ({"type": "json_schema", "json_schema": {"name": "a\n"}}, ".json_schema.name", "invalid_value"),
        ({"type": "json_schema", "json_schema": {"name": "a" * 65}}, ".json_schema.name", "invalid_value"),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": []}}, ".json_schema.schema", "invalid_type"),
        ({"type": "json_schema", "json_schema": {"name": "n", "strict": 1}}, ".json_schema.strict", "invalid_type"),
    ],
)
def test_a_wrong_format_is_refused(value: Any, path: str, code: str) -> None:
    assert fault(ask(response_format=value)) == (f"response_format{path}", code)


OSLO = {"city": "Oslo", "country": "NO", "timezone": "Europe/Oslo"}


@pytest.mark.row("B131", "B132", "B133")
def test_web_search_takes_a_place_in_both_forms() -> None:
    """One guide puts the place beside its type; an upstream gets it in the protocol's own form."""
    nested = {"user_location": {"type": "approximate", "approximate": OSLO}}
    flat = {"user_location": {"type": "approximate"} | OSLO}
    for form in (nested, flat):
        assert sent(read(web_search_options=form))["web_search_options"] == nested
    for value in ({}, {"search_context_size": "low"}, {"search_context_size": "high", "user_location": None}):
        assert sent(read(web_search_options=value))["web_search_options"] == value


@pytest.mark.row("B131", "B132", "B133")
@pytest.mark.parametrize(
    ("value", "path", "code"),
    [
        (True, "", "invalid_type"),
        ({"search_context_size": "huge"}, ".search_context_size", "invalid_value"),
        ({"user_location": "Oslo"}, ".user_location", "invalid_type"),
        ({"user_location": OSLO}, ".user_location.type", "missing_required_parameter"),
        ({"user_location": {"type": "exact"} | OSLO}, ".user_location.type", "invalid_value"),
        ({"user_location": {"type": "approximate", "city": 7}}, ".user_location.city", "invalid_type"),
        (
            {"user_location": {"type": "approximate", "approximate": {"region": 7}}},
            ".user_location.approximate.region",
            "invalid_type",
        ),
    ],
)
def test_a_wrong_search_is_refused(value: Any, path: str, code: str) -> None:
    assert fault(ask(web_search_options=value)) == (f"web_search_options{path}", code)


SAYS_JSON = [
    [{"role": "user", "content": "Answer in json."}],
    [{"role": "system", "content": "JSON, please"}, HI],
    [HI, {"role": "assistant", "content": [{"type": "text", "text": "As JSON5?"}]}, HI],
]
WISH = "Answer with a JSON object."
SAYS_NOTHING: list[tuple[list[Any], list[Any]]] = [
    ([HI], [{"role": "system", "content": WISH}, HI]),
    ([{"role": "system", "content": "Be brief."}, HI], [{"role": "system", "content": f"Be brief.\n\n{WISH}"}, HI]),
    (
        [{"role": "developer", "content": [{"type": "text", "text": "Be brief."}], "name": "d"}],
        [
            {
                "role": "developer",
                "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": WISH}],
                "name": "d",
            }
        ],
    ),
    # A name, a tool's arguments and a picture's address are no words to the model.
    (
        [HI, {"role": "assistant", "content": None, "tool_calls": [called("json", "json", '{"json":1}')]}],
        [
            {"role": "system", "content": WISH},
            HI,
            {"role": "assistant", "content": None, "tool_calls": [called("json", "json", '{"json":1}')]},
        ],
    ),
]


@pytest.mark.row("B195")
def test_a_wish_for_json_is_put_into_words_where_there_are_none() -> None:
    for messages in SAYS_JSON:
        request = read(messages=messages, response_format={"type": "json_object"})
        assert sent(request)["messages"] == messages
    for messages, expected in SAYS_NOTHING:
        before = deepcopy(messages)
        request = read(messages=messages, response_format={"type": "json_object"})
        assert sent(request)["messages"] == expected
        assert messages == before, "the client's own are left as they are"
        added = len(strict_json.dumps(expected)) - len(strict_json.dumps(messages))
        plain = read(messages=messages, response_format={"type": "text"})
        assert request.text_bytes - plain.text_bytes - len("json_object") + len("text") >= added > 0, "it is held for"
        for other in ({"type": "text"}, {"type": "json_schema", "json_schema": {"name": "a"}}):
            assert sent(read(messages=messages, response_format=other))["messages"] == messages
        withheld = Fit(named=("response_format",), withheld=frozenset({"response_format"}))
        assert sent(request, fit=withheld)["messages"] == messages, "what is not asked for is not put into words"
