"""The lean handler answers as Django's stock one does: the same corpus through both."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import ROOT, Gateway, environment, free_port, synchronize
from tests.stage.shelf import make_model, make_provider

HI = [{"role": "user", "content": "hi"}]
# Those that differ from answer to answer, that belong to the connection, or that the console's middleware adds.
OTHER = {"date", "server", "connection", "x-request-id", "x-generation-id", "transfer-encoding", "vary"}
MIDDLEWARE = {
    "x-content-type-options", "referrer-policy", "cross-origin-opener-policy", "x-frame-options",
    "content-security-policy", "permissions-policy", "strict-transport-security", "content-language",
}  # fmt: skip


@pytest.fixture(scope="module")
def stock(database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The product under the stock handler."""
    folder = tmp_path_factory.mktemp("stock")
    port, log, spool = free_port(), folder / "stock.log", folder / "spool"
    command = [sys.executable, "-m", "uvicorn", "tests.door.stock_asgi:application", "--port", str(port)]
    env = environment(SERVE="gateway", SPOOL_DIR=str(spool), EGRESS_ALLOW=simulated.url)
    env["DATABASE_ROLE"] = "app"  # the console's requests are transactions, which asynchronous views cannot be
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=output)
    gateway = Gateway(process, port, log, spool)
    try:
        gateway.until_ready()
        yield gateway
    finally:
        gateway.stop()


def corpus(tenant: Tenant, narrow: str, model: str, faulty: str) -> list[dict[str, Any]]:
    """Requests of every kind, as arguments of httpx."""
    key = {"Authorization": f"Bearer {tenant.secret}"}
    good: dict[str, Any] = {"model": model, "messages": HI}
    chat: dict[str, Any] = {"method": "POST", "url": "/v1/chat/completions", "headers": key}
    bodies: list[dict[str, Any]] = [
        {"json": good},
        {"json": {**good, "stream": True}},
        {"json": {**good, "stream": True, "stream_options": {"include_usage": True}}},
        {"json": {**good, "max_tokens": 0}},
        {"json": {**good, "model": "no/such"}},
        {"json": {**good, "model": faulty}},
        {"json": {**good, "model": faulty, "stream": True}},
        {"content": b"{"},
        {"content": b""},
        {"content": b'{"model":"a","model":"b"}'},
        {"content": b"\xff"},
        {"content": b" " * (3 * 1024 * 1024) + b"{}"},
        {"content": b" " * (32 * 1024 * 1024 + 1)},
        {"content": b"{}", "headers": {**key, "Content-Type": "text/plain"}},
        {"content": b"{}", "headers": {**key, "Content-Encoding": "gzip"}},
        {"json": good, "headers": {}},
        {"json": good, "headers": {"Authorization": "Bearer sk-ml-wrong"}},
        {"json": good, "headers": {**key, "x-api-key": "sk-ml-other"}},
        {"json": good, "headers": {"x-api-key": narrow}},
    ]
    gets = [
        "/v1/models",
        f"/v1/models/{model}",
        "/v1/models/no/such",
        "/v1/generation",
        "/v1/generation?id=" + "0" * 32,
    ]
    paths = [*gets, "/v1/generation?" + "a&" * 1001, "/v1/nope", "/v1/", "/api/v1/models", "/api/v1/nope", "/healthz"]
    methods = ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"]
    return [
        *({**chat, **body} for body in bodies),
        *({"method": method, "url": path, "headers": key} for path in paths for method in methods),
        *({"method": method, "url": "/v1/chat/completions", "headers": key} for method in methods),
        *({"method": "GET", "url": path, "headers": {}} for path in paths),
        *(
            {"method": "POST", "url": path, "headers": key, "json": {}}
            for path in ("/v1/models", "/v1/nope", "/healthz")
        ),
    ]


def seen(response: httpx.Response) -> tuple[int, str, dict[str, str]]:
    """What of an answer must be the same."""
    assert re.fullmatch(r"[0-9a-f]{32}", response.headers["x-request-id"])
    masked = re.sub(r'"[0-9a-f]{32}"', '"ID"', response.text)
    masked = re.sub(r'"created":[0-9]+', '"created":0', masked)
    headers = {name: value for name, value in response.headers.items() if name not in OTHER | MIDDLEWARE}
    headers["x-generation-id"] = str("x-generation-id" in response.headers)
    return response.status_code, masked, headers


def test_both_handlers_answer_alike(
    gateway: Gateway, stock: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = make_provider(simulated.base_url)
    model = make_model(provider, "sim-small?tokens=5&prompt=7").slug
    faulty = make_model(provider, "sim-small?status=500").slug  # too few of them to make the offer rest
    _, narrow = make_key(alice.project, allowed_endpoints=["models"], allowed_models=[model])
    synchronize(gateway, stock)
    requests = corpus(alice, narrow, model, faulty)
    answers = [seen(gateway.client.request(**request)) for request in requests]
    assert {status for status, _, _ in answers} == {200, 204, 400, 401, 403, 404, 405, 413, 415, 502}
    for request, answer in zip(requests, answers, strict=True):
        assert seen(stock.client.request(**request)) == answer, {**request, "content": None}


def test_the_first_part_of_a_stream_comes_before_the_last_is_made(
    gateway: Gateway, stock: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=5&hold=3").slug
    synchronize(gateway, stock)
    body = {"model": model, "messages": HI, "stream": True}
    for server in (gateway, stock):
        with server.client.stream(
            "POST", "/v1/chat/completions", json=body, headers={"x-api-key": alice.secret}
        ) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            simulated.until(waiting=1)
            simulated.release()
            assert list(lines)[-2] == "data: [DONE]"
