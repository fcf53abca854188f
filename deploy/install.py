"""Makes `.venv` and installs exactly what `requirements-dev.lock` says. Needs only Python 3.11 and its pip.

Run by make as a plain script, before any package is there: the standard library alone. Once `.venv` holds
what the lock says it only looks, so that whoever may read the checkout can use an environment that another
user made.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
LOCK = CHECKOUT / "requirements-dev.lock"
VENV = CHECKOUT / ".venv"
PYTHON = VENV / "bin" / "python"
INSTALLED = VENV / "installed.lock"  # A copy of the lock that was installed last.


def main() -> None:
    """Bring `.venv` up to date, one at a time; exits with a message when it cannot."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this is where an older one is told
        version = ".".join(map(str, sys.version_info[:2]))
        sys.exit(f"Meterline needs Python 3.11 or later; this is {version}. Try: make run PYTHON=python3.12")
    if is_current():
        return
    try:
        VENV.mkdir(exist_ok=True)
        guard = (VENV / "install.lock").open("w")
    except OSError as error:
        sys.exit(f"{VENV} cannot be used as it is, nor changed ({error.strerror}). Work in a clone of your own.")
    with guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not is_current():  # Another make may have finished meanwhile.
            install()


def is_current() -> bool:
    """Whether `.venv` works and holds what the lock says."""
    try:
        if INSTALLED.read_bytes() != LOCK.read_bytes():
            return False
    except OSError:
        return False
    return works(PYTHON, "-c", "")


def install() -> None:
    """Make the environment where it is missing or broken, and install the lock into it with uv."""
    INSTALLED.unlink(missing_ok=True)
    # Debian's Python has pip but may lack what puts pip into an environment; another may have it the other
    # way round.
    outside: list[str | Path] = [sys.executable, "-m", "pip", "--python", PYTHON]
    has_pip = works(sys.executable, "-m", "pip", "--python", sys.executable, "--version")
    if not has_pip and not works(sys.executable, "-c", "import ensurepip"):
        sys.exit(f"{sys.executable} has neither pip nor ensurepip. On Debian: apt-get install python3-pip")
    if not works(PYTHON, "-c", ""):
        say("Making the environment .venv")
        run(sys.executable, "-m", "venv", *(["--without-pip"] if has_pip else []), VENV)
    say("Installing the packages that requirements-dev.lock names")
    bootstrap = VENV / "uv.lock"
    bootstrap.write_text(entry_of("uv"))
    pip = outside if has_pip else [PYTHON, "-m", "pip"]
    run(*pip, "install", "--quiet", "--require-hashes", "-r", bootstrap)
    # A user without a home has no place for a cache.
    cache = [] if os.access(Path.home(), os.W_OK) else ["--no-cache"]
    # Compiled once: else each first start does it, or, where no bytecode may be written, every start.
    uv: list[str | Path] = [VENV / "bin" / "uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", PYTHON]
    locked: list[str | Path] = ["--require-hashes", "-r", LOCK]
    if call(*uv, *cache, *locked) != 0:
        say("Trying once more with pip, which is slower, but follows pip's own configuration")
        run(*pip, "install", "--quiet", "--no-deps", *locked)
    beside = INSTALLED.with_suffix(".new")
    shutil.copyfile(LOCK, beside)
    beside.replace(INSTALLED)


def entry_of(package: str) -> str:
    """The lines of the lock for one package: its version and its hashes."""
    lines = LOCK.read_text().splitlines(keepends=True)
    start = next(number for number, line in enumerate(lines) if line.startswith(f"{package}=="))
    end = next(number for number in range(start, len(lines)) if not lines[number].rstrip().endswith("\\"))
    return "".join(lines[start : end + 1])


def works(*command: "str | Path") -> bool:
    """Whether a command succeeds, in silence."""
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def run(*command: "str | Path") -> None:
    """Run a command as `call` does; exits when it fails."""
    if call(*command) != 0:
        sys.exit(f"This did not work: {' '.join(map(str, command))}")


def call(*command: "str | Path") -> int:
    """The exit code of a command that runs in the checkout, with its output shown."""
    quiet = {"UV_PYTHON_DOWNLOADS": "never", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    trusting = {"UV_SYSTEM_CERTS": "true"}  # Whom the system trusts, as pip does, so that a company's proxy works.
    return subprocess.run(command, cwd=CHECKOUT, env={**quiet, **trusting, **os.environ}).returncode


def say(text: str) -> None:
    """Tell the person at the terminal."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
