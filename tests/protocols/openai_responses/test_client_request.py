"""A client's body of the Responses protocol as a chat body."""

import base64
from typing import Any

import pytest

from gateway.protocols.openai_chat import ChatRequest, parse
from gateway.protocols.openai_responses import carried
from gateway.protocols.openai_responses.client_request import ChatForm, chat_form
from gateway.protocols.openai_responses.input_items import SHOWN_BELOW
from gateway.protocols.openai_responses.thoughts import FORMAT, pack
from gateway.wire import strict_json
from gateway.wire.errors import InvalidRequest

PIXEL = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="
CLAUDE = "anthropic-claude-v1"


def ask(*items: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m-1", "input": list(items) or "hi"} | fields


def read(body: dict[str, Any]) -> tuple[ChatForm, ChatRequest]:
    """The form of a body, and the chat request it is."""
    form = chat_form(body)
    return form, parse(form.body, len(strict_json.dumps(body)))


def messages(*items: Any, **fields: Any) -> list[dict[str, Any]]:
    """The messages of a body that the chat form carries whole."""
    form, request = read(ask(*items, **fields))
    assert (form.only_native, form.ignored) == ((), ())
    assert len(form.places) == len(form.body["messages"])
    sent: list[dict[str, Any]] = request.body["messages"]
    return sent


def fault(body: dict[str, Any]) -> str | None:
    """The parameter that is refused, in the client's path; the message names it."""
    with pytest.raises(InvalidRequest) as caught:
        form = chat_form(body)
        try:
            parse(form.body, 99)
        except InvalidRequest as error:
            raise form.retold(error) from None
    assert caught.value.status == 400
    if caught.value.param is not None:
        assert caught.value.param in caught.value.message
    return caught.value.param


def user(*parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(parts) or [{"type": "input_text", "text": "hi"}]}


def called(id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": arguments}


def gave(id: str, output: Any = "1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": output}


def chat_call(id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_text_is_what_the_user_says() -> None:
    assert messages() == [{"role": "user", "content": "hi"}]


def test_instructions_come_first() -> None:
    assert messages(user({"type": "input_text", "text": "hi"}), instructions="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ]


def test_messages_in_their_short_form() -> None:
    said = [{"role": role, "content": role} for role in ("developer", "user", "assistant", "user")]
    assert messages(*said) == said


def test_pictures_and_files() -> None:
    parts = (
        {"type": "input_image", "image_url": PIXEL, "detail": "low"},
        {"type": "input_image", "image_url": "https://x.example/a.png"},
        {"type": "input_file", "file_data": PDF, "filename": "a.pdf"},
        {"type": "input_file", "file_url": "https://x.example/a.pdf"},
        {"type": "input_file", "file_id": "file-1"},
    )
    assert messages(user(*parts))[0]["content"] == [
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
        {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": "https://x.example/a.pdf"}},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]


def test_a_turn_with_tools_is_one_message_and_its_results_follow_at_once() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}]}
    thought["encrypted_content"] = "gAAA+/é="
    said = user({"type": "output_text", "text": "Both.", "annotations": []})
    said |= {"id": "msg_1", "role": "assistant", "status": "completed"}
    made = messages(user(), thought, said, called("a"), called("b"), gave("a"), gave("b", "2"), user())
    assert made[1:4] == [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Both."}],
            "reasoning_details": [
                {"type": "reasoning.summary", "summary": "s", "format": FORMAT, "id": "rs_1", "index": 0},
                {"type": "reasoning.encrypted", "data": "gAAA+/é=", "format": FORMAT, "id": "rs_1", "index": 1},
            ],
            "tool_calls": [chat_call("a"), chat_call("b")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]


def test_words_and_thoughts_among_calls_stay_in_their_turn() -> None:
    said = {"role": "assistant", "content": "And."}
    thought = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    made = messages(user(), called("a"), said, thought, called("b"), gave("a"), gave("b"))
    assert [message["role"] for message in made] == ["user", "assistant", "tool", "tool"]
    assert (made[1]["content"], len(made[1]["tool_calls"])) == ("And.", 2)
    assert made[1]["reasoning_details"][0]["data"] == "x"


def test_a_thought_behind_words_begins_a_turn() -> None:
    thought = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    made = messages(user(), {"role": "assistant", "content": "a"}, thought, {"role": "assistant", "content": "b"})
    assert [message.get("content") for message in made[1:]] == ["a", "b"]
    assert "reasoning_details" in made[2]


def test_thoughts_of_another_provider_come_back_byte_for_byte() -> None:
    entries = [
        {"type": "reasoning.text", "text": "t\u2028é", "signature": "Sig+/==", "format": CLAUDE, "index": 0},
        {"type": "reasoning.encrypted", "data": "Emw+/", "format": CLAUDE, "index": 1},
    ]
    made = messages(user(), {"type": "reasoning", "summary": [], "encrypted_content": pack(entries)}, called("a"))
    assert made[1]["reasoning_details"] == entries


@pytest.mark.parametrize("changed", ("gw1.", "gw1.!!", "gw1.e30=", "gw1.WzFd"))
def test_a_thought_of_ours_that_was_changed_is_refused(changed: str) -> None:
    thought = {"type": "reasoning", "summary": [], "encrypted_content": changed}
    assert fault(ask(user(), thought)) == "input[1].encrypted_content"


def test_a_picture_from_a_tool_is_shown_behind_the_results() -> None:
    shown = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PIXEL}]
    made = messages(user(), called("a"), called("b"), gave("a", shown), gave("b"), user())
    assert [message["role"] for message in made] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert made[2]["content"] == [{"type": "text", "text": "see"}, {"type": "text", "text": SHOWN_BELOW}]
    assert made[4]["content"] == [{"type": "image_url", "image_url": {"url": PIXEL}}]


def test_custom_tools_and_the_local_shell_are_called_in_history() -> None:
    items = (
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "+a"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
        {
            "type": "local_shell_call",
            "id": "l1",
            "call_id": "l",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {"type": "local_shell_call_output", "id": "l", "output": "a.txt"},
    )
    made = messages(user(), *items)
    assert made[1]["tool_calls"] == [{"id": "c", "type": "custom", "custom": {"name": "patch", "input": "+a"}}]
    assert made[3]["tool_calls"] == [chat_call("l", "local_shell", '{"command":["ls"],"env":{}}')]
    assert made[4] == {"role": "tool", "tool_call_id": "l", "content": "a.txt"}


def test_a_refusal_of_the_assistants() -> None:
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert messages(user(), refused)[1] == {"role": "assistant", "content": "", "refusal": "No."}


def test_tools_are_nested() -> None:
    schema = {"type": "object", "properties": {}}
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}
    tools = [
        {"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": True},
        {"type": "function", "name": "g", "parameters": None, "strict": None},
        {"type": "custom", "name": "patch", "description": "p", "format": grammar},
    ]
    form, _ = read(ask(tools=tools, tool_choice={"type": "function", "name": "g"}, parallel_tool_calls=False))
    assert form.body["tools"] == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema, "strict": True}},
        {"type": "function", "function": {"name": "g"}},
        {
            "type": "custom",
            "custom": {
                "name": "patch",
                "description": "p",
                "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a/"}},
            },
        },
    ]
    assert form.body["tool_choice"] == {"type": "function", "function": {"name": "g"}}
    assert form.body["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    ("choice", "meant"),
    (
        ("none", "none"),
        ("required", "required"),
        ({"type": "custom", "name": "p"}, {"type": "custom", "custom": {"name": "p"}}),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
        ),
    ),
)
def test_every_choice_of_tools(choice: Any, meant: Any) -> None:
    tools = [{"type": "function", "name": "f"}, {"type": "custom", "name": "p"}]
    assert read(ask(tools=tools, tool_choice=choice))[1].body["tool_choice"] == meant


