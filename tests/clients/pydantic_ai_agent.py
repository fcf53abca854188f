"""pydantic-ai's agent with "openai:", which calls Responses. What it is called with and what it prints: see this
package's docstring.
"""

import asyncio
import json
import sys
from typing import Any

import httpx
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

MODEL, TOOL_URL = sys.argv[1:]


class Request(BaseModel):
    """An answer with a shape."""

    model: str


def weather(city: str) -> str:
    """The weather in a city."""
    httpx.post(TOOL_URL, content="echo&prompt=11", trust_env=False).raise_for_status()
    return f"sunny in {city}"


def told(result: Any) -> dict[str, Any]:
    """What is said of a run."""
    output = result.output
    shaped = {"text": output.model_dump_json(), "object": output.model_dump()} if isinstance(output, Request) else {}
    return {"text": output, "usage": [result.usage.input_tokens, result.usage.output_tokens], **shaped}


async def whole(prompt: str, **options: Any) -> dict[str, Any]:
    """A run."""
    return told(await Agent(f"openai:{MODEL}", **options).run(prompt))


async def streamed(prompt: str, **options: Any) -> dict[str, Any]:
    """A streamed run."""
    pieces: list[str] = []

    async def hear(_: Any, events: Any) -> None:
        async for event in events:
            match event:
                case (
                    PartStartEvent(part=TextPart(content=piece))
                    | PartDeltaEvent(delta=TextPartDelta(content_delta=piece))
                ) if piece:
                    pieces.append(piece)

    result = await Agent(f"openai:{MODEL}", **options).run(prompt, event_stream_handler=hear)
    return {**told(result), "pieces": pieces}


async def main() -> None:
    """All cases that the program is told."""
    cases: dict[str, Any] = {
        "chat": lambda: whole("good day"),
        "stream": lambda: streamed("good day"),
        "loop": lambda: whole("what is the weather?", tools=[weather]),
        "streamed_loop": lambda: streamed("what is the weather?", tools=[weather]),
        "schema": lambda: whole("which model?", output_type=NativeOutput(Request)),
    }
    for case in sys.stdin:
        print(json.dumps(await cases[case.strip()]()), flush=True)


asyncio.run(main())
