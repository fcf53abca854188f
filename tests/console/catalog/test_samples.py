"""Programs to copy: what they send is what they were made of, whatever stands in it."""

import ast
import json
import shutil
import subprocess
from typing import Any

import pytest

from gateway.console.catalog.samples import CHAT, EMBEDDINGS, samples

BASE = "https://gateway.example/v1"
HOSTILE = 'it\'s "{keywords}" {json} $HOME `id` \\ \n </pre><script> {base} ünï 🙂'
BODY: dict[str, Any] = {
    "model": "lab/model",
    "messages": [{"role": "user", "content": HOSTILE}],
    "temperature": 0.5,
    "stream": True,
    "user": None,
}


def text(name: str, body: dict[str, Any], call: Any = CHAT) -> str:
    """The program of this name."""
    return {one.name: one.text for one in samples(BASE, body, call)}[name]


def test_curl_is_given_the_body_by_a_shell() -> None:
    program = text("curl", BODY).replace("curl ", "printf '%s\\n' ", 1)
    said = subprocess.run(["sh", "-c", program], env={"METERLINE_KEY": "k"}, capture_output=True, text=True, check=True)
    url, *_, body = said.stdout.split("\n", 6)
    assert url == f"{BASE}/chat/completions" and "Authorization: Bearer k" in said.stdout
    assert json.loads(said.stdout[said.stdout.index("{") :]) == BODY, body


def test_python_passes_the_fields() -> None:
    tree = ast.parse(text("python", BODY))
    (call,) = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and ast.unparse(one.func).endswith("create")]
    assert {one.arg: ast.literal_eval(one.value) for one in call.keywords} == BODY


@pytest.mark.skipif(shutil.which("node") is None, reason="There is no Node here.")
def test_node_passes_the_fields() -> None:
    program = text("node", BODY, EMBEDDINGS).partition("create(")[2].partition(");\nconsole.log(")[0]
    said = subprocess.run(
        ["node", "-e", f"process.stdout.write(JSON.stringify({program}))"], capture_output=True, text=True, check=True
    )
    assert json.loads(said.stdout) == BODY
    assert "client.embeddings.create({" in text("node", BODY, EMBEDDINGS)
