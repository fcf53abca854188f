"""Several processes that serve one port, and the one that started them, which serves nothing itself.

They share one listener: while one of them stops or starts the others take what comes. Each has a socket to the
supervisor. Its end tells each side of the other's, whatever ended it, and a worker that has not said for long that its
loop turns is killed. One that is gone is replaced.
"""

import logging
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.2
STALLED_SECONDS = 30.0  # without a sign of life
START_SECONDS = 120.0  # until the first one
PAUSE_SECONDS = 1.0  # between two starts in one place


class Worker:
    """A process, and what has been heard of it."""

    def __init__(self, command: Sequence[str], listener: socket.socket) -> None:
        self.line, theirs = socket.socketpair()
        self.line.setblocking(False)
        with theirs:
            arguments = [*command, "--listener", str(listener.fileno()), "--supervisor", str(theirs.fileno())]
            self.process = subprocess.Popen(arguments, pass_fds=(listener.fileno(), theirs.fileno()))  # noqa: S603
        self.started = time.monotonic()
        self.ready = False
        self.silent = 0.0

    def hear(self) -> None:
        """Takes what it said, if anything."""
        try:
            said = self.line.recv(4096)
        except OSError:
            return
        if said:
            self.ready, self.silent = True, 0.0

    @property
    def is_stalled(self) -> bool:
        """Whether it has been silent for too long."""
        return self.silent > (STALLED_SECONDS if self.ready else START_SECONDS)


class Supervisor:
    """Keeps `count` workers on `listener`. `command` starts one; a stop may take them `patience` seconds."""

    def __init__(self, command: Sequence[str], listener: socket.socket, count: int, patience: float) -> None:
        self._command = command
        self._listener = listener
        self._count = count
        self._patience = patience
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        self._asked: list[int] = []
        self._served = False  # one of them has been ready
        self._next_start = 0.0

    def run(self) -> int:
        """Until SIGTERM or SIGINT, or no worker can start. Gives the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self._asked.append(number))
        for _ in range(self._count):
            self._start()
        failed = 0
        while not self._asked:
            self._listen()
            for worker in self._gone():
                if not worker.ready and not self._served:
                    logger.error("process %d ended before it could serve", worker.process.pid)
                    failed = failed or 1
                    self._asked.append(signal.SIGTERM)
                    break
                logger.error("process %d ended with %s", worker.process.pid, worker.process.returncode)
            if not self._asked and len(self._workers) < self._count and time.monotonic() >= self._next_start:
                self._start()
        return self._stop() or failed

    def _start(self) -> None:
        worker = Worker(self._command, self._listener)
        self._workers.append(worker)
        self._selector.register(worker.line, selectors.EVENT_READ, worker)

    def _listen(self) -> None:
        """Waits for a word of any worker, for a tick at most. One that is stalled is killed.

        Silence is counted in ticks of our own: whoever stops all of us for a while stops them as well.
        """
        before = time.monotonic()
        for key, _ in self._selector.select(TICK_SECONDS):
            key.data.hear()
        passed = min(time.monotonic() - before, 2 * TICK_SECONDS)
        for worker in self._workers:
            worker.silent += passed
            self._served = self._served or worker.ready
            if worker.is_stalled and worker.process.poll() is None:
                logger.error("process %d says nothing any more, and is killed", worker.process.pid)
                worker.process.kill()

    def _gone(self) -> list[Worker]:
        """Those that have ended; they are ours no more."""
        gone = [worker for worker in self._workers if worker.process.poll() is not None]
        for worker in gone:
            self._workers.remove(worker)
            self._selector.unregister(worker.line)
            worker.line.close()
            # One that ends as soon as it has started is not started over and over.
            self._next_start = worker.started + PAUSE_SECONDS
        return gone

    def _stop(self) -> int:
        """Passes the signal on, and waits. Nobody but the workers has the listener from now on."""
        self._listener.close()
        deadline = time.monotonic() + self._patience
        codes = []
        while self._workers:
            while self._asked:
                number = self._asked.pop(0)
                for worker in self._workers:
                    worker.process.send_signal(number)
            self._listen()
            if time.monotonic() > deadline:
                for worker in self._workers:
                    worker.process.kill()
            # One that had not begun to serve yet may end by the signal itself.
            codes += [worker.ready and worker.process.returncode for worker in self._gone()]
        return 1 if any(codes) else 0
