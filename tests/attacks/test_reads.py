"""One key reads the books as often as it can, over a slow database: nobody else notices."""

import asyncio
import os
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import aiohttp
import httpx
import pytest

from accounts.models import User
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import app_url, database, owner_url
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.shelf import make_model, make_provider
from tests.stage.slow import slow

READERS = [int(count) for count in os.environ.get("READERS", "1000").split(",")]  # `make reads`: 5,000 too
DELAY = 0.05  # seconds of each answer of the database
PAID = 15
POOLS = {"PAID": 6, "READ": 4, "FILE": 2, "ERRAND": 3}
MOST = sum(POOLS.values()) + 1  # with the one that listens
NAME = "under-attack"


def named(url: str, name: str) -> str:
    """`url` under an application name."""
    return f"{url}{'&' if '?' in url else '?'}application_name={name}"


def sessions(name: str = NAME) -> int:
    """How many sessions PostgreSQL has of an application name."""
    with database(owner_url()) as owner:
        ((count,),) = owner.execute(
            "select count(*) from pg_stat_activity where application_name = %s", [name]
        ).fetchall()
        return int(count)


@dataclass
class Crowd:
    """What the readers were told, and how many sessions were seen meanwhile."""

    answers: Counter[int] = field(default_factory=Counter)
    without_a_word: int = 0  # 503 that does not say when to come again
    most_sessions: int = 0


@contextmanager
def reading(gateway: Gateway, secret: str, readers: int) -> Iterator[Crowd]:
    """So many readers of one key, each asking again as soon as it has an answer."""
    crowd, over = Crowd(), threading.Event()
    paths = "/api/usage/token", f"/v1/generation?id={uuid4()}"

    async def reader(session: aiohttp.ClientSession, number: int) -> None:
        while not over.is_set():
            async with session.get(gateway.url + paths[number % 2], headers={"x-api-key": secret}) as response:
                await response.read()
                crowd.answers[response.status] += 1
                crowd.without_a_word += response.status == 503 and "retry-after" not in response.headers
            await asyncio.sleep(0.5 if response.status == 503 else 0)  # a crowd, not a test of this machine's cores

    async def watch() -> None:
        while not over.is_set():
            crowd.most_sessions = max(crowd.most_sessions, await asyncio.to_thread(sessions))
            await asyncio.sleep(0.1)

    async def scenario() -> None:
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            await asyncio.gather(watch(), *(reader(session, number) for number in range(readers)))

    thread = threading.Thread(target=lambda: asyncio.run(scenario()))
    thread.start()
    try:
        until(lambda: sum(crowd.answers.values()) >= min(readers, 300), 60)
        yield crowd
    finally:
        over.set()
        thread.join()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("readers", READERS)
def test_whoever_pays_and_whoever_signs_in_notices_nothing(
    readers: int, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider, tmp_path: Path
) -> None:
    model = make_model(make_provider(f"{simulated.url}/v1"))
    password = secrets.token_urlsafe(12)
    operator = User.objects.create_superuser(f"operator-{secrets.token_hex(4)}", password=password)
    settings = {f"DATABASE_{name}_CONNECTIONS": str(most) for name, most in POOLS.items()}
    with (
        slow(named(app_url(), NAME), DELAY) as url,
        running(tmp_path, 1, SERVE="all", DATABASE_APP_URL=url, EGRESS_ALLOW=simulated.url, **settings) as (gateway,),
    ):
        synchronize(gateway)
        with reading(gateway, alice.secret, readers) as crowd:
            paid = [gateway.chat(charlie.secret, model.slug) for _ in range(PAID)]
            balance = gateway.client.get("/api/usage/token", headers={"x-api-key": charlie.secret})
            ready = gateway.client.get("/readyz")
            signed_in = sign_in(gateway, operator.username, password)
        metrics = gateway.client.get("/metrics").text
    assert [answer.status_code for answer in paid] == [200] * PAID
    assert balance.status_code == 200
    assert (ready.status_code, signed_in) == (200, 302)
    assert 1 < crowd.most_sessions <= MOST
    assert crowd.without_a_word == 0
    # 422: a key may read so many times a minute, 429: and have so many under way; 404: nobody made that generation.
    assert set(crowd.answers) <= {200, 404, 422, 429, 503}
    assert 'meterline_database_connections{pool="reads",state="most"} 4.0' in metrics


def sign_in(gateway: Gateway, name: str, password: str) -> int:
    """The status of the console's answer to a login."""
    with httpx.Client(base_url=gateway.url, timeout=60, trust_env=False) as client:
        client.get("/console/login/")
        form = {"username": name, "password": password, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        return client.post("/console/login/", data=form, headers={"Referer": gateway.url}).status_code


def test_probes_take_no_connection_and_logins_so_many(tmp_path: Path) -> None:
    """300 of each at once, anonymous."""
    with (
        running(
            tmp_path,
            SERVE="all",
            CONSOLE_REQUESTS="4",
            DATABASE_APP_URL=named(app_url(), NAME),
        ) as (gateway,),
    ):
        until(lambda: sessions() >= 2)

        async def scenario() -> Counter[int]:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

                async def ask(path: str) -> int:
                    async with session.get(gateway.url + path) as response:
                        await response.read()
                        return response.status

                before = await asyncio.to_thread(sessions)
                probes = await asyncio.gather(*(ask("/readyz") for _ in range(300)))
                assert await asyncio.to_thread(sessions) <= before + 1
                assert set(probes) == {200}
                return Counter(await asyncio.gather(*(ask("/console/login/") for _ in range(300))))

        logins = asyncio.run(scenario())
    assert set(logins) <= {200, 503}
    assert logins[200] >= 4
