"""Child processes: start one apart from the terminal, end it for sure, and find those a dead supervisor left.

Each child leads a session of its own, so that Ctrl-C reaches the supervisor alone and everything stops in
order.
"""

import os
import secrets
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from deploy.state import Account, StartError

Step = tuple[signal.Signals, float]  # a signal, and the seconds to wait for the end after it
ASKED: Step = (signal.SIGTERM, 10)
AT_ONCE: Step = (signal.SIGKILL, 10)
# Below the range that systems hand to outgoing connections: a busy client must not take an engine's port
# between two starts.
PORTS = range(15_000, 32_000)
# A process may end while we read of it, or hide its environment, in a container even from root.
GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
# For programs that take nothing from our environment: a stray PGOPTIONS or LD_PRELOAD is not for them.
BARE = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


class Child:
    """A running program of ours. Its output goes to `log`; the run before stays beside it as `….1`."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str | Path],
        *,
        log: Path,
        environment: Mapping[str, str],
        folder: Path,
        account: Account | None = None,
        given: bytes = b"",
    ) -> None:
        """Start it in `folder` with exactly `environment`, as `account` (root alone can), `given` to read."""
        self.name = name
        self.log = log
        if log.exists():
            log.replace(log.with_name(log.name + ".1"))
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
                umask=0o077,
                **as_account(account),
            )
        finally:
            os.close(output)
        assert self._process.stdin is not None
        # Closed at once: nobody here can answer a question.
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(given)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, *steps: Step) -> None:
        """End it: each signal and its wait, by default `ASKED`; then SIGKILL to its whole process group."""
        for number, seconds in steps or (ASKED,):
            if self.code is not None:
                return
            self._process.send_signal(number)
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue
        if self.code is None:
            self.kill()

    def kill(self) -> None:
        """SIGKILL to it and what it started in its group, now; returns when it is gone."""
        if self.code is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


def as_account(account: Account | None) -> dict[str, Any]:
    """Arguments for `subprocess` to run a program as `account`, in no other group. None: as who we are."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def servers_on(folder: Path, program: str, uid: int) -> list[int]:
    """Ids of the processes of user `uid` that run `program` with `folder` as one of their arguments.

    With a private folder of ours that is provably an engine of ours. Linux alone has `/proc`; elsewhere the
    list is empty, and what a killed supervisor left has to be ended by hand.
    """
    return [pid for pid, words in _told(uid, "cmdline") if str(folder) in words and Path(words[0]).name == program]


def bearers(mark: str) -> list[int]:
    """Ids of this user's processes, but for this one, that were started with `mark` in their environment."""
    return [pid for pid, words in _told(os.geteuid(), "environ") if mark in words and pid != os.getpid()]


def _told(uid: int, file: str) -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(*GONE):
            if entry.stat().st_uid == uid:
                yield int(entry.name), os.fsdecode((entry / file).read_bytes()).split("\0")


def end_all(find: Callable[[], list[int]], *steps: Step) -> int:
    """End all processes that `find` tells of: `steps` in turn, then SIGKILL. Returns how many there were.

    Raises `StartError` when one outlives even that.
    """
    handles = {}
    for pid in find():
        with suppress(*GONE):
            handles[pid] = os.pidfd_open(pid)
    # A number may have passed to a stranger before the descriptor held it.
    for pid in handles.keys() - set(find()):
        os.close(handles.pop(pid))
    waiting = dict(handles)
    try:
        for number, seconds in (*(steps or (ASKED,)), AT_ONCE):
            for handle in waiting.values():
                with suppress(*GONE):
                    signal.pidfd_send_signal(handle, number)
            deadline = time.monotonic() + seconds
            while waiting and (left := deadline - time.monotonic()) > 0:
                ended, _, _ = select.select(list(waiting.values()), [], [], left)
                waiting = {pid: handle for pid, handle in waiting.items() if handle not in ended}
        if waiting:
            raise StartError(f"Processes {sorted(waiting)} of an earlier run do not end. End them by hand.")
    finally:
        for handle in handles.values():
            os.close(handle)
    return len(handles)


def why_not_free(port: int) -> str | None:
    """Why we cannot listen on `port` of 127.0.0.1 now; None if we can. A TIME_WAIT there is no reason."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.strerror or "unknown"
    return None


def accepts(port: int) -> bool:
    """Whether somebody takes connections on `port` of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now; whoever starts there may still be beaten to it."""
    for _ in range(1000):
        port = secrets.choice(PORTS)
        if why_not_free(port) is None:
            return port
    raise StartError(f"No free port among {PORTS.start}-{PORTS.stop - 1} on 127.0.0.1.")


def stop_request() -> threading.Event:
    """An event that SIGINT, SIGTERM and SIGHUP set from now on, instead of ending us. Main thread only."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup asks to outlive a terminal.
            signal.signal(number, lambda *_: asked.set())
    return asked