def test_fields_that_have_another_name() -> None:
    schema = {"type": "json_schema", "name": "r", "strict": True, "schema": {"type": "object"}, "description": None}
    form, request = read(
        ask(
            max_output_tokens=500,
            reasoning={"effort": "high", "summary": "auto"},
            text={"format": schema, "verbosity": "low"},
            include=["reasoning.encrypted_content", "message.output_text.logprobs"],
            top_logprobs=3,
            stream=True,
            stream_options={"include_obfuscation": False},
            store=False,
            metadata={"a": "b"},
            prompt_cache_key="k",
        )
    )
    assert request.output_cap == 500
    assert request.reasoning is not None
    assert request.reasoning.effort == "high"
    assert request.include_usage
    body = {name: value for name, value in form.body.items() if name not in ("model", "messages")}
    assert body == {
        "max_completion_tokens": 500,
        "reasoning_effort": "high",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "r", "strict": True, "schema": {"type": "object"}},
        },
        "verbosity": "low",
        "logprobs": True,
        "top_logprobs": 3,
        "stream": True,
        "stream_options": {"include_obfuscation": False, "include_usage": True},
        "store": False,
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
    }
    assert form.ignored == ()


@pytest.mark.parametrize(("format", "meant"), (({"type": "text"}, None), ({"type": "json_object"}, "json_object")))
def test_other_formats_of_text(format: Any, meant: str | None) -> None:
    body = read(ask({"role": "user", "content": "JSON"}, text={"format": format}))[1].body
    assert (body.get("response_format") or {}).get("type") == meant


