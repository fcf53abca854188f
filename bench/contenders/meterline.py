"""Meterline itself: one gateway process with everything on that it does for a paying tenant."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import psycopg
from psycopg import sql

from accounts.keys import new_secret
from bench.site import CHECKOUT, Running, Site, status_of, until_answers
from deploy import engines
from deploy.engines import Engines
from deploy.new_env import new_secrets
from deploy.postgres import ROLES
from deploy.processes import free_port

DATABASE = "bench"
ON = (
    "authentication, request, token and open-request limits, hard budgets of organization and project, "
    "a durable hold and a durable settlement a request"
)
UNKNOWN_KEYS = 16


@contextmanager
def start(site: Site) -> Iterator[Running]:
    """The gateway on the contender's core, on engines of its own, with fsync, on the others."""
    with engines.start(site.folder("engines")) as running:
        urls = _fresh_database(running)
        environment = {
            **urls,
            **{name: value for name, value in new_secrets().items() if "PASSWORD" not in name},
            "SERVE": "gateway",
            "SPOOL_DIR": str(site.folder("spool")),
            "EGRESS_ALLOW": site.provider,
            "INSECURE_COOKIES": "true",
            "LOG_LEVEL": "WARNING",
        }
        made = _tenant(site, environment)
        port = free_port()
        arguments = [sys.executable, "-m", "gateway.door.server", "--port", str(port), "--drain", "5"]
        with site.contender("meterline", arguments, environment, CHECKOUT) as child:
            until_answers(child, lambda: status_of(port, "/readyz") == 200)
            yield Running(
                port=port,
                pid=child.pid,
                on=ON,
                version=_version(),
                headers={"Authorization": f"Bearer {made['secret']}"},
                models=made["models"],
                spoken=made["spoken"],
                database=running.postgres.pid,
                refused={"unknown": [new_secret() for _ in range(UNKNOWN_KEYS)], **made["refused"]},
            )


def _fresh_database(running: Engines) -> Mapping[str, str]:
    """An empty database, so that no earlier run's rows are in the way, and how the product reaches it."""
    name = sql.Identifier(DATABASE)
    with psycopg.connect(running.postgres.url(ROLES[0]), autocommit=True) as connection:
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(name))
        connection.execute(sql.SQL("create database {}").format(name))
    owner, app, console = (running.postgres.url(role, DATABASE) for role in ROLES)
    return {
        "DATABASE_URL": owner,
        "DATABASE_APP_URL": app,
        "DATABASE_CONSOLE_URL": console,
        "REDIS_URL": running.valkey.url,
    }


def _tenant(site: Site, environment: Mapping[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.tenant", site.provider, *site.models],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        env={**site.environment(), **environment},
    )
    if done.returncode != 0:
        raise RuntimeError(f"the rows could not be made:\n{done.stderr[-3000:]}")
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def _version() -> str:
    told = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=CHECKOUT, capture_output=True, text=True)
    uses = ", ".join(f"{name} {version(name)}" for name in ("django", "uvicorn", "uvloop", "aiohttp", "psycopg"))
    return f"{told.stdout.strip() or 'unknown'} ({uses})"
