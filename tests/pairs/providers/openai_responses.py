"""Responses. A thought is told as a summary; its proof is the encrypted content, bound to the item's id."""

import json
from itertools import count
from typing import Any

from tests.pairs.said import Counts, Got, Said, listed, pieces, written
from tests.pairs.said import stream as sse

FIELDS: dict[str, Any] = {}
PATH = "/v1/responses"


def stream(said: Said) -> bytes:
    number = count()
    told: list[dict[str, Any]] = []

    def tell(kind: str, **fields: Any) -> None:
        told.append({"type": f"response.{kind}", "sequence_number": next(number), **fields})

    begun = _response(said) | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    tell("created", response=begun)
    tell("in_progress", response=begun)
    for at, item in enumerate(_items(said)):
        place = {"item_id": item["id"], "output_index": at}
        tell("output_item.added", output_index=at, item={**item, **_EMPTY[item["type"]]})
        if item["type"] == "reasoning":
            part = place | {"summary_index": 0}
            tell("reasoning_summary_part.added", **part, part={"type": "summary_text", "text": ""})
            for piece in pieces(said.thought):
                tell("reasoning_summary_text.delta", **part, delta=piece)
            tell("reasoning_summary_text.done", **part, text=said.thought)
            tell("reasoning_summary_part.done", **part, part=item["summary"][0])
        elif item["type"] == "message":
            part = place | {"content_index": 0}
            kind, (whole_part,) = ("refusal" if said.refused else "output_text"), item["content"]
            tell("content_part.added", **part, part={**whole_part, "refusal" if said.refused else "text": ""})
            for piece in pieces(said.text):
                tell(f"{kind}.delta", **part, delta=piece)
            tell(f"{kind}.done", **part, **{"refusal" if said.refused else "text": said.text})
            tell("content_part.done", **part, part=whole_part)
        else:
            for piece in pieces(item["arguments"]):
                tell("function_call_arguments.delta", **place, delta=piece)
            tell("function_call_arguments.done", **place, arguments=item["arguments"], name=item["name"])
        tell("output_item.done", output_index=at, item=item)
    response = _response(said)
    tell(response["status"], response=response)
    return sse(*told)


def whole(said: Said) -> bytes:
    return written(_response(said)).encode()


def broken(text: str) -> bytes:
    """Half an answer, then that it is overloaded."""
    begun = _response(Said(text=text)) | {"status": "in_progress", "output": [], "usage": None}
    (item,) = _items(Said(text=text))
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    failed = begun | {"status": "failed", "error": {"code": "server_is_overloaded", "message": "Overloaded"}}
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **place, "part": {**item["content"][0], "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": text},
        {"type": "response.failed", "response": failed},
    ]
    return sse(*(event | {"sequence_number": at} for at, event in enumerate(told)))


FAILURES = {
    "invalid": (400, {"message": "Bad top_p.", "type": "invalid_request_error", "param": None, "code": None}),
    "too_long": (
        400,
        {
            "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "type": "invalid_request_error",
            "param": "input",
            "code": "context_length_exceeded",
        },
    ),
    "limited": (429, {"message": "Slow down.", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}),
    "overloaded": (503, {"message": "Overloaded", "type": "service_unavailable_error", "param": None, "code": None}),
}


def failure(kind: str) -> tuple[int, bytes]:
    status, error = FAILURES[kind]
    return status, written({"error": error}).encode()


def got(body: dict[str, Any]) -> Got:
    turns: list[tuple[Any, ...]] = []
    image, system = None, body.get("instructions") or ""
    for item in body["input"]:
        match item.get("type", "message"):
            case "message":
                parts = item["content"]
                if item["role"] in ("system", "developer"):
                    system += "".join(part["text"] for part in listed(parts))
                    continue
                for part in listed(parts, "input_text"):
                    if part["type"] == "input_image":
                        head, _, data = part["image_url"].partition(";base64,")
                        image = head.removeprefix("data:"), data
                    else:
                        turns.append(("said" if item["role"] == "assistant" else "user", part["text"]))
            case "reasoning":
                text = "".join(part["text"] for part in item["summary"])
                turns.append(("thought", text, item.get("encrypted_content")))
            case "function_call":
                turns.append(("call", item["call_id"], item["name"], json.loads(item["arguments"])))
            case "function_call_output":
                output = item["output"]
                text = output if type(output) is str else "".join(part["text"] for part in output)
                turns.append(("result", item["call_id"], text))
    tools = tuple((tool["name"], tool.get("parameters")) for tool in body.get("tools") or () if "name" in tool)
    form = (body.get("text") or {}).get("format") or {}
    choice: Any = body.get("tool_choice") or ""
    choice = choice if type(choice) is str else choice["name"]
    return Got(tuple(turns), system, body.get("max_output_tokens"), tools, choice, image, form.get("schema"))


_EMPTY: dict[str, dict[str, Any]] = {
    "reasoning": {"summary": []},
    "message": {"content": [], "status": "in_progress"},
    "function_call": {"arguments": "", "status": "in_progress"},
}


def _items(said: Said) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if said.thought:
        summary = [{"type": "summary_text", "text": said.thought}]
        item = {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": said.proof}
        items.append(item)
    status = "incomplete" if said.finish in ("length", "content_filter") else "completed"
    if said.text:
        part: dict[str, Any] = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
        if said.refused:
            part = {"type": "refusal", "refusal": said.text}
        item = {"id": "msg_1", "type": "message", "status": status, "role": "assistant", "content": [part]}
        items.append(item)
    for at, call in enumerate(said.calls):
        given = {"call_id": call.id, "name": call.name, "arguments": written(call.arguments)}
        items.append({"id": f"fc_{at}", "type": "function_call", "status": "completed", **given})
    return items


def _response(said: Said) -> dict[str, Any]:
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(said.finish)
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1790000000,
        "status": "incomplete" if reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": "m-1",
        "output": _items(said),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(said.counts),
    }


def _usage(counts: Counts) -> dict[str, Any]:
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached},
        "output_tokens": counts.completion,
        "output_tokens_details": {"reasoning_tokens": counts.thought},
        "total_tokens": counts.prompt + counts.completion,
    }
