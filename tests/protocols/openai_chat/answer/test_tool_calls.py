"""Tool calls of OpenAI chat upstreams, in the forms servers give them, as clients of every kind can use them."""

import json
from typing import Any

import pytest

from gateway.protocols.openai_chat.answer.tool_calls import MAX_CALLS
from tests.protocols.openai_chat.answers import DONE, chunk, reader, relay, relay_at_every_cut, usage, whole

STOP = chunk({}, "stop")
END = chunk({}, "tool_calls")
CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def fragment(arguments: Any = None, *, name: Any = None, **fields: Any) -> dict[str, Any]:
    """A tool call or a piece of one; what is not named is not there."""
    inner = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return fields | {"function": inner}


def pieces(upstream: bytes) -> list[dict[str, Any]]:
    """The fragments of a streaming client."""
    return [call for delta, _ in relay_at_every_cut(upstream).deltas for call in delta.get("tool_calls", [])]


def calls(upstream: bytes) -> list[dict[str, Any]]:
    """The calls of a client that does not stream."""
    made: list[dict[str, Any]] = relay_at_every_cut(upstream, stream=False).message["tool_calls"]
    return made


@pytest.mark.row("B264", "B265")
@pytest.mark.parametrize("nothing", [None, ""])
def test_continued_tool_calls_carry_only_their_arguments(nothing: str | None) -> None:
    begun = {"index": 0, "id": "call_9", "type": "function", "function": {"name": "get_w", "arguments": ""}}
    more = {"index": 0, "id": nothing, "type": nothing, "function": {"name": nothing, "arguments": '{"city":'}}
    repeated = begun | {"function": {"name": "get_w", "arguments": '"Oslo"}'}}
    seen = relay_at_every_cut(
        chunk({"role": "assistant", "content": None, "tool_calls": [begun]})
        + chunk({"role": None, "content": None, "tool_calls": [more]})
        + chunk({"tool_calls": [repeated]})
        + END
        + DONE
    )
    assert seen.deltas == [
        ({"role": "assistant", "content": None, "tool_calls": [begun]}, None),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]}, None),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '"Oslo"}'}}]}, None),
        ({}, "tool_calls"),
    ]
    assert seen.known["relayed_bytes"] == len('{"city":"Oslo"}')


def test_a_continuation_that_says_nothing_is_dropped() -> None:
    empty = {"index": 0, "id": None, "type": "function", "function": {"name": "", "arguments": None}}
    seen = relay_at_every_cut(chunk({"tool_calls": [CALL]}) + chunk({"tool_calls": [empty]}, "tool_calls") + DONE)
    assert seen.deltas == [({"role": "assistant", "tool_calls": [CALL]}, None), ({}, "tool_calls")]


@pytest.mark.row("B228", "B265")
def test_a_call_begins_with_all_that_a_client_needs_of_it() -> None:
    upstream = (
        chunk({"tool_calls": [fragment(index=0)]})
        + chunk({"tool_calls": [fragment("{", index=0, extra={"s": 1})]})
        + chunk({"tool_calls": [fragment('"a":', id="c", name="f", index=0)]})
        + chunk({"tool_calls": [fragment("1}", id="c", name="f", index=0, other=None)]})
        + END
        + DONE
    )
    begun = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":'}}
    assert pieces(upstream) == [begun | {"extra": {"s": 1}}, {"index": 0, "function": {"arguments": "1}"}}]
    (call,) = calls(upstream)
    assert call["function"] == {"name": "f", "arguments": '{"a":1}'}


