"""Messages. A thought is a block with its signature."""

from itertools import pairwise
from typing import Any

from tests.pairs.said import Counts, Got, Said, listed, pieces, written
from tests.pairs.said import stream as sse

FIELDS: dict[str, Any] = {}
PATH = "/v1/messages"
STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def stream(said: Said) -> bytes:
    message = _message(said)
    usage = message["usage"] | {"output_tokens": 1}
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}},
        {"type": "ping"},
    ]
    for at, block in enumerate(message["content"]):
        told.append({"type": "content_block_start", "index": at, "content_block": {**block, **_EMPTY[block["type"]]}})
        for delta in _deltas(block):
            told.append({"type": "content_block_delta", "index": at, "delta": delta})
        told.append({"type": "content_block_stop", "index": at})
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    told.append(
        {
            "type": "message_delta",
            "delta": end,
            "usage": {"output_tokens": said.counts.completion, **_thought(said.counts)},
        }
    )
    return sse(*told, {"type": "message_stop"})


def whole(said: Said) -> bytes:
    return written(_message(said)).encode()


def broken(text: str) -> bytes:
    """Half an answer, then that it is overloaded."""
    return sse(
        {"type": "message_start", "message": {**_message(Said()), "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    )


FAILURES = {
    "invalid": (400, "invalid_request_error", "Bad top_p."),
    "too_long": (400, "invalid_request_error", "prompt is too long: 9000 tokens > 8192 maximum"),
    "limited": (429, "rate_limit_error", "Slow down."),
    "overloaded": (529, "overloaded_error", "Overloaded"),
}


def failure(kind: str) -> tuple[int, bytes]:
    status, name, message = FAILURES[kind]
    return status, written({"type": "error", "error": {"type": name, "message": message}}).encode()


def got(body: dict[str, Any]) -> Got:
    turns: list[tuple[Any, ...]] = []
    image = None
    roles = [message["role"] for message in body["messages"]]
    assert all(one != other for one, other in pairwise(roles)), roles
    for message in body["messages"]:
        content = message["content"]
        for block in listed(content):
            match block["type"]:
                case "text":
                    turns.append(("said" if message["role"] == "assistant" else "user", block["text"]))
                case "image":
                    image = block["source"]["media_type"], block["source"]["data"]
                case "thinking":
                    turns.append(("thought", block["thinking"], block["signature"]))
                case "redacted_thinking":
                    turns.append(("thought", "", block["data"]))
                case "tool_use":
                    turns.append(("call", block["id"], block["name"], block["input"]))
                case "tool_result":
                    inner = block.get("content", "")
                    text = inner if type(inner) is str else "".join(part["text"] for part in inner)
                    turns.append(("result", block["tool_use_id"], text))
    tools = tuple((tool["name"], tool.get("input_schema")) for tool in body.get("tools") or ())
    form = (body.get("output_config") or {}).get("format") or {}
    choice = body.get("tool_choice") or {}
    chosen = {"any": "required", "none": "none", "tool": choice.get("name"), "auto": ""}[choice.get("type", "auto")]
    system = "".join(block["text"] for block in listed(body.get("system") or []))
    return Got(tuple(turns), system, body["max_tokens"], tools, chosen or "", image, form.get("schema"))


_EMPTY: dict[str, dict[str, Any]] = {
    "thinking": {"thinking": "", "signature": ""},
    "text": {"text": ""},
    "tool_use": {"input": {}},
}


def _deltas(block: dict[str, Any]) -> list[dict[str, Any]]:
    match block["type"]:
        case "thinking":
            told = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            return [*told, {"type": "signature_delta", "signature": block["signature"]}]
        case "text":
            return [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    given = written(block["input"]) if block["input"] else ""
    return [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(given))]


def _message(said: Said) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if said.thought:
        content.append({"type": "thinking", "thinking": said.thought, "signature": said.proof})
    if said.text:
        content.append({"type": "text", "text": said.text})
    content += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in said.calls]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": content,
        "stop_reason": "refusal" if said.refused else STOPS[said.finish],
        "stop_sequence": None,
        "usage": _usage(said.counts),
    }


def _usage(counts: Counts) -> dict[str, Any]:
    made = {"input_tokens": counts.prompt - counts.cached, "output_tokens": counts.completion}
    return made | {"cache_read_input_tokens": counts.cached, "cache_creation_input_tokens": 0, **_thought(counts)}


def _thought(counts: Counts) -> dict[str, Any]:
    return {"output_tokens_details": {"thinking_tokens": counts.thought}} if counts.thought else {}
