"""What a program of LangChain's does in each case, whichever chat model it has: see this package's docstring."""

import json
import sys
from typing import Any

import httpx
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel

MODEL, TOOL_URL = sys.argv[1:]


class Request(BaseModel):
    """An answer with a shape."""

    model: str


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    httpx.post(TOOL_URL, content="echo&prompt=11", trust_env=False).raise_for_status()
    return f"sunny in {city}"


def told(answers: list[Any]) -> dict[str, Any]:
    """What is said of the answers that a conversation's steps gave."""
    usages = [answer.usage_metadata for answer in answers]
    sums = [sum(usage[name] for usage in usages) for name in ("input_tokens", "output_tokens")]
    return {"text": answers[-1].text, "usage": sums}


def streamed(model: Any, messages: list[BaseMessage]) -> tuple[AIMessageChunk, list[str]]:
    """The pieces of a streamed answer added up, and their texts."""
    chunks: list[AIMessageChunk] = list(model.stream(messages))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return whole, [str(chunk.text) for chunk in chunks if chunk.text]


def streams(chat: BaseChatModel) -> dict[str, Any]:
    """A streamed answer."""
    answer, pieces = streamed(chat, [HumanMessage("good day")])
    return {**told([answer]), "pieces": pieces}


def loop(chat: BaseChatModel, *, stream: bool) -> dict[str, Any]:
    """A conversation in which the model calls a tool until it has no more to ask."""
    model = chat.bind_tools([weather])
    messages: list[BaseMessage] = [HumanMessage("what is the weather?")]
    answers: list[AIMessage] = []
    pieces: list[str] = []
    while not answers or answers[-1].tool_calls:
        if stream:
            answer, pieces = streamed(model, messages)
            answers.append(answer)
        else:
            answers.append(model.invoke(messages))
        messages += [answers[-1], *(weather.invoke(call) for call in answers[-1].tool_calls)]
    return {**told(answers), "pieces": pieces}


def schema(chat: BaseChatModel) -> dict[str, Any]:
    """An answer with a shape."""
    shaped: Any = chat.with_structured_output(Request, method="json_schema", include_raw=True)
    answer = shaped.invoke("which model?")
    return {**told([answer["raw"]]), "object": answer["parsed"].model_dump()}


def run(chat: BaseChatModel) -> None:
    """All cases that the program is told."""
    cases: dict[str, Any] = {
        "chat": lambda: told([chat.invoke("good day")]),
        "stream": lambda: streams(chat),
        "loop": lambda: loop(chat, stream=False),
        "streamed_loop": lambda: loop(chat, stream=True),
        "schema": lambda: schema(chat),
    }
    for case in sys.stdin:
        print(json.dumps(cases[case.strip()]()), flush=True)
