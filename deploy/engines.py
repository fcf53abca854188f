"""Embedded engines: a real PostgreSQL and a real Valkey from wheels, children of whoever calls `start`.

Only the wheels' programs are used. Both engines listen on 127.0.0.1 alone and want a password, on
PostgreSQL's socket too. `python -m deploy.engines FOLDER` starts them, prints their URLs for a shell to read,
and runs until stopped.
"""

import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.placing import place_for, unprivileged
from deploy.postgres import ROLES, Postgres
from deploy.processes import stop_request
from deploy.state import FolderLock, Memory, StartError, own_folder
from deploy.valkey import Valkey


class Engines:
    """Both engines, running. Leaving a `with` block, or `stop`, ends them."""

    def __init__(self, postgres: Postgres, valkey: Valkey, cleanup: ExitStack) -> None:
        self.postgres = postgres
        self.valkey = valkey
        self._cleanup = cleanup

    @property
    def urls(self) -> dict[str, str]:
        """What the product reads from its environment: a URL for each database role, and Valkey's."""
        owner, app, console = (self.postgres.url(role) for role in ROLES)
        return {
            "DATABASE_URL": owner,
            "DATABASE_APP_URL": app,
            "DATABASE_CONSOLE_URL": console,
            "REDIS_URL": self.valkey.url,
        }

    def stop(self) -> None:
        """End both and let go of the state folder. Harmless when already stopped."""
        self._cleanup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start(state: Path) -> Engines:
    """Start both engines on what `state` holds, which is made the first time, and return when both answer.

    Data, passwords and ports stay the same from start to start. Engines that a killed supervisor left on
    `state` are ended first. Raises `StateInUse` while a living process holds `state`, else `StartError` with
    an engine's last words.
    """
    account = unprivileged()
    state = own_folder(state.absolute(), 0o711 if account else 0o700)
    with ExitStack() as cleanup:
        lock = FolderLock(state / "engines.lock")
        cleanup.callback(lock.release)
        memory = Memory(state / "engines.env")
        place = place_for(state, account)
        postgres = Postgres(place, state / "postgres.log", account, memory)
        valkey = Valkey(place, state / "valkey.log", account, memory)
        for engine in (postgres, valkey):
            cleanup.callback(engine.stop)
            engine.start()
        return Engines(postgres, valkey, cleanup.pop_all())


def main(folder: str) -> int:
    """Run the engines on the state in `folder` until asked to stop."""
    asked = stop_request()
    try:
        with start(Path(folder)) as engines:
            for name, url in engines.urls.items():
                print(f"export {name}={shlex.quote(url)}", flush=True)
            asked.wait()
    except StartError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
