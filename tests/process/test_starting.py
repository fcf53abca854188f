"""A process that begins: nobody with a good key is told that the key, or what it asks for, does not exist."""

import json
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path

from deploy.processes import accepts
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import app_url
from tests.stage.cast import Tenant
from tests.stage.gate import gate
from tests.stage.product import Gateway, launch, until
from tests.stage.shelf import make_model, make_provider


def ask(gateway: Gateway, secret: str, method: str, path: str, body: str | None = None) -> tuple[int, str | None]:
    """The status and Retry-After of a request on a connection of its own. Raises OSError when it is not let in."""
    connection = HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    try:
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Retry-After"]
    finally:
        connection.close()


def ask_from_the_first_moment(gateway: Gateway, secret: str, model: str) -> list[tuple[int, str | None]]:
    """200 answers in a row, of lists and chats in turn, from the first connection that is taken."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]})
    until(lambda: gateway.process.poll() is not None or accepts(gateway.port), 60, pause=0.001)
    found = []
    for _ in range(100):
        found.append(ask(gateway, secret, "GET", f"/v1/models/{model}"))
        found.append(ask(gateway, secret, "POST", "/v1/chat/completions", body))
    return found


def test_the_first_connection_that_is_taken_is_answered(
    alice: Tenant, simulated: SimulatedProvider, tmp_path: Path
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=2").slug
    gateway = launch(tmp_path, EGRESS_ALLOW=simulated.url)
    try:
        found = ask_from_the_first_moment(gateway, alice.secret, model)
        assert Counter(found) == {(200, None): 200}
    finally:
        gateway.stop()


def test_a_process_that_began_without_its_database_says_so_until_it_has_read_it(
    alice: Tenant, simulated: SimulatedProvider, tmp_path: Path
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=2").slug
    with gate(app_url(), is_open=False) as way:
        gateway = launch(tmp_path, EGRESS_ALLOW=simulated.url, DATABASE_APP_URL=way.url)
        try:
            until(lambda: gateway.readiness() != {}, 60)
            ready = gateway.client.get("/readyz")
            assert (ready.status_code, ready.json()["missing"]) == (503, ["configuration", "database"])
            refused = gateway.chat(alice.secret, model)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            way.open()
            found: list[tuple[int, str | None]] = []
            while found.count((200, None)) < 50:
                found.append(ask(gateway, alice.secret, "GET", f"/v1/models/{model}"))
            assert set(found) <= {(503, "1"), (200, None)}
            until(lambda: gateway.readiness()["status"] == "ready", 10)
        finally:
            gateway.stop()