@pytest.mark.row("B228")
def test_a_call_without_an_id_gets_one_that_stands() -> None:
    upstream = (
        chunk({"tool_calls": [fragment("{", name="f", index=0), fragment("{}", name="f", index=1)]})
        + chunk({"tool_calls": [fragment("}", id="late", index=0)]}, "tool_calls")
        + DONE
    )
    assert [(call["index"], call.get("id"), call.get("type")) for call in pieces(upstream)] == [
        (0, "call_gen-1_0", "function"),
        (1, "call_gen-1_1", "function"),
        (0, None, None),
    ]
    made = calls(upstream)
    assert [(call["id"], call["function"]["arguments"]) for call in made] == [
        ("call_gen-1_0", "{}"),
        ("call_gen-1_1", "{}"),
    ]
    body = whole({"tool_calls": [fragment("{}", name="f"), fragment("{}", name="f", id="")]}, "tool_calls")
    assert calls(body) == made


def test_a_call_that_never_gets_a_name_is_not_lost() -> None:
    upstream = chunk({"tool_calls": [fragment("{}", id="c", index=0), fragment(index=1)]}) + END + DONE
    assert pieces(upstream) == [CALL | {"function": {"name": "", "arguments": "{}"}}]
    assert [call["id"] for call in calls(upstream)] == ["c"]


@pytest.mark.row("B266")
@pytest.mark.parametrize("sent", [None, 0])
def test_parallel_tool_calls_without_an_index_are_kept_apart(sent: int | None) -> None:
    def call(arguments: str, name: str | None = None, id: str | None = None) -> dict[str, Any]:
        index = {} if sent is None else {"index": sent}
        return fragment(arguments, name=name) | ({"id": id} if id else {}) | index

    upstream = (
        chunk({"tool_calls": [call("{}", "f", "c1"), call("{", "g", "c2")]})
        + chunk({"tool_calls": [call("}")]})
        + chunk({"tool_calls": [call("{}", "h", "c3")]}, "tool_calls")
        + DONE
    )
    assert [(made["id"], made["function"]) for made in calls(upstream)] == [
        ("c1", {"name": "f", "arguments": "{}"}),
        ("c2", {"name": "g", "arguments": "{}"}),
        ("c3", {"name": "h", "arguments": "{}"}),
    ]
    assert [piece["index"] for piece in pieces(upstream)] == [0, 1, 1, 2]


@pytest.mark.row("B266")
@pytest.mark.parametrize("sent", [{}, {"index": 0}])
def test_calls_with_neither_id_nor_a_true_index_are_told_apart_by_name(sent: dict[str, int]) -> None:
    made = [fragment("{}", name=name, **sent) for name in "fg"]
    for upstream in (chunk({"tool_calls": made}), b"".join(chunk({"tool_calls": [call]}) for call in made)):
        names = [(call["id"], call["function"]["name"]) for call in calls(upstream + END + DONE)]
        assert names == [("call_gen-1_0", "f"), ("call_gen-1_1", "g")]


@pytest.mark.row("B266")
def test_three_calls_of_one_function_stay_three() -> None:
    sent = [fragment(f'{{"city":"{city}"}}', name="get_w") for city in "ABC"]
    streamed = b"".join(chunk({"tool_calls": [call]}) for call in sent) + END + DONE
    for upstream in (streamed, whole({"tool_calls": sent}, "tool_calls")):
        made = calls(upstream)
        assert [json.loads(call["function"]["arguments"])["city"] for call in made] == ["A", "B", "C"]
        assert len({call["id"] for call in made}) == 3
        assert [piece["index"] for piece in pieces(upstream)] == [0, 1, 2]


@pytest.mark.row("B266")
@pytest.mark.parametrize("sent", [(0, 1), (1, 0), (1, 2), (1, 4), (7, 3), (-1, 2**40)])
def test_calls_are_numbered_from_0_in_the_order_in_which_they_begin(sent: tuple[int, int]) -> None:
    begun = [
        CALL | {"index": at, "id": id, "function": {"name": "f", "arguments": ""}}
        for at, id in zip(sent, "ab", strict=True)
    ]
    more = [fragment(f'{{"id":"{id}"}}', index=at) for at, id in reversed(list(zip(sent, "ab", strict=True)))]
    upstream = b"".join(chunk({"tool_calls": [call]}) for call in (*begun, *more)) + END + DONE
    assert pieces(upstream) == [
        begun[0] | {"index": 0},
        begun[1] | {"index": 1},
        fragment('{"id":"b"}', index=1),
        fragment('{"id":"a"}', index=0),
    ]
    assert [(call["id"], call["function"]["arguments"]) for call in calls(upstream)] == [
        ("a", '{"id":"a"}'),
        ("b", '{"id":"b"}'),
    ]


