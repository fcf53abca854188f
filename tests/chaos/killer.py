"""A deployment of three gateways, a worker with its beat, and the engines; and who kills them one after the other."""

import asyncio
import os
import random
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from deploy.engines import Engines
from tests.stage.product import ROOT, Gateway, environment, launch, until
from tests.stage.worker import CELERY

GATEWAYS = 3


class Deployment:
    """What runs, and is run again when it was killed. `engines`: None where they are somebody else's."""

    def __init__(self, folder: Path, engines: Engines | None, **env: str) -> None:
        self.ready: list[Gateway] = []
        self.killed: dict[int, float] = {}  # a gateway's process id -> when
        self.kinds = ["gateway", "worker", *(["postgres", "valkey"] if engines else [])]
        self._folder, self._engines = folder, engines
        self._env = {**env, **(engines.urls if engines else {})}
        self._worker: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Starts it all; the gateways are ready."""
        await asyncio.gather(*(self._start_gateway() for _ in range(GATEWAYS)))
        self._start_worker()

    async def _start_gateway(self) -> None:
        gateway = launch(self._folder, spool=None, **self._env)
        await asyncio.to_thread(gateway.until_ready)
        self.ready.append(gateway)

    def _start_worker(self) -> None:
        arguments = ["worker", "--concurrency", "1", "--beat", "--schedule", str(self._folder / "beat"), "--pidfile="]
        env = environment(SPOOL_DIR=str(self._folder / "spool"), **self._env) | {"DATABASE_ROLE": "app"}
        with (self._folder / "worker.log").open("ab") as log:
            self._worker = subprocess.Popen(
                [*CELERY, *arguments], cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True
            )

    async def kill(self, kind: str, chance: random.Random) -> None:
        """kill -9 of one of a kind. Returns when it is there again, or, of a gateway, another one is."""
        if kind == "gateway":
            await asyncio.to_thread(until, lambda: len(self.ready) > 1, 60)
            victim = self.ready.pop(chance.randrange(len(self.ready)))
            self.killed[victim.process.pid] = time.monotonic()
            victim.kill()
            await self._start_gateway()
        elif kind == "worker":
            self._kill_worker()
            self._start_worker()
        else:
            assert self._engines is not None
            engine = self._engines.postgres if kind == "postgres" else self._engines.valkey
            engine.kill()
            await asyncio.to_thread(engine.start)

    def _kill_worker(self) -> None:
        assert self._worker is not None
        os.killpg(self._worker.pid, signal.SIGKILL)
        self._worker.wait()

    def stop(self) -> None:
        """SIGTERM to the gateways that are left; the worker has nothing to say goodbye to."""
        for gateway in self.ready:
            gateway.stop()
        if self._worker is not None:
            self._kill_worker()


async def kill_in_turn(
    deployment: Deployment, times: int, chance: random.Random, due: Callable[[int], Awaitable[None]]
) -> list[str]:
    """Kills so many times, each kind as often as any other, in random order; before the nth `due(n)` is awaited."""
    kinds: list[str] = []
    while len(kinds) < times:
        kinds += chance.sample(deployment.kinds, len(deployment.kinds))
    restarts = []
    for number, kind in enumerate(kinds[:times]):
        await due(number)
        restarts.append(asyncio.create_task(deployment.kill(kind, chance)))
        if kind == "postgres":
            await restarts[-1]  # two at once would be one
    await asyncio.gather(*restarts)
    return kinds[:times]
