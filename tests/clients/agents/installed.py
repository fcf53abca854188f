"""The agents' programs, each in a folder of its own that is kept from run to run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.state import own_folder, state_folder
from tests.clients.agents.roster import Agent
from tests.clients.foreign import node, node_with

PACKAGES = Path(__file__).parent / "packages"
INSTALL_SECONDS = 600
UNREACHABLE = ("dns error", "error trying to connect", "operation timed out", "Connection refused")


def command(agent: Agent) -> list[str]:
    """How the agent is started, installed as its lock says if it is not yet.

    Skips the test where its packages cannot be had from here; raises AssertionError where they do not install.
    """
    packages = PACKAGES / agent.name
    folder = own_folder(state_folder() / "agents" / agent.name)
    mark = folder / "installed"
    lock = b"".join(file.read_bytes() for file in sorted(packages.iterdir()))
    if not mark.is_file() or mark.read_bytes() != lock:
        print(f"  installing {agent.name} into {folder}", flush=True)
        shutil.rmtree(folder)
        own_folder(folder)
        if agent.program:
            node_with(packages, folder, INSTALL_SECONDS, "install")  # some lack packages for other machines
        else:
            _environment(packages / "requirements.lock", folder)
        mark.write_bytes(lock)
    if not agent.program:
        return [str(folder / "bin" / agent.name)]
    program = max((folder / "node_modules").glob(agent.program))  # of some for this machine the plainest comes last
    return [str(program)] if "*" in agent.program else [*node(), str(program)]


def _environment(lock: Path, folder: Path) -> None:
    """An environment of Python with what a lock names."""
    uv = Path(sys.executable).with_name("uv")
    steps: tuple[list[str | Path], ...] = (
        ["venv", "--quiet", "--allow-existing", "--python", sys.executable, folder],
        ["pip", "install", "--quiet", "--python", folder / "bin" / "python", "--require-hashes", "-r", lock],
    )
    for arguments in steps:
        done = subprocess.run([uv, *arguments], capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if any(word in done.stderr for word in UNREACHABLE):
            pytest.skip("the package registry cannot be reached from here")
        assert done.returncode == 0, done.stderr[-2000:]
