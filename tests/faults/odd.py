"""An answer full of things that nobody here knows, and what of it must reach the client as it came."""

import json
from typing import Any

import httpx

from tests.protocols.openai_chat.answers import DONE, chunk, event, usage, whole
from tests.simulated.process import SimulatedProvider

USAGE = '{"prompt_tokens": 5, "completion_tokens": 2}'
CALLS = [
    {"index": 1, "id": "call_b", "type": "function", "function": {"name": "g", "arguments": ""}},
    {"index": 0, "id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"a":'}},
    {"index": 1, "function": {"arguments": "{}"}},
    {"index": 0, "function": {"arguments": "1}"}},
]
ODD_EVENT = {"type": "weather", "sky": ["clear", None]}


def script(provider: SimulatedProvider, form: str) -> str:
    """The option that plays it to a client of this form."""
    return provider.script(f"odd-{form}", _streamed() if form == "streamed" else _whole(), prompt=5, completion=2)


def check(response: httpx.Response, form: str) -> None:
    """Raises AssertionError when something of it is missing."""
    if form == "streamed":
        lines = [line[6:] for line in response.text.split("\n") if line.startswith("data: {")]
        payloads = [json.loads(line) for line in lines]
        assert ODD_EVENT in payloads
        assert any(payload.get("x_top") == {"a": [1]} for payload in payloads)
        calls = [
            call
            for payload in payloads
            for choice in payload.get("choices", ())
            for call in choice["delta"].get("tool_calls", ())
        ]
        said = {call["index"]: "" for call in calls}
        for call in calls:
            said[call["index"]] += call["function"].get("arguments", "")
        assert said == {0: "{}", 1: '{"a":1}'}  # numbered as they began: nobody could know that a 0 would follow the 1
        return
    answer = response.json()
    assert answer["x_top"] == {"a": [1]}
    message: dict[str, Any] = answer["choices"][0]["message"]
    assert message["x_odd"] == [1.5, None]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["g", "f"]


def _streamed() -> bytes:
    calls = b"".join(chunk({"tool_calls": [call]}) for call in CALLS)
    opening = chunk({"role": "assistant", "content": None}, x_top={"a": [1]})
    return opening + event(ODD_EVENT) + calls + chunk({}, "tool_calls") + usage(5, 2) + DONE


def _whole() -> bytes:
    calls = [
        {"id": "call_b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls, "x_odd": [1.5, None]}
    counted = json.loads(USAGE) | {"total_tokens": 7}
    return whole(message, "tool_calls", usage=counted, x_top={"a": [1]})
