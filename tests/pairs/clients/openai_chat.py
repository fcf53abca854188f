"""Chat completions."""

import json
from typing import Any

from tests.pairs.said import CAP, Call, Counts, Heard, Question, Said, events

# What a client is told of a provider's failure: HTTP status and code.
TOLD = {
    "invalid": (400, "upstream_rejected"),
    "too_long": (400, "context_length_exceeded"),
    "limited": (429, "upstream_rate_limited"),
    "overloaded": (503, "upstream_overloaded"),
}


def path(model: str, stream: bool) -> str:
    return "/v1/chat/completions"


def body(question: Question, model: str, stream: bool) -> dict[str, Any]:
    content: Any = question.text
    if question.image:
        url = f"data:image/png;base64,{question.image}"
        content = [{"type": "text", "text": question.text}, {"type": "image_url", "image_url": {"url": url}}]
    messages: list[dict[str, Any]] = [{"role": "system", "content": question.system}]
    messages.append({"role": "user", "content": content})
    for turn, results in question.turns:
        messages.append(turn)
        messages += [{"role": "tool", "tool_call_id": call.id, "content": text} for call, text in results]
    made: dict[str, Any] = {"model": model, "messages": messages, "stream": stream, "max_completion_tokens": CAP}
    if stream:
        made["stream_options"] = {"include_usage": True}
    if question.tools:
        made["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in question.tools
        ]
    if question.choice:
        named = {"type": "function", "function": {"name": question.choice}}
        made["tool_choice"] = question.choice if question.choice in ("required", "none") else named
    if question.schema:
        made["response_format"] = {"type": "json_schema", "json_schema": {"name": "place", "schema": question.schema}}
    if question.reasons:
        made["reasoning_effort"] = "medium"
    return made


def hear(text: str, stream: bool) -> Heard:
    if not stream:
        answer = json.loads(text)
        (choice,) = answer["choices"]
        return _heard(choice["message"], choice["finish_reason"], answer["usage"])
    *chunks, done = events(text)
    assert done == "[DONE]"
    message, (finish,) = _joined(chunks), [reason for reason in map(_finish, chunks) if reason]
    return _heard(message, finish, chunks[-1]["usage"])


def broken(text: str) -> tuple[str, str]:
    """What there was of an answer, and the code of what ended it."""
    *chunks, last = events(text)
    return _joined(chunks)["content"], last["error"]["code"]


def failed(response: dict[str, Any]) -> tuple[str, str]:
    """Code and message."""
    return response["error"]["code"], response["error"]["message"]


# How an answer that breaks off is told, before it began and after.
CUT = ("upstream_truncated", "upstream_truncated")
BROKEN = "upstream_overloaded"


def _finish(chunk: dict[str, Any]) -> str | None:
    return next((choice["finish_reason"] for choice in chunk["choices"]), None)


def _joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "", "refusal": "", "reasoning": ""}
    entries: dict[Any, dict[str, Any]] = {}
    calls: dict[int, dict[str, Any]] = {}
    for delta in (choice["delta"] for chunk in chunks for choice in chunk["choices"]):
        for name in ("content", "refusal", "reasoning"):
            message[name] += delta.get(name) or ""
        for entry in delta.get("reasoning_details") or ():
            known = entries.setdefault((entry["type"], entry["index"]), {})
            for name, value in entry.items():
                known[name] = known.get(name, "") + value if name in ("text", "summary") else value
        for call in delta.get("tool_calls") or ():
            if call["index"] not in calls:
                calls[call["index"]] = {name: value for name, value in call.items() if name != "index"}
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    if entries:
        message["reasoning_details"] = list(entries.values())
    if calls:
        message["tool_calls"] = list(calls.values())
    return message


def _heard(message: dict[str, Any], finish: str, usage: dict[str, Any]) -> Heard:
    calls = [
        Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    refusal = message.get("refusal") or ""
    said = Said(
        text=(message["content"] or "") + refusal,
        thought=message.get("reasoning") or "",
        calls=tuple(calls),
        finish=finish,
        refused=bool(refusal) or finish == "content_filter",
        counts=Counts(
            usage["prompt_tokens"],
            usage["completion_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"],
            usage["completion_tokens_details"]["reasoning_tokens"],
        ),
    )
    return Heard(said, {name: value for name, value in message.items() if value not in ("", None, [])})
