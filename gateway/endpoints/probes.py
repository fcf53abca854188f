"""What an orchestrator asks: is the process alive, can it take paid work, and what has it counted."""

import asyncio
import time
from hmac import compare_digest
from ipaddress import ip_address

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gateway.door.answers import Answer, json_answer
from gateway.door.authentication import client_address
from gateway.door.view import ApiView, origin
from gateway.process import process, telemetry
from gateway.wire.errors import Unauthenticated

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
        """200, or 503 naming what is missing, from what the process knows: nobody is asked. `configuration` is the last
        change it follows, `clock_ahead_seconds` how far its clock and the database's are apart.
        """
        here = process.current()
        snapshots, spool = here.snapshots, here.backbone.spool
        age = time.monotonic() - snapshots.read_at if snapshots.read_at else None
        missing = []
        if age is None or age > STALE_SNAPSHOT_SECONDS:
            missing.append("configuration")
        if not here.database.reachable:
            missing.append("database")
        if not here.database.agrees:
            missing.append("clock")
        if spool.full:
            missing.append("disk")
        if here.leaving:
            missing.append("stopping")
        state = {
            "status": "unready" if missing else "ready",
            "missing": missing,
            "configuration": snapshots.last_change,
            "spooled": spool.lines,
            "clock_ahead_seconds": round(here.database.ahead, 1),
        }
        return json_answer(state, 503 if missing else 200)


class Metrics(ApiView):
    """GET /metrics, in Prometheus' text format."""

    public = True
    for_pages = False

    async def get(self, request: ASGIRequest) -> Answer:
        """The process's metrics, for who has the token; without one, for this machine alone."""
        headers, peer = origin(request.scope)
        if not _may_scrape(self.fields.get(b"authorization", b""), client_address(headers, peer)):
            raise Unauthenticated("Send METRICS_TOKEN as 'Authorization: Bearer …'.", code="invalid_token")
        here = process.current()
        telemetry.before_hold.set(len(here.arrivals))
        telemetry.open_calls.set(len(here.open_calls))
        telemetry.drains.set(len(here.drains))
        telemetry.spooled.set(here.backbone.spool.lines)
        telemetry.tasks.set(len(asyncio.all_tasks()))
        telemetry.snapshot_age.set(time.monotonic() - here.snapshots.read_at)
        _show_database(here)
        return Answer(generate_latest(), CONTENT_TYPE_LATEST.encode())


def _show_database(here: process.Process) -> None:
    telemetry.hold_patience.set(here.backbone.admission.patience)
    telemetry.clock_ahead.set(here.database.ahead)
    telemetry.oldest_transaction.set(here.database.oldest_seconds)
    telemetry.findings.set(here.database.findings)
    telemetry.audited.set(here.database.audited_at)
    telemetry.exports_failing.set(here.database.exports_failing)
    telemetry.connections_wanted.set(here.database.wanted)
    telemetry.connections_allowed.set(here.database.allowed)
    for name, pool in here.pools:
        turns = pool.turns
        for state, count in (("used", turns.places - turns.free), ("idle", pool.idle), ("most", turns.places)):
            telemetry.connections.labels(name, state).set(count)
        telemetry.calls_waiting.labels(name).set(turns.waiting)
        telemetry.calls_refused.labels(name).set(turns.refused)


def _may_scrape(credential: bytes, address: str) -> bool:
    if token := settings.METRICS_TOKEN:
        return compare_digest(credential, b"Bearer " + token.encode())
    try:
        return not settings.TRUSTED_PROXY_HOPS and ip_address(address).is_loopback
    except ValueError:
        return False