def test_what_a_coding_agent_sends() -> None:
    """The shape of Codex's requests."""
    form, request = read(
        {
            "model": "m-1",
            "instructions": "You are a coding agent.",
            "input": [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<rules/>"}]},
                user({"type": "input_text", "text": "write a.txt"}),
                {
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": "s"}],
                    "content": None,
                    "encrypted_content": pack([{"type": "reasoning.text", "text": "t", "signature": "S"}]),
                },
                {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "call_1"},
                gave("call_1", "a.txt"),
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
                user({"type": "input_text", "text": "thanks"}),
            ],
            "tools": [
                {"type": "function", "name": "shell", "description": "", "strict": False, "parameters": {}},
                {"type": "custom", "name": "apply_patch", "description": "", "format": {"type": "text"}},
                {"type": "web_search", "external_web_access": False},
            ],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"effort": "medium", "summary": "auto"},
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "019a",
            "client_metadata": {"x-codex-installation-id": "1"},
            "text": {"verbosity": "low"},
            "service_tier": None,
        }
    )
    assert form.only_native == ()
    assert form.ignored == ("client_metadata", "tools[2]")
    assert [message["role"] for message in request.body["messages"]] == [
        *("system", "developer", "user", "assistant", "tool", "assistant", "user"),
    ]


NAMESPACE = {
    "type": "namespace",
    "name": "agents",
    "description": "Other agents.",
    "tools": [
        {"type": "function", "name": "close", "description": "d", "parameters": {}, "strict": False},
        {"type": "custom", "name": "say"},
    ],
}


def test_tools_in_a_namespace_have_its_name_before_their_own() -> None:
    form, _ = read(
        ask(user(), called("a", "close") | {"namespace": "agents"}, tools=[{"type": "web_search"}, NAMESPACE])
    )
    names = [tool[tool["type"]]["name"] for tool in form.body["tools"]]
    assert names == ["agents__close", "agents__say"]
    assert form.body["messages"][1]["tool_calls"] == [chat_call("a", "agents__close")]
    assert (form.only_native, form.tool_places) == ((), ("tools[1].tools[0]", "tools[1].tools[1]"))
    assert fault(ask(tools=[{"type": "web_search"}, NAMESPACE | {"name": "ä"}])) == "tools[1].tools[0].name"


