"""`python -m deploy.run`, which is `make run`: the whole product on this machine, until Ctrl-C or SIGTERM.

It starts the engines (unless DATABASE_URL and REDIS_URL name some), prepares the database, and starts a
simulated provider, the web server, a worker and a beat, each with a log of its own. Whatever ends unasked
ends all of it.
"""

import http.client
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from signal import SIGTERM

import psycopg
import redis

from deploy import engines
from deploy.environment import (
    DEMO,
    MARK,
    OPERATOR,
    demo_model,
    given_port,
    given_urls,
    keep_secrets,
    product_settings,
)
from deploy.listening import remembered_port
from deploy.placing import unprivileged
from deploy.processes import Child, Step, accepts, bearers, end_all, free_port, stop_request, why_not_free
from deploy.state import CHECKOUT, FolderLock, Memory, StartError, own_folder, state_folder, write_private

WEB_STOP: Step = (SIGTERM, 45)  # The server itself gives open requests 30 s.
WORKER_STOP: Step = (SIGTERM, 20)
LEFTOVER_STOP: Step = (SIGTERM, 5)
PRIVILEGED = 1024
CODE = ("accounts", "billing", "routing", "gateway", "deploy")


class Stopped(Exception):
    """Somebody asked for the stop while things were still starting."""


