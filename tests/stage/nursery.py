"""Python programs under test, forked from a process that has read the libraries: to read them again is most of a start.

Everything of the product is read, and its environment looked at, in the new process. That the product starts by itself
is shown by those who start it as a deployment does: `make run`'s tests, a supervisor's workers, the bench.
"""

import gc
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path

# What brings the most of what a gateway reads, and looks at no settings.
LIBRARIES = (
    "aiohttp", "celery.app.base", "cryptography.hazmat.primitives.serialization", "django.contrib.admindocs.views",
    "django.contrib.auth.hashers", "django.contrib.postgres.apps", "django.core.handlers.asgi",
    "django.db.backends.postgresql.base", "environ", "httpx", "msgspec", "prometheus_client", "rest_framework.compat",
    "uvicorn.lifespan.on", "uvicorn.loops.auto", "uvicorn.protocols.http.auto",
)  # fmt: skip
_nursery = get_context("forkserver")
_nursery.set_forkserver_preload([*LIBRARIES, __name__])


class Program:
    """A running program; what `subprocess.Popen` has of the same names."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> None:
        """Starts `python ARGUMENTS`, either `-m MODULE ...` or `-c CODE ...`, in `folder`; what it says is in `log`."""
        self._process = _nursery.Process(
            target=_become, args=(list(arguments), dict(environment), str(folder), str(log)), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """As a shell has it, or minus the signal that ended it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises `subprocess.TimeoutExpired`."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it."""
        self.send_signal(signal.SIGKILL)


def _become(arguments: list[str], environment: dict[str, str], folder: str, log: str) -> None:
    """The program, in this process."""
    gc.freeze()  # what the libraries have made stays: no collection need look through it
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    how, what, *rest = arguments
    sys.path.insert(0, folder)
    sys.argv = [how, *rest]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), vars(sys.modules["__main__"]))  # noqa: S102
