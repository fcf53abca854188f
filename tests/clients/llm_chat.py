"""The library behind the `llm` command. What it is called with and what it prints: see this package's docstring.

LLM_USER_PATH names a folder of its own; the model is told to it as its documents say, in a YAML file there.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import llm
from pydantic import BaseModel

MODEL, TOOL_URL = sys.argv[1:]


class Request(BaseModel):
    """An answer with a shape."""

    model: str


def weather(city: str) -> str:
    """The weather in a city."""
    httpx.post(TOOL_URL, content="echo&prompt=11", trust_env=False).raise_for_status()
    return f"sunny in {city}"


def model() -> Any:
    """The gateway's model, as llm finds it."""
    entry = {
        "model_id": "ours",
        "model_name": MODEL,
        "api_base": os.environ["OPENAI_BASE_URL"],
        "api_key_name": "openai",
        "supports_tools": True,
        "supports_schema": True,
    }
    folder = Path(os.environ["LLM_USER_PATH"])
    (folder / "extra-openai-models.yaml").write_text(json.dumps([entry]))  # JSON is YAML, too
    return llm.get_model("ours")


def told(responses: list[Any]) -> dict[str, Any]:
    """What is said of the responses that a conversation's steps gave."""
    usages = [response.usage() for response in responses]
    sums = [sum(usage.input for usage in usages), sum(usage.output for usage in usages)]
    return {"text": responses[-1].text(), "usage": sums}


def prompted(text: str, *, stream: bool, schema: type[BaseModel] | None = None) -> dict[str, Any]:
    """One question and its answer."""
    response = model().prompt(text, stream=stream, schema=schema)
    pieces = list(response)
    shaped = {"object": schema.model_validate_json(response.text()).model_dump()} if schema else {}
    return {**told([response]), "pieces": pieces, **shaped}


def loop(*, stream: bool) -> dict[str, Any]:
    """llm's own loop of tools."""
    responses = []
    pieces: list[str] = []
    for response in model().chain("what is the weather?", tools=[weather], stream=stream).responses():
        pieces += list(response)
        responses.append(response)
    return {**told(responses), "pieces": pieces}


CASES: dict[str, Any] = {
    "chat": lambda: prompted("good day", stream=False),
    "stream": lambda: prompted("good day", stream=True),
    "loop": lambda: loop(stream=False),
    "streamed_loop": lambda: loop(stream=True),
    "schema": lambda: prompted("which model?", stream=False, schema=Request),
}

for case in sys.stdin:
    print(json.dumps(CASES[case.strip()]()), flush=True)