class Supervisor:
    """Starts programs on one state, notices when one ends, and ends them all in reverse order."""

    def __init__(self, state: Path, asked: threading.Event, cleanup: ExitStack) -> None:
        self.state = state
        self.asked = asked
        self._cleanup = cleanup
        self._children: list[Child] = []
        self._logs = own_folder(state / "logs")

    def start(self, name: str, module: str, *arguments: str, stop: Step, environment: dict[str, str]) -> Child:
        """Start a Python module in the checkout; it is watched from now on, and stopped by `stop`."""
        child = self._launch(name, module, *arguments, environment=environment)
        self._children.append(child)
        self._cleanup.callback(child.stop, stop)
        return child

    def watch(self, child: Child) -> None:
        """Notice when `child`, which somebody else stops, ends."""
        self._children.append(child)

    def finish(self, name: str, module: str, *arguments: str, environment: dict[str, str]) -> None:
        """Run a module to its end. Raises `StartError` unless it succeeds."""
        child = self._launch(name, module, *arguments, environment=environment)
        self._cleanup.callback(child.stop)
        self._until(lambda: child.code is not None, 600, name)
        if child.code != 0:
            raise _ended(child)

    def until_answers(self, what: str, answers: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until `answers` is true. Raises `StartError` after `seconds`, or when something ends."""
        self._until(answers, seconds, what)

    def watch_until_asked(self) -> None:
        """Return when asked to stop. Raises `StartError` when anything ends before."""
        while not self.asked.wait(0.2):
            self._check()

    def _launch(self, name: str, module: str, *arguments: str, environment: dict[str, str]) -> Child:
        return Child(
            name,
            [sys.executable, "-m", module, *arguments],
            log=self._logs / f"{name}.log",
            environment=environment,
            folder=CHECKOUT,
        )

    def _until(self, reached: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not reached():
            self._check()
            if time.monotonic() > deadline:
                raise StartError(f"The {what} was not ready within {seconds:.0f} s. Its log is in {self._logs}.")
            if self.asked.wait(0.03):
                raise Stopped

    def _check(self) -> None:
        for child in self._children:
            if child.code is not None:
                # A service manager asks all processes at once to stop, and ours may have been slower to hear it.
                if self.asked.wait(0.3):
                    raise Stopped
                raise _ended(child)


def _ended(child: Child) -> StartError:
    return StartError(f"{child.name} ended with {child.code}. The end of {child.log}:\n\n{child.tail()}")


def run(asked: threading.Event, cleanup: ExitStack) -> None:
    """Everything, from nothing to the stop. What it starts is stopped by closing `cleanup`."""
    port, urls = given_port(), given_urls()
    state = own_folder(state_folder(), 0o711 if unprivileged() else 0o700)
    cleanup.callback(FolderLock(state / "run.lock").release)
    cleanup.callback(end_bearers, state)  # What a program of ours started and left behind when it was killed.
    if left := end_bearers(state):
        say(f"Ended {left} processes that an earlier run had left behind.")
    if reason := why_not_free(port):
        if port < PRIVILEGED:
            raise StartError(
                f"PORT {port} of 127.0.0.1 cannot be used: {reason}. Ports below {PRIVILEGED} are the system's; "
                f"choose another: PORT={port + 8000} make run"
            )
        raise StartError(
            f"PORT {port} of 127.0.0.1 cannot be used: {reason}. "
            f"Stop what is there, or choose another: PORT={port + 1} make run"
        )
    if urls:
        check_engines(urls)
    supervisor = Supervisor(state, asked, cleanup)
    own_folder(state / "spool")
    # Whoever waits for this file must find it only while what it names answers; a killed run left its own.
    demo_env = state / "demo.env"
    demo_env.unlink(missing_ok=True)
    secrets = keep_secrets(state)
    memory = Memory(state / "run.env")
    embedded = not urls
    if embedded:
        say("Starting PostgreSQL and Valkey.")
        urls = start_engines(supervisor, cleanup)
    if why_not_free(remembered_port(memory, "SIMULATED_PORT")):
        memory.replace("SIMULATED_PORT", str(free_port()))
    simulated_port = remembered_port(memory, "SIMULATED_PORT")
    settings = product_settings(state, urls, secrets, port, simulated_port)
    environment = {**os.environ, **settings, MARK: str(state)}
    prepare(supervisor, environment, memory if embedded else None)
    serve(supervisor, environment, port, simulated_port)
    cleanup.callback(demo_env.unlink, missing_ok=True)
    product_env = state / "product.env"
    cleanup.callback(product_env.unlink, missing_ok=True)
    write_private(product_env, settings, "What runs here, for manage.py.")
    announce(state, secrets, port)
    supervisor.watch_until_asked()


def check_engines(urls: Mapping[str, str]) -> None:
    """Raises `StartError`, naming the variable, for an engine that the environment names and that does not answer."""
    try:
        psycopg.connect(urls["DATABASE_URL"], connect_timeout=10).close()
    except psycopg.Error as error:
        raise StartError(f"DATABASE_URL cannot be used: {' '.join(str(error).split())}") from error
    try:
        with redis.Redis.from_url(urls["REDIS_URL"], socket_connect_timeout=10, socket_timeout=10) as broker:
            broker.ping()
    except (redis.RedisError, ValueError) as error:
        raise StartError(f"REDIS_URL cannot be used: {error}") from error


def start_engines(supervisor: Supervisor, cleanup: ExitStack) -> dict[str, str]:
    """Start the embedded engines on the supervisor's state; their URLs."""
    embedded = cleanup.enter_context(engines.start(supervisor.state))
    for engine in (embedded.postgres, embedded.valkey):
        assert engine.child is not None
        supervisor.watch(engine.child)
    return embedded.urls


def prepare(supervisor: Supervisor, environment: dict[str, str], memory: Memory | None) -> None:
    """Migrate and configure the database, unless `memory` knows that this very code has done so with it.

    Without a memory it is done every time: a server that is not ours may be set back to an earlier day.
    """
    if memory and memory.recall("PREPARED", str) == fingerprint(environment):
        return
    say("Preparing the database: migrations, the demo's configuration, an operator.")
    if memory:
        memory.replace("PREPARED", "")
    supervisor.finish("prepare", "deploy.prepare", environment=environment)
    if memory:
        memory.replace("PREPARED", fingerprint(environment))


def end_bearers(state: Path) -> int:
    """End every process that was started for `state`, by this run or a killed one; says how many."""
    return end_all(lambda: bearers(f"{MARK}={state}"), LEFTOVER_STOP)


def serve(supervisor: Supervisor, environment: dict[str, str], port: int, simulated_port: int) -> None:
    """Start the product's processes and the simulated provider. Returns when a request can be answered."""
    say("Starting a simulated provider and the web server.")
    simulated = ("tests.simulated", "--port", str(simulated_port))
    supervisor.start("simulated", *simulated, stop=LEFTOVER_STOP, environment=environment)
    server = ("gateway.door.server", "--host", "127.0.0.1", "--port", str(port), "--drain", "30")
    web = {**environment, "DATABASE_ROLE": "console"}
    supervisor.start("web", *server, stop=WEB_STOP, environment=web)
    supervisor.until_answers("simulated provider", lambda: accepts(simulated_port))
    supervisor.until_answers("web server", lambda: is_ready(port))
    say("Starting a worker and a beat.")
    celery = ("celery", "-A", "gateway.celery")
    tasks = {**environment, "DATABASE_ROLE": "app"}
    schedule = ["--schedule", str(supervisor.state / "beat-schedule"), "--pidfile="]
    # Two, since one may be storing an export for long.
    supervisor.start("worker", *celery, "worker", "--concurrency", "2", stop=WORKER_STOP, environment=tasks)
    supervisor.start("beat", *celery, "beat", *schedule, stop=LEFTOVER_STOP, environment=tasks)


def is_ready(port: int) -> bool:
    """Whether the web server says that it can take requests."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def fingerprint(environment: dict[str, str]) -> str:
    """What `deploy.prepare` depends on: this very database, the code, the secrets and the provider's address."""
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        row = connection.execute(
            "SELECT system_identifier, d.oid FROM pg_control_system(), pg_database d WHERE datname = current_database()"
        ).fetchone()
    files = [path for app in CODE for path in (CHECKOUT / app).rglob("*") if path.suffix in {".py", ".sql"}]
    digest = sha256(repr(row).encode())
    for path in sorted([*files, DEMO, CHECKOUT / "requirements.lock"]):
        digest.update(path.read_bytes())
    for name in ("METERLINE_DEMO_KEY", "METERLINE_SIMULATED_KEY", "METERLINE_SIMULATED_URL", "KEY_PEPPERS"):
        digest.update(environment[name].encode())
    return digest.hexdigest()


def announce(state: Path, secrets: dict[str, str], port: int) -> None:
    """Print how to use what runs, and write the same for a shell to `demo.env`."""
    key, password = secrets["METERLINE_DEMO_KEY"], secrets["METERLINE_OPERATOR_PASSWORD"]
    demo = {
        "GATEWAY_URL": f"http://127.0.0.1:{port}/v1",
        "API_KEY": key,
        "ADMIN_URL": f"http://127.0.0.1:{port}/console/",
        "ADMIN_USER": OPERATOR,
        "ADMIN_PASSWORD": password,
    }
    write_private(state / "demo.env", demo, "The demo that runs here: `set -a; . demo.env`.")
    say(f"""
Meterline is ready.

  API       {demo["GATEWAY_URL"]}
  key       {key}
  console   {demo["ADMIN_URL"]}
            user {OPERATOR}, password {password}

Ask it something:

  curl {demo["GATEWAY_URL"]}/chat/completions \\
    -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\
    -d '{{"model": "{demo_model()}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'

The same for a shell is in {state / "demo.env"}, logs are in {state / "logs"}. Commands for what runs here:
make manage ARGS="import_catalog". Ctrl-C stops everything.""")


def say(text: str) -> None:
    """Tell the person at the terminal."""
    print(text, flush=True)


def main() -> int:
    """The program; its exit code is 0 after a stop that was asked for."""
    asked = stop_request()
    with ExitStack() as cleanup:
        try:
            run(asked, cleanup)
        except Stopped:
            pass
        except StartError as error:
            print(f"\n{error}", file=sys.stderr, flush=True)
            return 1
        say("\nStopping. Open requests have up to 30 s.")
    say("Stopped.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
