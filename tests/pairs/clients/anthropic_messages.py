"""Messages."""

import json
from typing import Any

from tests.pairs.said import CAP, Call, Counts, Heard, Question, Said, events

TOLD = {
    "invalid": (400, "invalid_request_error"),
    "too_long": (400, "invalid_request_error"),
    "limited": (429, "rate_limit_error"),
    "overloaded": (529, "overloaded_error"),
}
# How an answer that breaks off is told, before it began and after.
CUT = ("api_error", "api_error")
BROKEN = "overloaded_error"
FINISHES = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


def path(model: str, stream: bool) -> str:
    return "/v1/messages"


def body(question: Question, model: str, stream: bool) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": question.text}]
    if question.image:
        source = {"type": "base64", "media_type": "image/png", "data": question.image}
        content.append({"type": "image", "source": source})
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    for turn, results in question.turns:
        messages.append({"role": "assistant", "content": turn})
        if results:
            blocks = [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call, text in results]
            messages.append({"role": "user", "content": blocks})
    made: dict[str, Any] = {"model": model, "messages": messages, "stream": stream, "max_tokens": CAP}
    made["system"] = question.system
    if question.choice:
        choice = {"required": {"type": "any"}, "none": {"type": "none"}}
        made["tool_choice"] = choice.get(question.choice, {"type": "tool", "name": question.choice})
    if question.tools:
        made["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.parameters or {"type": "object", "properties": {}},
            }
            for tool in question.tools
        ]
    if question.schema:
        made["output_config"] = {"format": {"type": "json_schema", "schema": question.schema}}
    if question.reasons:
        made["thinking"] = {"type": "enabled", "budget_tokens": 2000}
    return made


def hear(text: str, stream: bool) -> Heard:
    if not stream:
        return _heard(json.loads(text))
    message = _joined(events(text))
    assert message.pop("stopped")
    return _heard(message)


def broken(text: str) -> tuple[str, str]:
    """What there was of an answer, and the type of what ended it."""
    *told, last = events(text)
    assert last["type"] == "error"
    return _joined(told)["content"][0]["text"], last["error"]["type"]


def failed(response: dict[str, Any]) -> tuple[str, str]:
    """Type and message."""
    assert response["type"] == "error"
    return response["error"]["type"], response["error"]["message"]


def _joined(told: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    given: dict[int, str] = {}
    open_: Any = None
    for event in told:
        match event["type"]:
            case "message_start":
                message = {**event["message"], "content": []}
            case "content_block_start":
                assert open_ is None
                assert event["index"] == len(message["content"])
                open_ = event["index"]
                message["content"].append(dict(event["content_block"]))
            case "content_block_delta":
                assert event["index"] == open_
                block, delta = message["content"][open_], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] = delta["signature"]
                    case "input_json_delta":
                        given[open_] = given.get(open_, "") + delta["partial_json"]
            case "content_block_stop":
                assert event["index"] == open_
                if given.get(open_):
                    message["content"][open_]["input"] = json.loads(given[open_])
                open_ = None
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
            case "message_stop":
                assert open_ is None
                message["stopped"] = True
    return message


def _heard(message: dict[str, Any]) -> Heard:
    blocks = message["content"]
    finish, usage = FINISHES[message["stop_reason"]], message["usage"]
    read = usage["cache_read_input_tokens"]
    said = Said(
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        thought="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        calls=tuple(
            Call(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"
        ),
        finish=finish,
        refused=finish == "content_filter",
        counts=Counts(
            usage["input_tokens"] + read + usage["cache_creation_input_tokens"],
            usage["output_tokens"],
            read,
            (usage.get("output_tokens_details") or {}).get("thinking_tokens", 0),
        ),
    )
    return Heard(said, blocks)
