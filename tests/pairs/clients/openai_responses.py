"""Responses."""

import json
from typing import Any

from tests.pairs.said import CAP, Call, Counts, Heard, Question, Said, events

TOLD = {
    "invalid": (400, "upstream_rejected"),
    "too_long": (400, "context_length_exceeded"),
    "limited": (429, "upstream_rate_limited"),
    "overloaded": (503, "upstream_overloaded"),
}
# How an answer that breaks off is told, before it began and after.
CUT = ("upstream_truncated", "server_error")
BROKEN = "server_is_overloaded"


def path(model: str, stream: bool) -> str:
    return "/v1/responses"


def body(question: Question, model: str, stream: bool) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "input_text", "text": question.text}]
    if question.image:
        content.append(
            {"type": "input_image", "image_url": f"data:image/png;base64,{question.image}", "detail": "auto"}
        )
    items: list[dict[str, Any]] = [{"role": "user", "content": content}]
    for turn, results in question.turns:
        items += turn
        items += [{"type": "function_call_output", "call_id": call.id, "output": text} for call, text in results]
    made: dict[str, Any] = {"model": model, "input": items, "stream": stream, "max_output_tokens": CAP, "store": False}
    made["instructions"] = question.system
    if question.choice:
        named = {"type": "function", "name": question.choice}
        made["tool_choice"] = question.choice if question.choice in ("required", "none") else named
    if question.tools:
        made["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in question.tools
        ]
    if question.schema:
        made["text"] = {"format": {"type": "json_schema", "name": "place", "schema": question.schema}}
    if question.reasons:
        made |= {"reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}
    return made


def hear(text: str, stream: bool) -> Heard:
    if not stream:
        return _heard(json.loads(text))
    told = events(text)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert [event["type"] for event in told[:2]] == ["response.created", "response.in_progress"]
    *_, last = told
    assert last["type"] == f"response.{last['response']['status']}"
    items = last["response"]["output"]
    # Calls end together, since a provider may go on with any of them.
    ends = [event for event in told if event["type"] == "response.output_item.done"]
    done = [event["item"] for event in sorted(ends, key=lambda event: event["output_index"])]
    places = [event["output_index"] for event in told if event["type"] == "response.output_item.added"]
    assert done == items
    assert places == list(range(len(items)))
    for item in items:  # what came in pieces is what stands at the end
        said = "".join(
            event["delta"] for event in told if event["type"].endswith(".delta") and event["item_id"] == item["id"]
        )
        assert said == _text_of(item)
    return _heard(last["response"])


def broken(text: str) -> tuple[str, str]:
    """What there was of an answer, and the code of what ended it."""
    told = events(text)
    assert [event["type"] for event in told[-2:]] == ["error", "response.failed"]
    assert told[-2]["code"] == told[-1]["response"]["error"]["code"]
    said = [event["delta"] for event in told if event["type"] == "response.output_text.delta"]
    return "".join(said), told[-2]["code"]


def failed(response: dict[str, Any]) -> tuple[str, str]:
    """Code and message."""
    return response["error"]["code"], response["error"]["message"]


def _text_of(item: dict[str, Any]) -> str:
    if item["type"] == "function_call":
        return str(item["arguments"])
    parts = [*item.get("summary", ()), *item.get("content", ())]
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)


def _heard(response: dict[str, Any]) -> Heard:
    text = thought = ""
    refused = False
    calls = []
    for item in response["output"]:
        match item["type"]:
            case "message":
                text += _text_of(item)
                refused = any(part["type"] == "refusal" for part in item["content"])
            case "reasoning":
                thought += _text_of(item)
            case "function_call":
                calls.append(Call(item["call_id"], item["name"], json.loads(item["arguments"])))
    reason = (response["incomplete_details"] or {}).get("reason")
    finish = {"max_output_tokens": "length", "content_filter": "content_filter", None: "stop"}[reason]
    usage = response["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    said = Said(
        text=text,
        thought=thought,
        calls=tuple(calls),
        finish="tool_calls" if calls and finish == "stop" else finish,
        refused=refused or finish == "content_filter",
        counts=Counts(
            usage["input_tokens"],
            usage["output_tokens"],
            usage["input_tokens_details"]["cached_tokens"],
            usage["output_tokens_details"]["reasoning_tokens"],
        ),
    )
    return Heard(said, response["output"])
