"""Log lines: each has its time and level, each request one of its own, and nobody's words or secrets are in any."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.process.access_log import CHOICES
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.shelf import make_model, make_provider


@pytest.fixture(scope="module")
def telling(
    database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway that writes a line for each request."""
    with running(tmp_path_factory.mktemp("telling"), EGRESS_ALLOW=simulated.url, ACCESS_LOG="on") as (process,):
        yield process


def lines(gateway: Gateway) -> list[dict[str, Any]]:
    """All its lines; each is one JSON object."""
    return [json.loads(line) for line in gateway.log.read_text().splitlines()]


def line_of(gateway: Gateway, request_id: str) -> dict[str, Any]:
    """The one line of a request, which comes after its answer."""
    until(lambda: request_id in gateway.log.read_text())
    (line,) = (line for line in lines(gateway) if line.get("id") == request_id)
    return line


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_has_a_line(telling: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool) -> None:
    slug = make_model(make_provider(simulated.base_url), "sim-small?text=CANARY-ANSWER&prompt=5").slug
    synchronize(telling)
    answer = telling.chat(
        alice.secret, slug, messages=[{"role": "user", "content": "CANARY-PROMPT"}], user="CANARY-USER", stream=stream
    )
    line = line_of(telling, answer.headers["x-request-id"])
    assert abs((datetime.now(UTC) - datetime.fromisoformat(line.pop("timestamp"))).total_seconds()) < 60
    assert 0 <= line.pop("ms") < 60_000
    assert line == {
        "event": "request",
        "level": "info",
        "logger": "meterline.access",
        "id": answer.headers["x-request-id"],
        "path": "/v1/chat/completions",
        "status": 200,
        "organization": alice.organization.slug,
        "key": str(alice.key.pk),
        "key_name": alice.key.name,
        "generation": answer.headers["x-generation-id"],
        "model": slug,
        "outcome": "completed",
        "prompt_tokens": 5,
        "completion_tokens": 1,
    }
    log = telling.log.read_text()
    assert "CANARY" not in log
    assert alice.secret not in log


def test_a_refusal_has_a_line(telling: Gateway, alice: Tenant) -> None:
    unknown = telling.chat("sk-ml-" + "x" * 36, "none")
    line = line_of(telling, unknown.headers["x-request-id"])
    assert line["status"] == 401
    assert "key" not in line
    refused = telling.chat(alice.secret, "no/such\n")
    line = line_of(telling, refused.headers["x-request-id"])
    assert (line["status"], line["key"]) == (400, str(alice.key.pk))
    assert "model" not in line


def test_a_fault_has_a_line_with_level_and_logger(
    telling: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?fault=bad_status_line")
    synchronize(telling)
    id = telling.chat(alice.secret, model.slug).headers["x-generation-id"]
    (line,) = (line for line in lines(telling) if line["event"].startswith(id))
    assert (line["level"], line["logger"]) == ("warning", "gateway.generation.attempt")
    assert datetime.fromisoformat(line["timestamp"]).tzinfo is not None
    assert len(line["event"]) < 400


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"ACCESS_LOG": "off"}, range(1)),
        ({"ACCESS_LOG": "sampled"}, range(1, 3)),
        ({"ACCESS_LOG": "off", "LOG_LEVEL": "debug"}, range(100, 101)),
    ],
)
def test_how_many_are_told_is_a_setting(tmp_path: Path, settings: dict[str, str], expected: range) -> None:
    with running(tmp_path, 1, **settings) as (gateway,):
        for _ in range(100):
            gateway.client.get("/v1/models")
    told = [line for line in lines(gateway) if line.get("path") == "/v1/models"]
    assert len(told) in expected
    assert settings["ACCESS_LOG"] in CHOICES
