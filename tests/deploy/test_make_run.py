"""`make run`: a first answer without any set-up, the same again next time, and nothing left behind."""

import os
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from deploy import engines
from deploy.environment import MARK
from deploy.processes import as_account, bearers, free_port, servers_on
from deploy.state import CHECKOUT, Account, Memory, own_folder
from tests.deploy.strangers import copy_of_checkout, not_ours, other_user, python_for
from tests.simulated.answer import SPEECH

PLAIN = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.environ.get("HOME", "/")}


class Demo:
    """`python -m deploy.run` on `state`, as `make run` calls it."""

    def __init__(
        self,
        state: Path,
        port: int | None = None,
        *,
        python: Path | str = sys.executable,
        checkout: Path = CHECKOUT,
        environment: Mapping[str, str] = PLAIN,
        account: Account | None = None,
    ) -> None:
        self.state = state
        self.port = port or free_port()
        self.started = time.time()
        self.process = subprocess.Popen(
            [python, "-m", "deploy.run"],
            cwd=checkout,
            env={**environment, "METERLINE_STATE": str(state), "PORT": str(self.port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **as_account(account),
        )

    def until_ready(self) -> dict[str, str]:
        """What a shell has after sourcing `demo.env`, which is there once requests are answered."""
        deadline = time.monotonic() + 120
        while not self._is_ready():
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, "no demo.env within 120 s"
            time.sleep(0.05)
        shell: list[str | Path] = ["sh", "-c", 'set -a; . "$0"; env', self.state / "demo.env"]
        lines = subprocess.run(shell, env={}, capture_output=True, text=True, check=True).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def _is_ready(self) -> bool:
        try:
            return (self.state / "demo.env").stat().st_mtime >= self.started  # A killed run leaves its own.
        except FileNotFoundError:
            return False

    def output(self) -> str:
        """All it printed, once it has ended."""
        printed: str = self.process.communicate(timeout=90)[0]
        return printed

    def stop(self, number: signal.Signals = signal.SIGTERM) -> str:
        """Ask it to stop; what it printed. Its exit code must be 0."""
        self.process.send_signal(number)
        printed = self.output()
        assert self.process.returncode == 0, printed
        return printed

    def __enter__(self) -> "Demo":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.communicate(timeout=90)

    def processes(self, account: Account | None = None) -> set[int]:
        """Every process that it started and that lives."""
        found = set(bearers(f"{MARK}={self.state}"))
        for uid in {account.uid if account else os.geteuid(), other_user().uid}:
            found |= set(servers_on(self.state / "postgres", "postgres", uid))
            found |= set(servers_on(self.state / "valkey", "valkey-server", uid))
        return found


def ask(demo: Mapping[str, str], **body: Any) -> httpx.Response:
    """A chat completion, as the printed `curl` asks for one."""
    body = {"model": "demo/swift", "messages": [{"role": "user", "content": "Hello!"}], **body}
    return httpx.post(
        f"{demo['GATEWAY_URL']}/chat/completions",
        json=body,
        headers={"Authorization": f"Bearer {demo['API_KEY']}"},
        timeout=30,
        trust_env=False,
    )


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """A folder that every user may pass through, gone after the tests."""
    folder = Path(tempfile.mkdtemp(prefix="meterline-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def state(open_folder: Path) -> Path:
    """Where a state will be made."""
    return open_folder / secrets.token_hex(4)


@pytest.fixture(scope="module")
def runs(open_folder: Path) -> Iterator[list[Demo]]:
    """The runs on one state, of which the last may go on."""
    runs: list[Demo] = []
    yield runs
    for run in runs:
        with run:
            pass


@pytest.fixture
def demo(runs: list[Demo], open_folder: Path) -> tuple[Demo, dict[str, str]]:
    """One run for the tests that only look at it, and the one that ends it."""
    if not runs or runs[-1].process.poll() is not None:
        runs.append(Demo(open_folder / "shared"))
    return runs[-1], runs[-1].until_ready()


def test_it_answers_the_first_request(demo: tuple[Demo, dict[str, str]]) -> None:
    _, told = demo
    answer = ask(told)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "demo/swift"
    assert answer.json()["choices"][0]["message"]["content"] == f"You said: Hello! — {SPEECH}"
    assert answer.json()["usage"]["completion_tokens"] == 4 + len(SPEECH.split())
    assert answer.json()["choices"][0]["finish_reason"] == "stop"


def test_it_streams(demo: tuple[Demo, dict[str, str]]) -> None:
    _, told = demo
    assert ask(told, stream=True).text.endswith("data: [DONE]\n\n")


def test_it_tells_a_shell_all_it_needs(demo: tuple[Demo, dict[str, str]]) -> None:
    running, told = demo
    assert told["GATEWAY_URL"] == f"http://127.0.0.1:{running.port}/v1"
    assert re.fullmatch(r"sk-ml-[0-9A-Za-z]{36}", told["API_KEY"])
    assert told.keys() >= {"ADMIN_URL", "ADMIN_USER", "ADMIN_PASSWORD"}


def test_the_key_may_do_what_the_pages_show(demo: tuple[Demo, dict[str, str]]) -> None:
    _, told = demo
    bearer = {"Authorization": f"Bearer {told['API_KEY']}"}
    for path in ("/files", "/management/payg/balance", "/models"):
        assert httpx.get(f"{told['GATEWAY_URL']}{path}", headers=bearer, trust_env=False).status_code == 200


def test_a_command_runs_against_what_runs(demo: tuple[Demo, dict[str, str]], tmp_path: Path) -> None:
    """As `make manage` calls it: no environment but where the state is."""
    running, told = demo
    stored = tmp_path / "more.yaml"
    stored.write_text("organizations: {made-by-hand: {name: Made by hand}}\n")

    def manage(*words: str | Path, **environment: str) -> str:
        found = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=CHECKOUT,
            env={**PLAIN, "METERLINE_STATE": str(running.state), **environment},
            capture_output=True,
            text=True,
        )
        return found.stdout + found.stderr

    assert "made-by-hand" in manage("config", "apply", stored)
    exported = manage("config", "export")
    assert "made-by-hand" in exported and told["API_KEY"] not in exported
    # Another database that is named is the one that is used.
    elsewhere = manage("config", "export", DATABASE_URL="postgres://nobody@127.0.0.1:9/nothing")
    assert "made-by-hand" not in elsewhere
    assert "gateway.E001" in elsewhere  # its secrets are not taken either


def test_its_operator_can_sign_in(demo: tuple[Demo, dict[str, str]]) -> None:
    _, told = demo
    with httpx.Client(follow_redirects=True, timeout=30, trust_env=False) as browser:
        page = browser.get(told["ADMIN_URL"])
        assert "/login/" in page.url.path
        form = {
            "csrfmiddlewaretoken": browser.cookies["csrftoken"],
            "username": told["ADMIN_USER"],
            "password": "not " + told["ADMIN_PASSWORD"],
        }
        assert "/login/" in browser.post(page.url, data=form).url.path
        form["password"] = told["ADMIN_PASSWORD"]
        page = browser.post(page.url, data=form)
        assert (page.status_code, str(page.url)) == (200, told["ADMIN_URL"])


def test_it_listens_on_loopback_alone(demo: tuple[Demo, dict[str, str]]) -> None:
    """127.0.0.2 is this machine too, and stands for all its other addresses."""
    running, _ = demo
    socket.create_connection(("127.0.0.1", running.port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", running.port), timeout=5)


def test_its_secrets_are_private(demo: tuple[Demo, dict[str, str]]) -> None:
    running, told = demo
    for name in ("secrets.env", "demo.env", "engines.env", "product.env"):
        assert stat.S_IMODE((running.state / name).stat().st_mode) == 0o600
    for pid in running.processes():
        arguments = Path(f"/proc/{pid}/cmdline").read_text()
        assert told["API_KEY"] not in arguments
        assert told["ADMIN_PASSWORD"] not in arguments


def test_a_taken_port_is_named_and_nothing_is_started(demo: tuple[Demo, dict[str, str]], state: Path) -> None:
    running, told = demo
    with Demo(state, running.port) as second:
        printed = second.output()
    assert second.process.returncode == 1
    assert f"PORT {running.port} of 127.0.0.1 cannot be used: Address already in use" in printed
    assert second.processes() == set()
    assert not (state / "engines.env").exists()
    assert ask(told).status_code == 200


@pytest.mark.parametrize(
    ("urls", "named"),
    [
        (("nonsense", "redis://127.0.0.1:9"), "DATABASE_URL cannot be used: "),
        (("postgres://a:b@127.0.0.1:9/c", "redis://127.0.0.1:9"), "DATABASE_URL cannot be used: "),
    ],
)
def test_an_engine_that_does_not_answer_is_named(state: Path, urls: tuple[str, str], named: str) -> None:
    given = dict(zip(("DATABASE_URL", "REDIS_URL"), urls, strict=True))
    with Demo(state, environment=PLAIN | given) as demo:
        printed = demo.output()
    assert demo.process.returncode == 1
    assert printed.strip().startswith(named)
    assert "Traceback" not in printed
    assert demo.processes() == set()


def test_a_second_start_on_the_same_state_is_refused(demo: tuple[Demo, dict[str, str]]) -> None:
    running, told = demo
    with Demo(running.state) as second:
        printed = second.output()
    assert second.process.returncode == 1
    assert f"{running.state} is in use by process {running.process.pid}." in printed
    assert ask(told).status_code == 200


def test_the_next_run_has_the_same_key_and_data_however_the_one_before_ended(demo: tuple[Demo, dict[str, str]]) -> None:
    """Asked to stop, killed, and ended by a process that died, in turn: each start prepares nothing that is there."""
    first, told = demo
    state = first.state
    asked = ask(told).json()["id"]
    assert len(first.processes()) >= 6  # two engines, a provider, the server, a worker, a beat
    printed = first.stop()
    assert first.processes() == set()
    assert not (state / "demo.env").exists()
    assert f"Bearer {told['API_KEY']}" in printed
    assert f"password {told['ADMIN_PASSWORD']}" in printed

    before = not_ours(Path(PLAIN["HOME"]))
    with Demo(state, first.port) as second:
        assert second.until_ready() == told
        generations = _generations(state)
        assert generations[-1] == asked
        generations.append(ask(told).json()["id"])
        left = second.processes()
        second.process.kill()
        second.process.communicate()

    with Demo(state, first.port) as third:
        assert third.until_ready() == told
        assert not left & third.processes()
        assert _generations(state) == generations
        assert ask(told).status_code == 200
        (worker,) = [pid for pid in _children(third.process.pid) if "worker" in _arguments(pid)]
        os.kill(worker, signal.SIGKILL)
        printed = third.output()
    assert third.process.returncode == 1
    assert f"worker ended with -9. The end of {state / 'logs' / 'worker.log'}:" in printed
    assert third.processes() == set()
    after = not_ours(Path(PLAIN["HOME"]))
    assert {path: after[path] for path in before if path in after} == before


def _generations(state: Path) -> list[str]:
    """What was asked for so far, as the books have it."""
    facts = Memory(state / "engines.env").all()
    owner = f"meterline_owner:{facts['METERLINE_OWNER_PASSWORD']}"
    with psycopg.connect(f"postgresql://{owner}@127.0.0.1:{facts['POSTGRES_PORT']}/meterline") as books:
        return [id.hex for (id,) in books.execute("SELECT id FROM billing_usage ORDER BY created_at")]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _arguments(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


@pytest.mark.slow
def test_it_uses_engines_that_the_environment_names_and_changes_nothing_that_it_did_not_make(open_folder: Path) -> None:
    """By another user, from a clone of their own, where we can be one: engines of their own are `test_engines`'s."""
    who: dict[str, Any] = {"state": open_folder / "named"}
    other = other_user() if os.geteuid() == 0 else None
    environment = PLAIN
    if other:
        python, environment = python_for(other, own_folder(open_folder / "home", 0o755, other))
        clone = copy_of_checkout(open_folder / "clone", other)
        who = {"state": clone / ".run", "python": python, "checkout": clone, "account": other}
    before = not_ours(Path(PLAIN["HOME"]))
    with engines.start(open_folder / "installed") as installed:
        given = {name: installed.urls[name] for name in ("DATABASE_URL", "REDIS_URL")}
        with Demo(**who, environment={**environment, **given}) as running:
            assert ask(running.until_ready()).status_code == 200
            assert {path.stat().st_uid for path in running.state.rglob("*")} == {other.uid if other else os.geteuid()}
            children = _children(running.process.pid)
            assert len(children) >= 4  # a provider, the server, a worker, a beat
            running.stop(signal.SIGINT)
        assert not any(Path(f"/proc/{child}").exists() for child in children)
        assert not (running.state / "postgres").exists()
        with psycopg.connect(given["DATABASE_URL"]) as books:
            assert books.execute("SELECT count(*) FROM billing_usage").fetchone() == (1,)
    after = not_ours(Path(PLAIN["HOME"]))
    assert {path: after[path] for path in before if path in after} == before
