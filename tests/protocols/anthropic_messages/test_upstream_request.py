"""What a provider of the Messages protocol is sent for a request of the chat form."""

from typing import Any

import pytest

from gateway.protocols.anthropic_messages.forms.takes import Takes
from gateway.protocols.anthropic_messages.upstream_request import Reading
from tests.protocols.anthropic_messages.chats import (
    ADAPTIVE,
    EPHEMERAL,
    HI,
    OLD,
    TOOL,
    WEATHER,
    answered,
    called,
    refused,
    result,
    sent,
    text,
    turns,
    use,
)


@pytest.mark.row("B080")
def test_a_plain_request() -> None:
    made = sent({"role": "system", "content": "Be brief."}, HI, temperature=0.5, stop=["END"], user="u-1", top_k=5)
    assert made.body == {
        "model": "up-1",
        "max_tokens": 4000,
        "system": [text("Be brief.")],
        "messages": [{"role": "user", "content": [text("hi")]}],
        "temperature": 0.5,
        "top_k": 5,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u-1"},
    }
    assert (made.ignored, made.reading) == ((), Reading())
    assert sent(HI, cap=None).body["max_tokens"] == 4096
    assert sent(HI, cap=None, max_tokens=7).body["max_tokens"] == 7


def test_no_instruction_is_lost_wherever_it_stands() -> None:
    made = sent({"role": "system", "content": "One."}, HI, {"role": "developer", "content": [text("Two.")]}, HI).body
    assert made["system"] == [text("One."), text("Two.")]
    assert made["messages"] == [{"role": "user", "content": [text("hi"), text("hi")]}]
    alone = sent({"role": "system", "content": "One."}).body
    assert alone["messages"] == [{"role": "user", "content": [text("One.")]}] and "system" not in alone


def test_results_stand_together_before_what_the_user_says() -> None:
    made = turns(HI, called("a", "b"), answered("a"), answered("b", "2"), {"role": "user", "content": "go on"})
    assert made[1:] == [
        {"role": "assistant", "content": [use("a"), use("b")]},
        {"role": "user", "content": [result("a", content="1"), result("b", content="2"), text("go on")]},
    ]


def test_ids_that_a_provider_would_refuse_are_made_fit_and_stay_apart() -> None:
    ids = ("functions.get_w:0", "functions_get_w_0", "x" * 300)
    made = turns(HI, called(*ids), *(answered(id) for id in ids))
    uses = [block["id"] for block in made[1]["content"]]
    assert uses == [block["tool_use_id"] for block in made[2]["content"]]
    assert len(set(uses)) == 3 and uses[1] == "functions_get_w_0"
    assert all(id.replace("_", "").isalnum() and len(id) <= 256 for id in uses)
    assert uses == [block["id"] for block in turns(HI, called(*ids))[1]["content"]]


def test_an_id_that_two_turns_share_is_two_calls() -> None:
    """As some servers of open models number calls: from 0 in each turn."""
    made = turns(HI, called("call_0"), answered("call_0"), called("call_0"), answered("call_0", "2"))
    ids = [made[at]["content"][0]["id"] for at in (1, 3)]
    assert ids[0] == "call_0" != ids[1]
    assert [made[at]["content"] for at in (2, 4)] == [[result(ids[0], content="1")], [result(ids[1], content="2")]]
    twice = turns(HI, called("a", "a"), answered("a"), answered("a", "2"))
    assert [block["id"] for block in twice[1]["content"]] == [block["tool_use_id"] for block in twice[2]["content"]]


@pytest.mark.parametrize("content", ["", None, [text("")], " \n", [text(" ")]])
def test_an_empty_text_is_no_block(content: Any) -> None:
    made = turns(HI, called("a", content=content), answered("a", ""))
    assert made[1:] == [
        {"role": "assistant", "content": [use("a")]},
        {"role": "user", "content": [result("a")]},
    ]


def test_a_call_without_its_result_gets_one_and_a_result_without_its_call_is_text() -> None:
    made = turns(HI, called("a", "b"), answered("b"), {"role": "user", "content": "stop"}, answered("z", "5"))
    assert made[2]["content"] == [
        result("b", content="1"),
        result("a", content="The tool gave no result.", is_error=True),
        text("stop"),
        text("Result of the tool call z:"),
        text("5"),
    ]


