"""Chat completions, of a provider that signs its thoughts in a format of its own."""

import json
from typing import Any

from tests.pairs.said import Counts, Got, Said, listed, pieces, written
from tests.pairs.said import stream as sse

FIELDS = {"reasoning_format": "acme-v1"}
PATH = "/v1/chat/completions"
HEAD = {"id": "chatcmpl-1", "created": 1790000000, "model": "m-1"}


def stream(said: Said) -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for piece in pieces(said.thought):
        entry = {"type": "reasoning.text", "text": piece, "format": "acme-v1", "index": 0}
        deltas.append({"reasoning": piece, "reasoning_details": [entry]})
    if said.proof:
        entry = {"type": "reasoning.text", "signature": said.proof, "format": "acme-v1", "index": 0}
        deltas.append({"reasoning_details": [entry]})
    deltas += [{"refusal" if said.refused else "content": piece} for piece in pieces(said.text)]
    for at, call in enumerate(said.calls):
        begun = {"index": at, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        deltas += [
            {"tool_calls": [{"index": at, "function": {"arguments": piece}}]}
            for piece in pieces(written(call.arguments))
        ]
    chunks = [_chunk(delta) for delta in deltas]
    end = _chunk({}, said.finish)
    return sse(*chunks, end, {**HEAD, "choices": [], "usage": _usage(said.counts)}, "[DONE]", named=False)


def whole(said: Said) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None, "refusal": None}
    if said.refused:
        message |= {"content": None, "refusal": said.text}
    if said.thought:
        entry = {"type": "reasoning.text", "text": said.thought, "format": "acme-v1", "index": 0}
        message |= {"reasoning": said.thought, "reasoning_details": [entry | {"signature": said.proof}]}
    if said.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": written(call.arguments)}}
            for call in said.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": said.finish}
    answer = {**HEAD, "object": "chat.completion", "choices": [choice], "usage": _usage(said.counts)}
    return written(answer).encode()


def broken(text: str) -> bytes:
    """Half an answer, then that it is overloaded."""
    error = {"error": {"message": "Overloaded", "type": "overloaded_error", "code": 503}}
    return sse(_chunk({"role": "assistant", "content": ""}), _chunk({"content": text}), error, named=False)


FAILURES = {
    "invalid": (400, {"message": "Bad top_p.", "type": "invalid_request_error", "param": None, "code": None}),
    "too_long": (
        400,
        {
            "message": "This model's maximum context length is 8192 tokens, however you requested 9000 tokens.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        },
    ),
    "limited": (429, {"message": "Slow down.", "type": "requests", "param": None, "code": "rate_limit_exceeded"}),
    "overloaded": (503, {"message": "Overloaded", "type": "server_error", "param": None, "code": None}),
}


def failure(kind: str) -> tuple[int, bytes]:
    status, error = FAILURES[kind]
    return status, written({"error": error}).encode()


def got(body: dict[str, Any]) -> Got:
    turns: list[tuple[Any, ...]] = []
    image, system = None, ""
    for message in body["messages"]:
        match message["role"]:
            case "system" | "developer":
                system += "".join(part["text"] for part in listed(message["content"]))
            case "user":
                parts = message["content"]
                for part in listed(parts):
                    if part["type"] == "text":
                        turns.append(("user", part["text"]))
                    else:
                        head, _, data = part["image_url"]["url"].partition(";base64,")
                        image = head.removeprefix("data:"), data
            case "assistant":
                for entry in message.get("reasoning_details") or ():
                    turns.append(("thought", entry.get("text", ""), entry.get("signature") or entry.get("data")))
                if content := message.get("content"):
                    text = content if type(content) is str else "".join(part["text"] for part in content)
                    turns.append(("said", text))
                for call in message.get("tool_calls") or ():
                    inner = call["function"]
                    turns.append(("call", call["id"], inner["name"], json.loads(inner["arguments"])))
            case "tool":
                content = message["content"]
                text = content if type(content) is str else "".join(part["text"] for part in content)
                turns.append(("result", message["tool_call_id"], text))
    tools = tuple((tool["function"]["name"], tool["function"].get("parameters")) for tool in body.get("tools") or ())
    form = body.get("response_format") or {}
    choice: Any = body.get("tool_choice") or ""
    choice = choice if type(choice) is str else choice["function"]["name"]
    cap = body.get("max_completion_tokens", body.get("max_tokens"))
    return Got(tuple(turns), system, cap, tools, choice, image, form["json_schema"]["schema"] if form else None)


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**HEAD, "object": "chat.completion.chunk", "choices": [choice]}


def _usage(counts: Counts) -> dict[str, Any]:
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.thought},
    }
