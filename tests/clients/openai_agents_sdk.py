"""OpenAI's Agents SDK, which calls Responses. What it is called with and what it prints: see this package."""

import asyncio
import json
import sys
from typing import Any

import httpx
from agents import Agent, Runner, function_tool
from pydantic import BaseModel

MODEL, TOOL_URL = sys.argv[1:]


class Request(BaseModel):
    """An answer with a shape."""

    model: str


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    httpx.post(TOOL_URL, content="echo&prompt=11", trust_env=False).raise_for_status()
    return f"sunny in {city}"


def told(result: Any) -> dict[str, Any]:
    """What is said of a run."""
    usage = result.context_wrapper.usage
    output = result.final_output
    shaped = {"text": output.model_dump_json(), "object": output.model_dump()} if isinstance(output, Request) else {}
    return {"text": output, "usage": [usage.input_tokens, usage.output_tokens], **shaped}


async def whole(prompt: str, **options: Any) -> dict[str, Any]:
    """A run."""
    return told(await Runner.run(Agent(name="Agent", model=f"openai/{MODEL}", **options), prompt))


async def streamed(prompt: str, **options: Any) -> dict[str, Any]:
    """A streamed run."""
    result = Runner.run_streamed(Agent(name="Agent", model=f"openai/{MODEL}", **options), prompt)
    pieces = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    return {**told(result), "pieces": pieces}


async def main() -> None:
    """All cases that the program is told."""
    cases: dict[str, Any] = {
        "chat": lambda: whole("good day"),
        "stream": lambda: streamed("good day"),
        "loop": lambda: whole("what is the weather?", tools=[weather]),
        "streamed_loop": lambda: streamed("what is the weather?", tools=[weather]),
        "schema": lambda: whole("which model?", output_type=Request),
    }
    for case in sys.stdin:
        print(json.dumps(await cases[case.strip()]()), flush=True)


asyncio.run(main())