def test_a_result_that_failed_or_has_a_breakpoint() -> None:
    failed = answered("a", [text("The tool failed."), text("no file", cache_control=EPHEMERAL)])
    assert turns(HI, called("a"), failed)[2]["content"] == [
        result("a", is_error=True, cache_control=EPHEMERAL, content="no file")
    ]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ('{"city": "Oslo"}', {"city": "Oslo"}),
        ("", {}),
        ("{", {"_raw": "{"}),
        ("[1]", {"_raw": "[1]"}),
        ('{"a": 1, "a": 2}', {"_raw": '{"a": 1, "a": 2}'}),
    ],
)
def test_arguments_that_are_no_object_are_never_the_end(arguments: str, given: Any) -> None:
    assert turns(HI, called("a", arguments=arguments))[1]["content"] == [use("a", given)]


def test_the_older_form_of_calls() -> None:
    made = turns(
        HI,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "5"},
    )
    id = made[1]["content"][0]["id"]
    assert made[1:] == [
        {"role": "assistant", "content": [use(id)]},
        {"role": "user", "content": [result(id, content="5")]},
    ]


@pytest.mark.row("B058")
def test_thoughts_of_its_own_come_first_and_those_of_others_do_not_go() -> None:
    own = {"type": "reasoning.text", "text": "So.", "signature": "Eq==", "format": "anthropic-claude-v1", "index": 0}
    hidden = {"type": "reasoning.encrypted", "data": "Emw=", "format": "anthropic-claude-v1", "index": 1}
    others = [
        {"type": "reasoning.encrypted", "data": "gAAA", "format": "openai-responses-v1", "id": "rs_1"},
        {"type": "reasoning.text", "text": "Hm.", "signature": "x", "format": "google-gemini-v1"},
        {"type": "reasoning.text", "text": "nobody signed this"},
    ]
    made = turns(HI, called("a", reasoning_details=[own, others[0], hidden, *others[1:]]), answered("a"))
    assert made[1]["content"] == [
        {"type": "thinking", "thinking": "So.", "signature": "Eq=="},
        {"type": "redacted_thinking", "data": "Emw="},
        use("a"),
    ]


@pytest.mark.row("B191")
@pytest.mark.parametrize(
    ("fields", "takes", "cap", "thinking", "effort"),
    [
        ({"reasoning_effort": "high"}, Takes(), 10_000, {"type": "enabled", "budget_tokens": 8_000}, None),
        ({"reasoning": {"max_tokens": 2_000}}, Takes(), 10_000, {"type": "enabled", "budget_tokens": 2_000}, None),
        ({"reasoning": {"max_tokens": 20_000}}, Takes(), 4_000, {"type": "enabled", "budget_tokens": 3_999}, None),
        ({"reasoning_effort": "low"}, Takes(), 2_000, {"type": "enabled", "budget_tokens": 1_024}, None),
        ({"reasoning": {"enabled": True}}, Takes(), 10_000, {"type": "enabled", "budget_tokens": 5_000}, None),
        ({"reasoning_effort": "none"}, Takes(), 10_000, {"type": "disabled"}, None),
        ({"thinking": {"type": "disabled"}}, ADAPTIVE, 10_000, {"type": "disabled"}, None),
        ({"reasoning_effort": "xhigh"}, ADAPTIVE, 10_000, {"type": "adaptive"}, "xhigh"),
        ({"reasoning": {"max_tokens": 2_000}}, ADAPTIVE, 10_000, {"type": "adaptive"}, "low"),
        ({"reasoning": {"enabled": True}}, ADAPTIVE, 10_000, {"type": "adaptive"}, None),
        ({}, ADAPTIVE, 10_000, None, None),
    ],
)
def test_how_much_to_think_within_the_provider_s_bounds(
    fields: dict[str, Any], takes: Takes, cap: int, thinking: Any, effort: str | None
) -> None:
    made = sent(HI, takes=takes, cap=cap, **fields)
    assert made.body.get("thinking") == thinking
    assert made.body.get("output_config", {}).get("effort") == effort
    assert made.ignored == ()


