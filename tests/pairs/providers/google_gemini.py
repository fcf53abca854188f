"""generateContent. A thought is a part; its proof stands on the call that follows, or on the text."""

from typing import Any

from tests.pairs.said import Counts, Got, Said, pieces, written
from tests.pairs.said import stream as sse

FIELDS: dict[str, Any] = {}
PATH = "/v1/models/"
STOPS = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP"}


def stream(said: Said) -> bytes:
    parts = [{"text": piece, "thought": True} for piece in pieces(said.thought)]
    texts: list[dict[str, Any]] = [{"text": piece} for piece in pieces(said.text)]
    if said.proof and texts and not said.calls:
        texts[-1] = texts[-1] | {"thoughtSignature": said.proof}
    told = [_event(said, [part]) for part in [*parts, *texts, *_calls(said)]]
    return sse(*told, _event(said, [{"text": ""}], ends=True), named=False)


def whole(said: Said) -> bytes:
    parts: list[dict[str, Any]] = []
    if said.thought:
        parts.append({"text": said.thought, "thought": True})
    if said.text:
        parts.append({"text": said.text})
        if said.proof and not said.calls:
            parts[-1]["thoughtSignature"] = said.proof
    return written(_event(said, [*parts, *_calls(said)], ends=True)).encode()


def broken(text: str) -> bytes:
    """Half an answer, then that it is overloaded."""
    error = {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}
    return sse(_event(Said(), [{"text": text}]), error, named=False)


FAILURES: dict[str, tuple[int, str, str]] = {
    "invalid": (400, "INVALID_ARGUMENT", "Bad top_p."),
    "too_long": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (9000) exceeds the maximum number of tokens allowed (8192).",
    ),
    "limited": (429, "RESOURCE_EXHAUSTED", "Slow down."),
    "overloaded": (503, "UNAVAILABLE", "Overloaded"),
}


def failure(kind: str) -> tuple[int, bytes]:
    status, word, message = FAILURES[kind]
    return status, written({"error": {"code": status, "message": message, "status": word}}).encode()


def got(body: dict[str, Any]) -> Got:
    turns: list[tuple[Any, ...]] = []
    image = None
    answers = [content for content in body["contents"] if any("functionResponse" in part for part in content["parts"])]
    assert len(answers) <= 1  # all results of a step are in one content
    for content in body["contents"]:
        for part in content["parts"]:
            signature = part.get("thoughtSignature")
            if part.get("thought"):
                turns.append(("thought", part["text"], signature))
            elif call := part.get("functionCall"):
                if signature:
                    turns.append(("thought", "", signature))
                turns.append(("call", call.get("id"), call["name"], call["args"]))
            elif result := part.get("functionResponse"):
                turns.append(("result", result.get("id"), result["response"]["output"]))
            elif blob := part.get("inlineData"):
                image = blob["mimeType"], blob["data"]
            elif part["text"]:
                who = "said" if content["role"] == "model" else "user"
                before = turns.pop()[1] if turns and turns[-1][0] == who else ""  # a text may come in parts
                turns.append((who, before + part["text"]))
    declared = [one for tool in body.get("tools") or () for one in tool.get("functionDeclarations", ())]
    tools = tuple((one["name"], one.get("parametersJsonSchema") or one.get("parameters")) for one in declared)
    config = body.get("generationConfig") or {}
    calling = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    choice = {"ANY": "required", "NONE": "none", "AUTO": ""}[calling.get("mode", "AUTO")]
    choice = calling.get("allowedFunctionNames", [choice])[0]
    system = "".join(part["text"] for part in (body.get("systemInstruction") or {"parts": ()})["parts"])
    schema = config.get("responseJsonSchema")
    return Got(tuple(turns), system, config.get("maxOutputTokens"), tools, choice, image, schema)


def _calls(said: Said) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = [
        {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}} for call in said.calls
    ]
    if said.proof and calls:
        calls[0]["thoughtSignature"] = said.proof
    return calls


def _event(said: Said, parts: list[dict[str, Any]], *, ends: bool = False) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if ends:
        candidate["finishReason"] = "SAFETY" if said.refused else STOPS[said.finish]
    usage = _usage(said.counts)
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m-1", "responseId": "r-1"}


def _usage(counts: Counts) -> dict[str, Any]:
    made = {
        "promptTokenCount": counts.prompt,
        "candidatesTokenCount": counts.completion - counts.thought,
        "totalTokenCount": counts.prompt + counts.completion,
        "cachedContentTokenCount": counts.cached,
        "thoughtsTokenCount": counts.thought,
    }
    return {name: value for name, value in made.items() if value}
