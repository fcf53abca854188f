"""What an orchestrator asks: is the process alive, can it take paid work, and what has it counted."""

import asyncio
import time

from django.http import HttpRequest
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from billing.backbone.batches import DatabaseAway
from gateway.door.answers import Answer, json_answer
from gateway.door.view import ApiView
from gateway.process import process, telemetry

STALE_SNAPSHOT_SECONDS = 60


class Health(ApiView):
    """GET /healthz: the process answers."""

    public = True
    for_pages = False

    async def get(self, request: HttpRequest) -> Answer:
        """200 as long as the event loop turns."""
        return json_answer({"status": "ok"})


class Readiness(ApiView):
    """GET /readyz: the process can take paid work."""

    public = True
    for_pages = False

    async def get(self, request: HttpRequest) -> Answer:
        """200, or 503 naming what is missing. `configuration` is the last change it follows."""
        here = process.current()
        snapshots, spool = here.snapshots, here.backbone.spool
        age = time.monotonic() - snapshots.read_at if snapshots.read_at else None
        missing = []
        if age is None or age > STALE_SNAPSHOT_SECONDS:
            missing.append("configuration")
        try:
            await here.backbone.connections.call("select 1", [])
        except DatabaseAway:
            missing.append("database")
        if spool.full:
            missing.append("disk")
        if here.leaving:
            missing.append("stopping")
        state = {
            "status": "unready" if missing else "ready",
            "missing": missing,
            "configuration": snapshots.last_change,
            "spooled": spool.lines,
        }
        return json_answer(state, 503 if missing else 200)


class Metrics(ApiView):
    """GET /metrics, in Prometheus' text format."""

    public = True
    for_pages = False

    async def get(self, request: HttpRequest) -> Answer:
        """The process's metrics."""
        here = process.current()
        telemetry.before_hold.set(len(here.arrivals))
        telemetry.open_calls.set(len(here.open_calls))
        telemetry.drains.set(len(here.drains))
        telemetry.spooled.set(here.backbone.spool.lines)
        telemetry.tasks.set(len(asyncio.all_tasks()))
        telemetry.snapshot_age.set(time.monotonic() - here.snapshots.read_at)
        return Answer(generate_latest(), CONTENT_TYPE_LATEST.encode())