def test_names_that_would_be_too_long_stay_apart() -> None:
    tools = [{"type": "function", "name": "f" * 40 + end} for end in ("1", "2")]
    form, _ = read(ask(tools=[{"type": "namespace", "name": "n" * 40, "tools": tools}]))
    names = [tool["function"]["name"] for tool in form.body["tools"]]
    assert len(set(names)) == 2
    assert all(len(name) == 64 for name in names)


def test_a_search_of_the_web_is_an_option_in_chat() -> None:
    place = {"type": "approximate", "country": "NO"}
    tool = {"type": "web_search", "search_context_size": "low", "user_location": place}
    form, _ = read(ask(tools=[tool]))
    assert form.body["web_search_options"] == {"search_context_size": "low", "user_location": place}
    assert (form.built_in, form.only_native) == (("web_search",), ())
    narrow = chat_form(ask(tools=[{"type": "web_search", "filters": {"allowed_domains": ["x.example"]}}]))
    assert narrow.only_native == ("tools[0]",)


@pytest.mark.parametrize(
    ("body", "paths"),
    (
        (ask(tools=[{"type": "file_search", "vector_store_ids": ["vs"]}]), ("tools[0]",)),
        (ask(tools=[{"type": "mcp", "server_label": "s"}], tool_choice="required"), ("tools[0]",)),
        (ask(tools=[{"type": "computer"}], tool_choice={"type": "computer"}), ("tools[0]", "tool_choice")),
        (ask(user(), {"type": "computer_call_output", "call_id": "c", "output": {}}), ("input[1]",)),
        (ask(tools=[{"type": "function", "name": "f", "allowed_callers": ["programmatic"]}]), ("tools[0]",)),
        (ask({"type": "compaction", "encrypted_content": "x"}), ("input[0]",)),
        (ask(context_management=[{"type": "compaction"}]), ("context_management",)),
        (ask(gave("c"), previous_response_id="resp_1"), ("previous_response_id",)),
    ),
)
def test_what_the_chat_form_cannot_carry_is_named(body: dict[str, Any], paths: tuple[str, ...]) -> None:
    form, _ = read(body)
    assert form.only_native == paths
    assert form.previous == body.get("previous_response_id")


def test_what_may_be_left_out_is_named() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    asked = {"include": ["web_search_call.action.sources"], "truncation": "auto", "max_tool_calls": 3}
    form, _ = read(ask(user(), search, reasoning={"context": "all_turns"}, **asked))
    assert form.ignored == ("max_tool_calls", "input[1]", "include[0]", "reasoning.context", "truncation")
    assert form.only_native == ()


