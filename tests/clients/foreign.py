"""Upstreams that nobody here wrote, each as a process of its own, and a gateway that may dial it."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.clients.packages import node, npm
from tests.stage.product import ROOT, free_port, until


@contextmanager
def serving(command: Sequence[str], port: int, path: str, log: Path, seconds: float = 60) -> Iterator[str]:
    """Runs a server until the block ends; gives its address once GET `path` answers.

    Raises AssertionError with the end of its log when it does not within `seconds`.
    """
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(url + path, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        until(lambda: process.poll() is not None or answers(), seconds, 0.05)
        assert process.poll() is None, log.read_text()[-3000:]
        yield url
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def aimock(fixtures: Path, scratch: Path) -> Iterator[str]:
    """npm's @copilotkit/aimock, answering by `fixtures`; GET /__aimock/journal tells what it was sent."""
    program = npm(ROOT / "tests" / "aimock") / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    port = free_port()
    options = ["-p", str(port), "-f", str(fixtures), "--strict", "--validate-on-load", "--log-level", "warn"]
    with serving([*node(), str(program), *options], port, "/health", scratch / "aimock.log") as url:
        yield url


@contextmanager
def fakellm(rules: Path, scratch: Path) -> Iterator[str]:
    """PyPI's fakellm, answering by `rules`; GET /_fakellm/stats tells what it was asked."""
    pytest.importorskip("fakellm", reason="fakellm is not installed")
    port = free_port()
    command = [sys.executable, "-c", "from fakellm.cli import main; main()", "serve"]
    options = ["--port", str(port), "--config", str(rules)]
    with serving([*command, *options], port, "/_fakellm/stats", scratch / "fakellm.log") as url:
        yield url
