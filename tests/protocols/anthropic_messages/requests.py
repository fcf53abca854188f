"""Requests of the Messages protocol, and what the chat form makes of them."""

from typing import Any

import pytest

from gateway.protocols.anthropic_messages.client_request import chat_form
from gateway.protocols.openai_chat import parse
from gateway.wire.errors import InvalidRequest

HI = {"role": "user", "content": "hi"}
EPHEMERAL = {"type": "ephemeral"}
PNG = "iVBORw0KGgo="
PDF = "JVBERi0xLjQ="
SIGNATURE = "EqQBinvented+signature/1=="


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "acme/m-1", "max_tokens": 64, "messages": list(messages) or [HI], **fields}


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    """The chat body, which the chat form takes."""
    form = chat_form(body(*messages, **fields))
    parse(form.body, 1_000)
    return form.body


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def use(id: str, name: str = "f", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def result(id: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, **({} if content is None else {"content": content}), **more}


def refused(*messages: Any, **fields: Any) -> str | None:
    """The parameter that a refusal names."""
    with pytest.raises(InvalidRequest) as caught:
        form = chat_form(body(*messages, **fields))
        try:
            parse(form.body, 1_000)
        except InvalidRequest as error:
            error.param = form.param(error.param)
            raise
    return caught.value.param