@pytest.mark.parametrize(
    ("body", "param"),
    (
        ({"input": "hi"}, "model"),
        ({"model": "m"}, "input"),
        (ask(input=[]), "input"),
        (ask(input=7), "input"),
        (ask(7), "input[0]"),
        (ask({"type": 7}), "input[0].type"),
        (ask({"role": "robot", "content": "x"}), "input[0].role"),
        (ask({"role": "user"}), "input[0].content"),
        (ask(user({"type": "video"})), "input[0].content[0].type"),
        (ask(user({"type": "input_text"})), "input[0].content[0].text"),
        (ask({"role": "system", "content": [{"type": "input_image", "image_url": PIXEL}]}), "input[0].content[0].type"),
        (
            ask(user({"type": "input_image", "image_url": "data:image/tiff;base64,AAAA"})),
            "input[0].content[0].image_url",
        ),
        (ask(user({"type": "input_image", "file_id": "f"})), "input[0].content[0].file_id"),
        (ask(user({"type": "input_file", "filename": "a.pdf"})), "input[0].content[0]"),
        (ask(user({"type": "input_file", "file_data": "!", "filename": "a.pdf"})), "input[0].content[0].file_data"),
        (ask(user(), called("")), "input[1].call_id"),
        (ask(user(), {"type": "function_call", "call_id": "c", "name": "f"}), "input[1].arguments"),
        (ask(user(), gave("c", None)), "input[1].output"),
        (ask(user(), {"type": "item_reference", "id": "msg_1"}), "input[1].id"),
        (ask(instructions=[1]), "instructions"),
        (ask(tools=[{"type": "function"}]), "tools[0].name"),
        (ask(tools=[{"type": "function", "name": "f", "parameters": 7}]), "tools[0].parameters"),
        (ask(tools=[{"name": "f"}]), "tools[0].type"),
        (ask(tools=[{"type": "namespace", "name": "n"}]), "tools[0].tools"),
        (ask(tools=[{"type": "namespace", "tools": []}]), "tools[0].name"),
        (ask(tools=[{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]), "tools[0].tools[0].type"),
        (
            ask(tools=[{"type": "function", "name": "f"}], tool_choice={"type": "function", "name": "g"}),
            "tool_choice.name",
        ),
        (ask(tool_choice="required"), "tool_choice"),
        (ask(max_output_tokens=0), "max_output_tokens"),
        (ask(temperature=3), "temperature"),
        (ask(reasoning={"effort": "huge"}), "reasoning.effort"),
        (ask(text={"verbosity": "huge"}), "text.verbosity"),
        (ask(text={"format": {"type": "json_schema", "schema": {}}}), "text.format.name"),
        (ask(text={"format": {"type": "yaml"}}), "text.format.type"),
        (ask(include="all"), "include"),
        (ask(truncation="some"), "truncation"),
        (ask(stream_options={}), "stream_options"),
        (ask(background=True), "background"),
        (ask(conversation="conv_1"), "conversation"),
        (ask(prompt={"id": "pmpt_1"}), "prompt"),
        (ask(api_base="https://evil.example"), "api_base"),
    ),
)
def test_a_fault_is_told_in_the_clients_own_path(body: dict[str, Any], param: str) -> None:
    assert fault(body) == param


def test_nulls_are_absent() -> None:
    nulls = ("instructions", "reasoning", "tools", "tool_choice", "previous_response_id", "max_output_tokens", "stream")
    assert read(ask(**dict.fromkeys(nulls)))[0].body == {
        "model": "m-1",
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_items_that_another_id_carries_are_put_in_once() -> None:
    said = {"id": "msg_1", "type": "message", "role": "assistant", "content": "Earlier."}
    thought = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    carrier = carried.carrier([thought, said])
    assert carrier is not None
    named = [{"type": "item_reference", "id": id} for id in ("rs_1", "msg_1", carrier["id"])]
    form, request = read(ask(user(), *named, user()))
    earlier = request.body["messages"][1]
    assert (earlier["role"], earlier["content"], len(request.body["messages"])) == ("assistant", "Earlier.", 3)
    assert [entry["data"] for entry in earlier["reasoning_details"]] == ["gAAA"]
    assert form.referred == (thought, said)
    # Who sends items back sends the carrier as well, and it says nothing.
    form, request = read(ask(user(), said, carrier, user()))
    assert [message["role"] for message in request.body["messages"]] == ["user", "assistant", "user"]
    assert form.referred == ()
    assert fault(ask(user(), *named, named[1])) == "input[4].id"
    assert fault(ask(user(), named[1])) == "input[1].id"


@pytest.mark.parametrize(
    "held",
    ["!", "", "bnVsbA==", base64.b64encode(b'[{"id": "msg_1"}]').decode(), base64.b64encode(b"[1]").decode()],
)
def test_a_carrier_that_was_changed_is_refused(held: str) -> None:
    assert fault(ask(user(), {"type": "item_reference", "id": carried.PREFIX + held})) == "input[1].id"


def test_what_carriers_hold_is_bounded() -> None:
    assert carried.carrier([{"id": "msg_1", "type": "message", "content": "a" * carried.MOST_BYTES}]) is None
    one = carried.carrier([{"id": "msg_1", "type": "message", "role": "assistant", "content": "a" * 250_000}])
    assert one is not None
    few = carried.MOST_BYTES_READ // len(one["id"])
    assert read(ask(user(), *[one] * few))[0].referred == ()
    assert fault(ask(user(), *[one] * (few + 1))) == f"input[{few + 1}].id"
