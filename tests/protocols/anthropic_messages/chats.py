"""Requests of the chat form, and what a provider of the Messages protocol is sent for them."""

from typing import Any

import pytest

from gateway.protocols.anthropic_messages.forms.takes import PLAIN, Takes
from gateway.protocols.anthropic_messages.upstream_request import Sent, body
from gateway.protocols.openai_chat import parse
from gateway.wire.errors import InvalidRequest

HI = {"role": "user", "content": "hi"}
EPHEMERAL = {"type": "ephemeral"}
ADAPTIVE = Takes(adaptive=True)
OLD = Takes(formats=False)
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_w", "parameters": WEATHER}}


def sent(*messages: Any, takes: Takes = PLAIN, cap: int | None = 4000, **fields: Any) -> Sent:
    asked = {"model": "acme/m-1", "messages": list(messages) or [HI], **fields}
    return body(parse(asked, 1_000).body, model="up-1", output_cap=cap, stream=False, takes=takes)


def turns(*messages: Any, **fields: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = sent(*messages, **fields).body["messages"]
    return made


def refused(*messages: Any, **fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        sent(*messages, **fields)
    return caught.value.param


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def called(*ids: str, arguments: str = "{}", content: Any = None, **more: Any) -> dict[str, Any]:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}} for id in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls, **more}


def answered(id: str, content: Any = "1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def use(id: str, given: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "f", "input": given or {}}


def result(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, **more}
