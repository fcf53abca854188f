"""Every request of a good key counts, whatever becomes of it: refused, only reading, or told where it would go."""

import asyncio
import re
from collections import Counter as Tally
from collections.abc import Callable
from typing import Any

import pytest

from billing.models import Budget, Limit, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import run
from tests.stage.cast import Tenant, make_key
from tests.stage.load import Clients
from tests.stage.product import Gateway, running, synchronize
from tests.stage.shelf import make_model, make_provider

Ask = Callable[[Gateway, str, str], Any]


def asked(gateway: Gateway, secret: str, method: str, path: str, body: Any = None) -> Any:
    """An answer."""
    headers = {"Authorization": f"Bearer {secret}"}
    return gateway.client.request(method, path, headers=headers, json=body)


def limit(tenant: Tenant, value: int, **of: Any) -> Limit:
    """So many requests a minute of the key, or of whatever is given."""
    of = of or {"project": tenant.project, "key": tenant.key}
    return Limit.objects.create(organization=tenant.organization, measure="requests", value=value, **of)


def until_refused(ask: Callable[[], Any], most: int) -> tuple[list[int], Any]:
    """The statuses before the first 429, and that; at most `most` requests, and as many again if a minute ended."""
    found: list[int] = []
    for _ in range(2 * most):
        answer = ask()
        if answer.status_code == 429:
            return found, answer
        found.append(answer.status_code)
    raise AssertionError(f"never refused: {Tally(found)}")