@pytest.mark.row("B265")
def test_a_lone_tool_call_without_an_index_is_continued() -> None:
    upstream = (
        chunk({"tool_calls": [fragment("{", id="c1", name="f")]})
        + chunk({"tool_calls": [fragment("}")]}, "tool_calls")
        + DONE
    )
    assert pieces(upstream) == [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{"}},
        {"index": 0, "function": {"arguments": "}"}},
    ]


@pytest.mark.row("B048", "B228")
def test_a_custom_tool_s_call_passes() -> None:
    begun = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": "sel"}}
    more = {"index": 0, "custom": {"input": "ect 1"}}
    upstream = chunk({"tool_calls": [begun]}) + chunk({"tool_calls": [more]}) + END + DONE
    assert pieces(upstream) == [begun, more]
    made = [{"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}]
    assert calls(upstream) == made == calls(whole({"tool_calls": made}, "tool_calls"))


@pytest.mark.row("B049")
@pytest.mark.parametrize("arguments", ['{"city": Oslo', "", "not json", '{"a": 1,}'])
def test_arguments_are_not_read_and_not_repaired(arguments: str) -> None:
    for upstream in (
        chunk({"tool_calls": [fragment(arguments, id="c", name="f", index=0)]}) + END + DONE,
        whole({"tool_calls": [fragment(arguments, id="c", name="f")]}, "tool_calls"),
    ):
        assert calls(upstream)[0]["function"]["arguments"] == arguments
        assert "".join(piece["function"]["arguments"] for piece in pieces(upstream)) == arguments


def test_arguments_sent_as_an_object_become_its_json() -> None:
    for upstream in (
        chunk({"tool_calls": [fragment({"city": "Žilina"}, id="c", name="f", index=0)]}) + END + DONE,
        whole({"tool_calls": [fragment({"city": "Žilina"}, id="c", name="f")]}, "tool_calls"),
    ):
        assert calls(upstream)[0]["function"]["arguments"] == '{"city":"Žilina"}'
        assert pieces(upstream)[0]["function"]["arguments"] == '{"city":"Žilina"}'


@pytest.mark.row("B128", "B217")
@pytest.mark.parametrize("content", [None, "", "Let me look."])
def test_a_call_without_text_has_null_content(content: str | None) -> None:
    made = {name: value for name, value in CALL.items() if name != "index"}
    body = whole({"role": "assistant", "content": content, "tool_calls": [made]}, "tool_calls")
    streamed = chunk({"role": "assistant", "content": content, "tool_calls": [CALL]}) + END + usage(3, 1) + DONE
    for upstream in (body, streamed):
        seen = relay_at_every_cut(upstream, stream=False)
        assert seen.message == {
            "role": "assistant",
            "content": content or None,
            "refusal": None,
            "annotations": [],
            "tool_calls": [made],
        }
        assert seen.body["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.row("B128", "B213")
@pytest.mark.parametrize("said", ["stop", "STOP", "tool_use", "tool_calls"])
def test_an_answer_with_calls_ended_for_them(said: str) -> None:
    for upstream in (
        chunk({"tool_calls": [CALL]}, said) + DONE,
        whole({"tool_calls": [fragment("{}", name="f")]}, said),
    ):
        seen = relay_at_every_cut(upstream)
        assert seen.deltas[-1] == ({}, "tool_calls")
        assert seen.known["finish_reason"] == "tool_calls"
        (choice,) = relay([upstream], stream=False).body["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice.get("native_finish_reason", "tool_calls") == said
    cut = relay_at_every_cut(chunk({"tool_calls": [CALL]}, "length") + DONE)
    assert cut.deltas[-1] == ({}, "length")


@pytest.mark.row("B130")
@pytest.mark.parametrize("nothing", [{}, {"content": ""}, {"tool_calls": []}, {"reasoning": "I'll call."}])
@pytest.mark.parametrize("stream", [True, False])
def test_calls_announced_and_never_sent_are_a_failure(nothing: dict[str, Any], stream: bool) -> None:
    for upstream in (
        chunk({"role": "assistant"}) + chunk(nothing) + END + usage(3, 9) + DONE,
        chunk(nothing, "tool_calls"),
        whole(nothing, "tool_calls"),
        whole(nothing, "function_call"),
    ):
        seen = relay_at_every_cut(upstream, stream=stream)
        assert (seen.fault, seen.final) == ("invalid_response", b"")
        assert seen.known["meaningful"] is ("reasoning" in nothing and upstream[:1] == b"d")


@pytest.mark.row("B130")
def test_text_whose_calls_never_came_just_stopped() -> None:
    for upstream in (chunk({"content": "ok"}) + END + DONE, whole({"content": "ok"}, "tool_calls")):
        seen = relay_at_every_cut(upstream)
        assert seen.deltas[-1] == ({}, "stop")
        assert seen.chunks[-1]["choices"][0]["native_finish_reason"] == "tool_calls"
        assert relay([upstream], stream=False).body["choices"][0]["finish_reason"] == "stop"


FUNCTIONS = {"functions": [{"name": "f", "parameters": {"type": "object"}}]}


@pytest.mark.row("B104", "B227", "B264")
def test_a_client_of_functions_sees_the_first_call_as_its_function_call() -> None:
    sent = [fragment("{", id="a", name="f", index=0), fragment("{}", id="b", name="g", index=1), fragment("}", index=0)]
    upstream = b"".join(chunk({"tool_calls": [call]}) for call in sent) + END + usage(3, 1) + DONE
    seen = relay_at_every_cut(upstream, **FUNCTIONS)
    assert [delta.get("function_call") for delta, _ in seen.deltas] == [
        *({"name": "f", "arguments": "{"}, None, {"arguments": "}"}, None),
    ]
    assert seen.deltas[-1] == ({}, "function_call")
    assert seen.known["relayed_bytes"] == 4
    made = [fragment("{}", id="a", name="f"), fragment("{}", id="b", name="g")]
    for answer in (upstream, whole({"content": None, "tool_calls": made}, "tool_calls")):
        seen = relay_at_every_cut(answer, stream=False, **FUNCTIONS)
        assert seen.message["function_call"] == {"name": "f", "arguments": "{}"}
        assert [call["id"] for call in seen.message["tool_calls"]] == ["a", "b"]
        assert seen.body["choices"][0]["finish_reason"] == "function_call"


@pytest.mark.row("B227")
def test_nobody_else_does() -> None:
    for upstream in (chunk({"tool_calls": [CALL]}) + END + DONE, whole({"tool_calls": [CALL]}, "tool_calls")):
        for stream in (True, False):
            assert b"function_call" not in relay([upstream], stream=stream).final
    stub = whole({"content": "ok", "function_call": None, "tool_calls": None})
    assert relay([stub], stream=False).message.keys() == {"role", "content", "refusal", "annotations"}


@pytest.mark.row("B227", "B264")
@pytest.mark.parametrize("said", ["function_call", "stop"])
def test_an_upstream_of_functions_is_understood(said: str) -> None:
    upstream = (
        chunk({"function_call": {"name": "f", "arguments": "{"}})
        + chunk({"function_call": {"arguments": "}"}}, said)
        + DONE
    )
    seen = relay_at_every_cut(upstream)
    assert [delta.get("function_call") for delta, _ in seen.deltas] == [
        *({"name": "f", "arguments": "{"}, {"arguments": "}"}, None),
    ]
    assert seen.deltas[-1] == ({}, "function_call")
    assert relay_at_every_cut(upstream, stream=False).message["function_call"] == {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize("broken", ["x", {"a": 1}, [1], ["x"], [None]])
@pytest.mark.parametrize("stream", [True, False])
def test_calls_that_are_none_are_an_error(broken: Any, stream: bool) -> None:
    for upstream in (chunk({"tool_calls": broken}) + END, whole({"tool_calls": broken}, "tool_calls")):
        assert relay_at_every_cut(upstream, stream=stream).fault == "invalid_response"


# --- ids that change, names in pieces -------------------------------------------------------------------------------

OPENED = {
    "index": 0,
    "id": "chatcmpl-tool-7f3a",
    "type": "function",
    "function": {"name": "read_file", "arguments": ""},
}


@pytest.mark.parametrize("index", [{"index": 0}, {}])
@pytest.mark.parametrize(
    "changed",
    [
        {"id": "glmcall-0"},
        {"id": "null", "type": "function", "function": {"name": ""}},
        {"id": "None", "type": None, "function": {"name": None}},
        {"id": "", "type": ""},
        {"id": 7},
    ],
)
def test_an_id_that_changes_while_a_call_goes_on_begins_no_call(changed: dict[str, Any], index: dict[str, int]) -> None:
    inner = changed.get("function", {})
    more = [changed | index | {"function": inner | {"arguments": text}} for text in ('{"path": ', '"a.txt"}')]
    upstream = (
        b"".join(chunk({"tool_calls": [call]}) for call in ((OPENED | index), *more)) + END + usage(20, 11) + DONE
    )
    assert pieces(upstream) == [
        OPENED,
        fragment('{"path": ', index=0),
        fragment('"a.txt"}', index=0),
    ]
    assert calls(upstream) == [
        {
            "id": "chatcmpl-tool-7f3a",
            "type": "function",
            "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'},
        }
    ]


def test_a_new_id_with_a_name_begins_a_call_at_the_same_index() -> None:
    sent = [fragment("{}", id="a", name="read_file", index=0), fragment("{}", id="b", name="get_time", index=0)]
    upstream = b"".join(chunk({"tool_calls": [call]}) for call in sent) + END + DONE
    assert [(piece["index"], piece["id"]) for piece in pieces(upstream)] == [(0, "a"), (1, "b")]
    back = chunk({"tool_calls": [fragment("1", id="a", index=0)]})
    upstream = upstream.replace(END, back + END)
    assert [call["function"]["arguments"] for call in calls(upstream)] == ["{}1", "{}"]


@pytest.mark.parametrize("id", ["null", "None", "", None, "undefined", [], {}])
def test_an_id_that_is_none_is_replaced(id: Any) -> None:
    for upstream in (
        chunk({"tool_calls": [fragment("{}", id=id, name="f", index=0)]}) + END + DONE,
        whole({"tool_calls": [fragment("{}", id=id, name="f")]}, "tool_calls"),
    ):
        assert [call["id"] for call in calls(upstream)] == ["call_gen-1_0"]


def test_an_id_that_is_a_number_is_its_text() -> None:
    upstream = chunk({"tool_calls": [fragment("{}", id=12, name="f", index=0)]}) + END + DONE
    assert calls(upstream)[0]["id"] == "12" == pieces(upstream)[0]["id"]


TOOLS = {"tools": [{"type": "function", "function": {"name": name}} for name in ("get", "get_weather", "get_time")]}


@pytest.mark.parametrize(
    ("names", "whole_name"),
    [
        (["get_", "weather"], "get_weather"),
        (["g", "e", "t_", "time"], "get_time"),
        (["get", "get_time"], "get_time"),  # It says all that it has, again and again.
        (["get", "get"], "get"),
        (["get", "", None], "get"),
        (["get_weather"], "get_weather"),
        (["got"], "got"),
    ],
)
@pytest.mark.parametrize("id", [{}, {"id": "c"}])
def test_a_name_that_comes_in_pieces_goes_out_whole(names: list[str], whole_name: str, id: dict[str, str]) -> None:
    named = [fragment("", name=name, index=0) | (id if at == 0 else {}) for at, name in enumerate(names)]
    upstream = b"".join(chunk({"tool_calls": [call]}) for call in (*named, fragment("{}", index=0))) + END + DONE
    made = relay_at_every_cut(upstream, **TOOLS)
    sent = [call for delta, _ in made.deltas for call in delta.get("tool_calls", [])]
    assert [call["function"].get("name") for call in sent if "id" in call] == [whole_name]
    assert "".join(call["function"]["arguments"] for call in sent) == "{}"
    (call,) = relay_at_every_cut(upstream, stream=False, **TOOLS).message["tool_calls"]
    assert call["function"] == {"name": whole_name, "arguments": "{}"}


def test_a_call_without_arguments_whose_name_might_go_on_is_not_lost() -> None:
    for sent in (
        [fragment("", id="a", name="get", index=0)],
        [fragment("", name="get"), fragment("", name="get_time")],
    ):
        upstream = b"".join(chunk({"tool_calls": [call]}) for call in sent) + END + DONE
        made = relay_at_every_cut(upstream, stream=False, **TOOLS).message["tool_calls"]
        assert made[-1]["function"]["name"] == sent[-1]["function"]["name"]
    two = [fragment("", id="a", name="get", index=0), fragment("", id="b", name="get", index=1)]
    upstream = b"".join(chunk({"tool_calls": [call]}) for call in two) + END + DONE
    assert [c["id"] for c in relay_at_every_cut(upstream, stream=False, **TOOLS).message["tool_calls"]] == ["a", "b"]


def test_what_waits_for_a_name_is_counted_as_it_comes() -> None:
    answer = reader()
    for at in range(3):
        answer.feed(chunk({"tool_calls": [fragment("1234", index=at)]}))
    assert answer.relayed_bytes == 12
    answer.feed(chunk({"tool_calls": [fragment("5", name="f", index=0)]}) + END + DONE)
    assert answer.relayed_bytes == 13


def test_calls_are_bounded() -> None:
    many = [fragment("{}", id=f"c{at}", name="f") for at in range(MAX_CALLS + 1)]
    for upstream in (chunk({"tool_calls": many}) + END + DONE, whole({"tool_calls": many}, "tool_calls")):
        assert relay([upstream]).fault == "invalid_response"
    assert len(relay([whole({"tool_calls": many[1:]}, "tool_calls")], stream=False).message["tool_calls"]) == MAX_CALLS


@pytest.mark.parametrize("repeated", [{"name": "f"}, {"name": ""}, {"name": None}, {}])
def test_an_old_function_call_goes_on_without_its_name(repeated: dict[str, Any]) -> None:
    upstream = (
        chunk({"function_call": {"name": "f", "arguments": "{"}})
        + chunk({"function_call": repeated | {"arguments": "}"}}, "function_call")
        + DONE
    )
    seen = relay_at_every_cut(upstream)
    assert [delta.get("function_call") for delta, _ in seen.deltas][:2] == [
        {"name": "f", "arguments": "{"},
        {"arguments": "}"},
    ]
    assert seen.known["relayed_bytes"] == 2
    assert relay_at_every_cut(upstream, stream=False).message["function_call"] == {"name": "f", "arguments": "{}"}


def test_an_old_function_call_with_an_object_gives_its_json() -> None:
    call = {"function_call": {"name": "f", "arguments": {"a": 1}}}
    for upstream in (chunk(call, "function_call") + DONE, whole(call, "function_call")):
        made = relay_at_every_cut(upstream, stream=False).message
        assert made["function_call"] == {"name": "f", "arguments": '{"a":1}'}
