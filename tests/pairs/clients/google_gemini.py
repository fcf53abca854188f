"""generateContent."""

import json
from typing import Any

from tests.pairs.said import CAP, Call, Counts, Heard, Question, Said, events

TOLD = {
    "invalid": (400, "INVALID_ARGUMENT"),
    "too_long": (400, "INVALID_ARGUMENT"),
    "limited": (429, "RESOURCE_EXHAUSTED"),
    "overloaded": (503, "UNAVAILABLE"),
}
# How an answer that breaks off is told, before it began and after.
CUT = ("UNAVAILABLE", "UNAVAILABLE")
BROKEN = "UNAVAILABLE"
FINISHES = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "content_filter"}


def path(model: str, stream: bool) -> str:
    return f"/v1beta/models/{model}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"


def body(question: Question, model: str, stream: bool) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": question.text}]
    if question.image:
        parts.append({"inlineData": {"mimeType": "image/png", "data": question.image}})
    contents: list[dict[str, Any]] = [{"role": "user", "parts": parts}]
    for turn, results in question.turns:
        contents.append({"role": "model", "parts": turn})
        if results:
            answered = [
                {"functionResponse": {"id": call.id, "name": call.name, "response": {"output": text}}}
                for call, text in results
            ]
            contents.append({"role": "user", "parts": answered})
    config: dict[str, Any] = {"maxOutputTokens": CAP}
    made: dict[str, Any] = {"contents": contents, "generationConfig": config}
    made["systemInstruction"] = {"parts": [{"text": question.system}]}
    if question.choice:
        choice: dict[str, Any] = {"required": {"mode": "ANY"}, "none": {"mode": "NONE"}}
        named = {"mode": "ANY", "allowedFunctionNames": [question.choice]}
        made["toolConfig"] = {"functionCallingConfig": choice.get(question.choice, named)}
    if question.tools:
        declared: list[dict[str, Any]] = [
            {"name": tool.name, "description": tool.description}
            | ({"parametersJsonSchema": tool.parameters} if tool.parameters else {})
            for tool in question.tools
        ]
        made["tools"] = [{"functionDeclarations": declared}]
    if question.schema:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": question.schema}
    if question.reasons:
        config["thinkingConfig"] = {"includeThoughts": True, "thinkingBudget": 2000}
    return made


def hear(text: str, stream: bool) -> Heard:
    if not stream:
        return _heard([json.loads(text)])
    return _heard(events(text))


def broken(text: str) -> tuple[str, str]:
    """What there was of an answer, and the status of what ended it, which is told as an event and bare."""
    head, _, bare = text.rpartition("\n\n")
    *told, last = events(head)
    assert json.loads(bare) == last
    said = "".join(part["text"] for event in told for part in event["candidates"][0]["content"]["parts"])
    return said, last["error"]["status"]


def failed(response: dict[str, Any]) -> tuple[str, str]:
    """Status and message."""
    return response["error"]["status"], response["error"]["message"]


def _heard(told: list[dict[str, Any]]) -> Heard:
    candidates = [candidate for event in told for candidate in event["candidates"]]
    parts = [part for candidate in candidates for part in candidate["content"]["parts"]]
    (finish,) = [FINISHES[one["finishReason"]] for one in candidates if "finishReason" in one]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    usage = told[-1]["usageMetadata"]
    thought = usage.get("thoughtsTokenCount", 0)
    prompt, written = usage["promptTokenCount"], usage.get("candidatesTokenCount", 0)
    assert usage["totalTokenCount"] == prompt + written + thought
    said = Said(
        text="".join(part["text"] for part in parts if "text" in part and not part.get("thought")),
        thought="".join(part["text"] for part in parts if part.get("thought")),
        calls=tuple(Call(call["id"], call["name"], call["args"]) for call in calls),
        finish="tool_calls" if calls and finish == "stop" else finish,
        refused=finish == "content_filter",
        counts=Counts(prompt, written + thought, usage.get("cachedContentTokenCount", 0), thought),
    )
    return Heard(said, parts)