HI = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"
WAYS: dict[str, tuple[int, str, str, Any]] = {
    "a wrong body": (400, "POST", CHAT, {"model": "MODEL", "messages": []}),
    "no such model": (404, "POST", CHAT, {"model": "no/such", "messages": HI}),
    "a look": (200, "POST", "/v1/route", {"model": "MODEL", "messages": HI}),
    "a list": (200, "GET", "/v1/models", None),
    "a scope it lacks": (403, "GET", "/v1/management/usage", None),
    "another method": (405, "DELETE", CHAT, None),
    "nowhere": (404, "GET", "/v1/nowhere", None),
    "no such generation": (404, "GET", "/v1/generation?id=" + "0" * 32, None),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_counts(gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, charlie: Tenant, way: str) -> None:
    status, method, path, body = WAYS[way]
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=2").slug
    if body is not None and body["model"] == "MODEL":
        body = {**body, "model": model}
    limit(alice, 5)
    limit(charlie, 5)
    synchronize(gateway)
    found, refused = until_refused(lambda: asked(gateway, alice.secret, method, path, body), 5)
    assert set(found) == {status}
    assert 5 <= len(found) <= 9  # more than 5 only where a minute has ended
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.json()["error"]["message"] == "The key's limit of 5 requests a minute is reached."
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    # What is refused by now is everything of that key, and nobody else's.
    assert gateway.chat(alice.secret, model).status_code == 429
    assert not Usage.objects.filter(organization=alice.organization.pk).exists()
    assert gateway.chat(charlie.secret, model).status_code == 200


def test_what_is_paid_for_is_counted_where_it_is_held_and_only_there(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=2").slug
    limit(alice, 5)
    synchronize(gateway)
    found, _ = until_refused(lambda: gateway.chat(alice.secret, model), 5)
    assert set(found) == {200}
    assert 5 <= len(found) <= 9
    assert asked(gateway, alice.secret, "GET", "/v1/models").status_code == 200


@pytest.mark.parametrize("whose", ["project", "organization"])
def test_what_keys_share_counts_together(gateway: Gateway, alice: Tenant, whose: str) -> None:
    limit(alice, 6, **({"project": alice.project} if whose == "project" else {"project": None}))
    _, other = make_key(alice.project, name="other")
    synchronize(gateway)
    keys = [alice.secret, other]

    def ask() -> Any:
        keys.reverse()
        return asked(gateway, keys[0], "GET", "/v1/models")

    found, refused = until_refused(ask, 6)
    assert 6 <= len(found) <= 11
    assert refused.json()["error"]["message"] == f"The {whose}'s limit of 6 requests a minute is reached."


def test_requests_that_find_no_money_count(gateway: Gateway, simulated: SimulatedProvider, alice: Tenant) -> None:
    model = make_model(make_provider(simulated.base_url)).slug
    Budget.objects.create(organization=alice.organization, period="total", amount=0)
    limit(alice, 5)
    synchronize(gateway)
    found, _ = until_refused(lambda: gateway.chat(alice.secret, model), 5)
    assert set(found) == {402}


def test_a_changed_limit_is_followed(gateway: Gateway, alice: Tenant) -> None:
    def ask() -> int:
        return int(asked(gateway, alice.secret, "GET", "/v1/models").status_code)

    rule = limit(alice, 0)
    synchronize(gateway)
    assert 429 in {ask(), ask(), ask()}
    rule.value = 50
    rule.save()
    synchronize(gateway)
    assert ask() == 200
    rule.value = 1
    rule.save()
    synchronize(gateway)
    assert 429 in {ask(), ask(), ask()}
    rule.delete()
    synchronize(gateway)
    assert ask() == 200


def counted(gateway: Gateway, name: str) -> float:
    """A metric's value."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", gateway.client.get("/metrics").text, re.MULTILINE)
    assert found, name
    return float(found[1])


def test_a_key_has_only_so_many_under_way_before_they_are_held_for(
    simulated: SimulatedProvider, alice: Tenant, charlie: Tenant, tmp_path: Any
) -> None:
    """40 bodies that do not arrive, against 10; what is held for is not among them, and another key is not met."""
    model = make_model(make_provider(simulated.base_url), f"way-{alice.organization.slug}?hold&tokens=2").slug
    with running(tmp_path, EGRESS_ALLOW=simulated.url, KEY_REQUESTS_UNDER_WAY="10") as (gateway,):
        synchronize(gateway)

        async def scenario() -> tuple[list[bytes], list[int]]:
            async with Clients() as clients:
                held = [
                    asyncio.create_task(clients.ask(gateway.url, alice.secret, model=model, max_tokens=2))
                    for _ in range(9)
                ]
                await asyncio.to_thread(simulated.until, waiting=9)
                lines = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(40)]
                for _, writer in lines:
                    writer.write(_head(alice.secret))
                heads = [asyncio.create_task(reader.readuntil(b"\r\n\r\n")) for reader, _ in lines]
                done: set[Any] = set()
                while len(done) < 30:
                    done, _ = await asyncio.wait(heads, return_when=asyncio.FIRST_COMPLETED, timeout=20)
                    await asyncio.sleep(0)
                before_hold = await asyncio.to_thread(counted, gateway, "meterline_requests_before_hold")
                assert before_hold == 10
                other = await asyncio.to_thread(asked, gateway, charlie.secret, "GET", "/v1/models")
                mine = await asyncio.to_thread(asked, gateway, alice.secret, "GET", "/v1/models")
                for _, writer in lines:
                    writer.close()
                simulated.release()
                answers = [(await task).status for task in held]
                for head in heads:
                    head.cancel()
                return [task.result() for task in done], [other.status_code, mine.status_code, *answers]

        refused, statuses = run(scenario())
        assert all(head.startswith(b"HTTP/1.1 429 ") and b"\r\nretry-after: 1\r\n" in head for head in refused)
        assert statuses == [200, 429] + [200] * 9
        assert counted(gateway, 'meterline_turned_away_total{reason="under_way"}') == 31
        assert asked(gateway, alice.secret, "GET", "/v1/models").status_code == 200
        assert counted(gateway, "meterline_requests_before_hold") == 0


def _head(secret: str) -> bytes:
    """Of a request whose body never comes."""
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\nAuthorization: Bearer " + secret.encode() + b"\r\n\r\n"
    )
