"""A client's program at work: see this package's docstring."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clients.packages import node_program
from tests.stage.cast import Tenant
from tests.stage.product import ROOT, Gateway, environment


class Program:
    """A program that waits for a case."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process = process
        self._log = log

    def does(self, case: str) -> dict[str, Any]:
        """What it prints of a case. Raises AssertionError with what it complained of when it ends instead."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-3000:]
        told: dict[str, Any] = json.loads(line)
        return told


@contextmanager
def started(
    client: str, model: str, tool_url: str, gateway: Gateway, tenant: Tenant, scratch: Path
) -> Iterator[Program]:
    """The program of `client`, pointed at the gateway with a tenant's key, until the block ends.

    Raises AssertionError when it does not end well by itself once there are no more cases.
    """
    if client.endswith(".mjs"):
        command = node_program(ROOT / "tests" / "clients" / client, scratch)
    else:
        command = [sys.executable, "-m", f"tests.clients.{client}"]
    env = environment(
        OPENAI_BASE_URL=f"{gateway.url}/v1",
        OPENAI_API_KEY=tenant.secret,
        ANTHROPIC_BASE_URL=gateway.url,
        ANTHROPIC_API_KEY=tenant.secret,
        GOOGLE_GEMINI_BASE_URL=gateway.url,
        GOOGLE_API_KEY=tenant.secret,
        LLM_USER_PATH=str(scratch),
        LLM_LOAD_PLUGINS="",  # The one that brings the tests a model file lacks the engine it imports.
        LANGSMITH_TRACING_V2="false",  # Whatever a developer's own environment says.
        OPENAI_AGENTS_DISABLE_TRACING="1",
    )
    log = scratch / "program.log"
    with (
        log.open("w") as complaints,
        subprocess.Popen(
            [*command, model, tool_url],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        ) as process,
    ):
        try:
            yield Program(process, log)
            assert process.stdin
            process.stdin.close()
            assert process.wait(30) == 0, log.read_text()[-3000:]
        finally:
            process.kill()
