"""/healthz, /readyz and /metrics: what an orchestrator and an operator are told, and nothing about tenants."""

import re
from collections.abc import Iterator

import pytest

from billing.backbone.connections import Connections
from gateway.process.database import Pools
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import app_url, database
from tests.stage.cast import Tenant, make_tenant
from tests.stage.product import Gateway, free_port, launch, synchronize, until
from tests.stage.shelf import make_model, make_provider


@pytest.fixture(scope="module")
def orphan(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway whose database is away."""
    away = f"postgres://nobody:pw@127.0.0.1:{free_port()}/away"
    gateway = launch(tmp_path_factory.mktemp("orphan"), DATABASE_URL=away, DATABASE_APP_URL=away)
    try:
        until(lambda: gateway.readiness() != {}, 30)
        yield gateway
    finally:
        gateway.stop()


def metrics(gateway: Gateway) -> dict[str, float]:
    """Every sample, by its name and labels as written."""
    response = gateway.client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    samples = (line.rpartition(" ") for line in response.text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def test_a_gateway_that_can_work_says_so(gateway: Gateway) -> None:
    assert gateway.client.get("/healthz").json() == {"status": "ok"}
    ready = gateway.client.get("/readyz")
    assert ready.status_code == 200
    state = ready.json()
    assert abs(state.pop("clock_ahead_seconds")) < 60  # of the database's, or it would take no work
    assert {**state, "configuration": 0} == {"status": "ready", "missing": [], "configuration": 0, "spooled": 0}


def test_readiness_follows_the_configuration(gateway: Gateway) -> None:
    before = gateway.readiness()["configuration"]
    make_tenant("dora")
    until(lambda: gateway.readiness()["configuration"] > before, 5)


def test_a_gateway_without_its_database_is_alive_and_not_ready(orphan: Gateway, alice: Tenant) -> None:
    assert orphan.client.get("/healthz").status_code == 200
    ready = orphan.client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "unready")
    assert ready.json()["missing"] == ["configuration", "database"]
    refused = orphan.chat(alice.secret, "any/model")
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "service_unavailable"
    assert refused.headers["retry-after"] == "1"
    # Who has no key at all is told so, database or not.
    assert orphan.client.get("/v1/models").status_code == 401


def test_what_happens_is_counted(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    provider = make_provider(simulated.base_url)
    model = make_model(provider, "sim-small?tokens=7&prompt=11").slug
    broken = make_model(provider, "sim-small?fault=garbage").slug
    synchronize(gateway)
    before = metrics(gateway)
    assert gateway.chat(alice.secret, model, stream=True).status_code == 200
    assert gateway.chat(alice.secret, broken).status_code == 502
    assert gateway.client.get("/v1/models").status_code == 401
    after = metrics(gateway)
    grown = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
    assert grown['meterline_answers_total{status="502"}'] == 1
    assert grown['meterline_answers_total{status="401"}'] == 1
    assert grown['meterline_generations_total{status="completed"}'] == 1
    assert grown['meterline_generations_total{status="failed"}'] == 1
    assert grown['meterline_tokens_total{direction="prompt"}'] == 11
    assert grown['meterline_tokens_total{direction="completion"}'] == 7
    fault = f'meterline_upstream_faults_total{{fault="invalid_response",provider="{provider.slug}"}}'
    assert grown[fault] == 1
    assert grown[f'meterline_first_token_seconds_count{{provider="{provider.slug}"}}'] == 1
    assert after["meterline_open_calls"] == 0


def test_metrics_name_no_tenant_and_nothing_a_client_wrote(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url)).slug
    synchronize(gateway)
    assert gateway.chat(alice.secret, model, user="canary-user", metadata={"a": "canary-label"}).status_code == 200
    assert gateway.chat(alice.secret, "canary/model").status_code == 404
    assert gateway.client.get("/v1/canary-path").status_code == 404
    text = gateway.client.get("/metrics").text
    for word in ("canary", alice.organization.slug, str(alice.key.id), alice.secret[-8:]):
        assert word not in text
    labels = set(re.findall(r'(\w+)="', text))
    assert labels <= {"status", "provider", "fault", "direction", "model", "le", "generation", "implementation"} | {
        *("major", "minor", "patchlevel", "version"),
        *("outcome", "pool", "reason", "state"),  # words of ours, a handful each
    }


def test_connections_wanted_and_allowed_are_told(gateway: Gateway) -> None:
    found = metrics(gateway)
    wanted, allowed = (found[f"meterline_database_connections_{name}"] for name in ("wanted", "allowed"))
    own = Pools(app_url(), Connections(app_url())).most
    assert wanted >= own and wanted % own == 0  # as many for each process that lives
    role = "select rolconnlimit from pg_roles where rolname = session_user"
    with database(app_url()) as app:
        ((limit,),) = app.execute(role).fetchall()
        ((most,),) = app.execute("select current_setting('max_connections')::integer").fetchall()
    assert allowed == limit < most


def test_a_transaction_that_stays_open_is_told(gateway: Gateway) -> None:
    name = "meterline_database_oldest_transaction_seconds"
    with database(app_url()) as analyst:
        analyst.execute("begin isolation level repeatable read")
        analyst.execute("select 1")
        until(lambda: metrics(gateway)[name] > 1, pause=0.1)
        analyst.execute("rollback")
    until(lambda: metrics(gateway)[name] < 1, pause=0.1)
