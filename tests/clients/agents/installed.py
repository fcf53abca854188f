"""The agents' programs, each in a folder of its own that is kept from run to run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.agents.roster import Agent
from tests.clients.packages import kept, node, npm

PACKAGES = Path(__file__).parent / "packages"
INSTALL_SECONDS = 600
UNREACHABLE = ("dns error", "error trying to connect", "operation timed out", "Connection refused")


def command(agent: Agent) -> list[str]:
    """How the agent is started, installed as its lock says if it is not yet.

    Skips the test where its packages cannot be had from here; raises AssertionError where they do not install.
    """
    packages = PACKAGES / agent.name
    if not agent.program:
        lock = packages / "requirements.lock"
        folder = kept(agent.name, lock.read_bytes(), lambda folder: _environment(lock, folder))
        return [str(folder / "bin" / agent.name)]
    folder = npm(packages, INSTALL_SECONDS, "install")  # some lack packages for other machines
    program = max((folder / "node_modules").glob(agent.program))  # of some for this machine the plainest comes last
    return [str(program)] if "*" in agent.program else [*node(), str(program)]


def _environment(lock: Path, folder: Path) -> None:
    """An environment of Python with what a lock names."""
    uv = Path(sys.executable).with_name("uv")
    env = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}  # the tests trust nobody
    steps: tuple[list[str | Path], ...] = (
        ["venv", "--quiet", "--allow-existing", "--python", sys.executable, folder],
        ["pip", "install", "--quiet", "--python", folder / "bin" / "python", "--require-hashes", "-r", lock],
    )
    for arguments in steps:
        done = subprocess.run([uv, *arguments], env=env, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if any(word in done.stderr for word in UNREACHABLE):
            pytest.skip("the package registry cannot be reached from here")
        assert done.returncode == 0, done.stderr[-2000:]
