"""Requests to copy: for curl, OpenAI's SDK for Python and the one for Node. Pure.

Each is a text with `{json}` or `{keywords}` where the fields of the request go, so that the playground's script writes
the request that somebody has just made into the same ones.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEY_NAME = "METERLINE_KEY"  # of the environment's variable

CURL = """curl {base}/{path} \\
  -H "Authorization: Bearer $METERLINE_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{json}'
"""
PYTHON = """import os
from openai import OpenAI

client = OpenAI(base_url="{base}", api_key=os.environ["METERLINE_KEY"])
answer = client.{method}(
{keywords}
)
print({python})
"""
NODE = """import OpenAI from "openai";

const client = new OpenAI({ baseURL: "{base}", apiKey: process.env.METERLINE_KEY });
const answer = await client.{method}({json});
console.log({node});
"""


@dataclass(frozen=True, slots=True)
class Call:
    """What is called: the path behind the base URL, the SDK's method, and what is read of the answer in each."""

    path: str
    method: str
    python: str
    node: str


CHAT = Call(
    "chat/completions",
    "chat.completions.create",
    "answer.choices[0].message.content",
    "answer.choices[0].message.content",
)
EMBEDDINGS = Call(
    "embeddings", "embeddings.create", "answer.data[0].embedding[:3]", "answer.data[0].embedding.slice(0, 3)"
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A program. `name` is what its tab is called and its element's id."""

    name: str
    title: str
    text: str


def templates(base: str, call: Call = CHAT) -> list[Sample]:
    """The programs with the places of a request's fields left open. `base`: such as https://gateway.example/v1."""
    return [
        Sample(
            name, title, _put(text, base=base, path=call.path, method=call.method, python=call.python, node=call.node)
        )
        for name, title, text in (("curl", "curl", CURL), ("python", "Python", PYTHON), ("node", "Node", NODE))
    ]


def samples(base: str, body: Mapping[str, Any], call: Call = CHAT) -> list[Sample]:
    """The programs that send `body`."""
    return [Sample(one.name, one.title, _filled(one, body)) for one in templates(base, call)]


def _filled(sample: Sample, body: Mapping[str, Any]) -> str:
    shown = json.dumps(body, indent=2, ensure_ascii=False)
    if sample.name == "curl":
        shown = shown.replace("'", "'\\''")
    return _put(sample.text, json=shown, keywords=keywords(body))


def keywords(body: Mapping[str, Any]) -> str:
    """The fields as arguments of a call in Python, a line each."""
    return "\n".join(f"    {name}={_python(value)}," for name, value in body.items())


def _python(value: Any) -> str:
    """What a JSON value is called in Python: the same but for three words."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_python(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_python, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _put(text: str, **places: str) -> str:
    """`text` with each place filled once: nothing in what is filled in is a place again."""
    parts, rest = [], text
    while rest:
        found = [(at, name) for name in places if (at := rest.find("{" + name + "}")) >= 0]
        if not found:
            break
        at, name = min(found)
        parts += [rest[:at], places[name]]
        rest = rest[at + len(name) + 2 :]
    return "".join((*parts, rest))