@pytest.mark.row("B062")
def test_who_goes_on_from_another_one_s_call_does_not_think_in_a_budget() -> None:
    made = sent(HI, called("a"), answered("a"), reasoning_effort="high")
    assert "thinking" not in made.body and made.ignored == ("reasoning",)
    assert sent(HI, called("a"), answered("a"), reasoning_effort="high", takes=ADAPTIVE).body["thinking"]
    own = [{"type": "reasoning.text", "text": "So.", "signature": "Eq==", "format": "anthropic-claude-v1"}]
    kept = sent(HI, called("a", reasoning_details=own), answered("a"), reasoning_effort="high")
    assert kept.body["thinking"]["type"] == "enabled" and kept.ignored == ()


def test_a_cap_without_room_for_thoughts_is_told() -> None:
    made = sent(HI, cap=1_024, reasoning_effort="high")
    assert "thinking" not in made.body and made.ignored == ("reasoning",)


@pytest.mark.parametrize(
    ("fields", "kept", "ignored"),
    [
        ({"store": False, "logit_bias": {}, "prompt_cache_key": "k", "prompt_cache_retention": "24h"}, {}, ()),
        ({"temperature": 1.7}, {"temperature": 1}, ("temperature",)),
        ({"temperature": 0.2, "top_p": 0.9}, {"temperature": 0.2}, ("top_p",)),
        ({"top_p": 0.9}, {"top_p": 0.9}, ()),
        ({"temperature": 0.2, "top_k": 5, "reasoning_effort": "low"}, {}, ("temperature", "top_k")),
        ({"temperature": 1, "top_p": 0.97, "reasoning_effort": "low"}, {"top_p": 0.97}, ()),
        (
            {"seed": 1, "frequency_penalty": 1, "store": True, "glow": 2},
            {},
            ("seed", "frequency_penalty", "store", "glow"),
        ),
    ],
)
def test_what_has_no_effect_is_told(fields: dict[str, Any], kept: dict[str, Any], ignored: tuple[str, ...]) -> None:
    made = sent(HI, cap=8_000, **fields)
    assert {name: made.body[name] for name in ("temperature", "top_p", "top_k") if name in made.body} == kept
    assert made.ignored == ignored


def test_tools() -> None:
    bare = [{"type": "function", "function": inner} for inner in ({"name": "a"}, {"name": "b", "parameters": {}})]
    made = sent(HI, tools=[{**TOOL, "cache_control": EPHEMERAL}, *bare]).body
    assert made["tools"] == [
        {"name": "get_w", "input_schema": WEATHER, "cache_control": EPHEMERAL},
        {"name": "a", "input_schema": {"type": "object", "properties": {}}},
        {"name": "b", "input_schema": {"type": "object", "properties": {}}},
    ]
    assert "tool_choice" not in made
    assert "tools" not in sent(HI, tools=[]).body


@pytest.mark.row("B127")
@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none"}, {"type": "none"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": {"type": "function", "function": {"name": "get_w"}}}, {"type": "tool", "name": "get_w"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        (
            {"tool_choice": "required", "parallel_tool_calls": False},
            {"type": "any", "disable_parallel_tool_use": True},
        ),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
    ],
)
def test_the_choice_among_tools(fields: dict[str, Any], choice: dict[str, Any]) -> None:
    assert sent(HI, tools=[TOOL], **fields).body["tool_choice"] == choice


def test_a_choice_among_some_of_the_tools_leaves_out_the_others() -> None:
    other = {"type": "function", "function": {"name": "f"}}
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}
    made = sent(HI, tools=[TOOL, other], tool_choice={"type": "allowed_tools", "allowed_tools": allowed}).body
    assert [tool["name"] for tool in made["tools"]] == ["f"] and made["tool_choice"] == {"type": "any"}


@pytest.mark.row("B129")
def test_a_forced_call_and_thinking_exclude_each_other_by_name() -> None:
    named = {"type": "function", "function": {"name": "get_w"}}
    for takes in (Takes(), ADAPTIVE):
        for choice in ("required", named):
            fields = {"tools": [TOOL], "tool_choice": choice, "reasoning_effort": "high"}
            assert refused(HI, takes=takes, **fields) == "tool_choice"
    assert sent(HI, tools=[TOOL], tool_choice="auto", reasoning_effort="high").body["thinking"]["type"] == "enabled"
    schema = {"type": "json_schema", "json_schema": {"name": "r", "schema": WEATHER}}
    assert refused(HI, takes=OLD, response_format=schema, reasoning_effort="high") == "response_format"


