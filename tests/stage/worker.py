"""The product's Celery worker, as a process of its own: a real broker, the API's role, the tests' database."""

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery
from django.conf import settings

from tests.stage.product import ROOT, environment, until

CELERY = (sys.executable, "-m", "celery", "-A", "gateway.celery")


class Worker:
    """A worker process on a queue of its own, and with a spool of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path, spool: Path, sender: Celery) -> None:
        self.process = process
        self.spool = spool
        self.exports = spool.with_name("exports")
        self._log = log
        self._sender = sender

    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text()

    def send(self, task: str, **options: Any) -> str:
        """Sends a task, and gives its id."""
        return str(self._sender.send_task(task, **options).id)

    def run(self, *tasks: str) -> None:
        """Returns once the worker has done the tasks one after the other. Raises AssertionError if one failed."""
        said = self._log.stat().st_size
        sent = [f"Task {task}[{self.send(task)}]" for task in tasks]

        def news() -> str:
            with self._log.open() as log:
                log.seek(said)
                return log.read()

        # The others' ends come before the last one's.
        until(lambda: any(f"{sent[-1]} {end}" in news() for end in ("succeeded", "raised", "retry")), 30 + len(tasks))
        done = news()
        assert all(f"{task} succeeded" in done for task in sent), self.log()[-3000:]


@contextmanager
def working(folder: Path, *, beat: bool = False) -> Iterator[Worker]:
    """A worker, started as a deployment does it but for its queue, which no other worker reads. Logs in `folder`, and
    stores exports below it.

    With `beat` there is one, too, that sends what is due to that queue.
    """
    queue = f"tests-{secrets.token_hex(6)}"
    log, spool = folder / "worker.log", folder / "spool"
    spool.mkdir()
    command = [*CELERY, "worker", "--concurrency", "1"]
    env = environment(SPOOL_DIR=str(spool), EXPORT_DIR=str(folder / "exports")) | {"DATABASE_ROLE": "app"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--queues", queue, "--hostname", f"{queue}@%h", "--loglevel", "INFO", "--without-gossip",
             "--without-mingle"],
            cwd=ROOT, env=env, stdout=output, stderr=output,
        )  # fmt: skip
        others = [*CELERY, "beat", "--pidfile=", "--schedule", str(folder / "beat"), "--"]
        beats = [
            subprocess.Popen([*others, f"task.default_queue={queue}"], cwd=ROOT, env=env, stdout=output, stderr=output)
            for _ in range(beat)
        ]
    sender = Celery("tests", broker=settings.REDIS_URL, set_as_current=False)
    sender.conf.task_default_queue = queue
    sender.conf.task_ignore_result = True
    found = Worker(process, log, spool, sender)
    try:
        until(lambda: " ready." in found.log() or process.poll() is not None, 120)
        assert process.poll() is None, found.log()[-3000:]
        yield found
    finally:
        for one in (*beats, process):
            one.terminate()
            one.wait(30)
        with sender.connection_for_write() as connection:
            channel = connection.default_channel
            channel.queue_delete(queue)
            for name in list(channel.client.scan_iter(f"*{queue}*")):
                channel.client.delete(name)  # the queue's bindings, which the broker keeps
        sender.close()