def test_custom_tools_take_a_text() -> None:
    custom = {"type": "custom", "custom": {"name": "run", "description": "Runs.", "format": {"type": "text"}}}
    past = {"id": "c", "type": "custom", "custom": {"name": "run", "input": "ls"}}
    made = sent(HI, {"role": "assistant", "content": None, "tool_calls": [past]}, answered("c"), tools=[custom])
    assert made.body["tools"][0]["input_schema"]["required"] == ["input"]
    assert made.body["messages"][1]["content"][0]["input"] == {"input": "ls"}
    assert made.reading == Reading(custom_tools=frozenset({"run"}))
    grammar = {"type": "custom", "custom": {"name": "run", "format": {"type": "grammar"}}}
    assert refused(HI, tools=[grammar]) == "tools[0].custom.format"


def test_a_structured_answer_by_the_provider_s_own_means() -> None:
    schema = {**WEATHER, "properties": {"city": {"type": "string", "minLength": 2, "description": "Where."}}}
    form = {"type": "json_schema", "json_schema": {"name": "r", "schema": schema, "strict": True}}
    made = sent(HI, response_format=form, takes=Takes(adaptive=True), reasoning_effort="low")
    assert made.body["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": 'Where.\n\n{"minLength":2}'}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    assert "tools" not in made.body and made.reading == Reading()


def test_a_structured_answer_as_what_a_tool_is_given() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "r", "schema": WEATHER}}
    made = sent(HI, response_format=form, takes=OLD)
    assert made.body["tools"][0]["input_schema"] == WEATHER
    assert made.body["tool_choice"] == {"type": "tool", "name": "answer_in_json"}
    assert made.reading == Reading(answer_tool="answer_in_json")
    taken = {"type": "function", "function": {"name": "answer_in_json"}}
    beside = sent(HI, response_format=form, takes=OLD, tools=[taken])
    assert beside.reading.answer_tool == "answer_in_json_"
    assert beside.body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert "output_config" not in beside.body


@pytest.mark.row("B202")
def test_any_json_object_is_a_tool_s_input_or_where_it_thinks_a_wish() -> None:
    made = sent(HI, response_format={"type": "json_object"})
    assert made.body["tools"][0]["input_schema"] == {"type": "object", "properties": {}}
    thinking = sent(HI, response_format={"type": "json_object"}, reasoning_effort="low")
    assert thinking.body["system"] == [text("Answer with a JSON object.")] and "tools" not in thinking.body


def test_searches_of_the_web_are_bounded() -> None:
    place = {"type": "approximate", "approximate": {"city": "Oslo"}}
    made = sent(HI, web_search_options={"search_context_size": "low", "user_location": place})
    assert made.body["tools"] == [
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "max_uses": 10,
            "user_location": {"type": "approximate", "city": "Oslo"},
        }
    ]
    assert made.ignored == ("web_search_options.search_context_size",)


def said(part: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [part]}


SOUND = said({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}})
FILM = said({"type": "video_url", "video_url": {"url": "https://films.example/a.mp4"}})


@pytest.mark.parametrize(
    ("messages", "fields", "param"),
    [
        ([SOUND], {}, "messages[0].content[0].type"),
        ([FILM], {}, "messages[0].content[0].type"),
        ([HI, {"role": "assistant", "audio": {"id": "a"}}, HI], {}, "messages[1].audio"),
        ([HI], {"n": 2}, "n"),
        ([HI], {"functions": [{"name": "f", "parameters": "x"}]}, "functions[0].parameters"),
        ([HI], {"modalities": ["text", "audio"]}, "modalities"),
        ([{"role": "user", "content": " "}], {}, "messages"),
    ],
)
def test_what_can_not_be_carried_is_refused_by_name(messages: Any, fields: dict[str, Any], param: str) -> None:
    assert refused(*messages, **fields) == param


def test_the_beginning_of_an_answer_ends_without_blanks() -> None:
    assert turns(HI, {"role": "assistant", "content": "The answer is \n"})[1]["content"] == [text("The answer is")]


def test_a_stop_sequence_of_blanks_is_not_the_provider_s_to_find() -> None:
    made = sent(HI, stop=["\n\n", "END"])
    assert made.body["stop_sequences"] == ["END"] and made.ignored == ("stop",)
