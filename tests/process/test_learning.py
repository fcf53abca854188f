"""What one gateway process measures the others learn: a real worker, real processes, real sockets."""

import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from billing.models import Attempt, Mark
from routing.models import Model, Provider
from tests.console.browser import console, context_of
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.shelf import add_offer, make_model, make_provider
from tests.stage.worker import working

pytestmark = pytest.mark.backbone

ENOUGH = 15  # calls after which an offer is known
ASKED = 20
# A known slower offer is looked at again once in a hundred requests.
SECOND_LOOKS = 3


@pytest.fixture
def slow(simulated: SimulatedProvider) -> Provider:
    """A provider."""
    return make_provider(simulated.base_url)


@pytest.fixture
def fast(simulated: SimulatedProvider) -> Provider:
    """Another one."""
    return make_provider(simulated.base_url)


@pytest.fixture
def model(slow: Provider, fast: Provider) -> Model:
    """A model that both offer, one of them two hundred milliseconds later."""
    made = make_model(slow, f"sim-{secrets.token_hex(4)}?tokens=5&first=200ms")
    add_offer(made, fast, f"sim-{secrets.token_hex(4)}?tokens=5")
    return made


@pytest.fixture(scope="module")
def processes(
    database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Gateway]]:
    """Two gateway processes."""
    with running(tmp_path_factory.mktemp("gateways"), 2, EGRESS_ALLOW=simulated.url) as started:
        yield started


def learnt(gateway: Gateway) -> float:
    """When what the process has learnt was published; 0 for nothing."""
    found = re.search(r"^meterline_statistics_timestamp_seconds (\S+)$", gateway.client.get("/metrics").text, re.M)
    assert found is not None
    return float(found[1])


def attempts(provider: Provider) -> int:
    """Dials of a provider."""
    return Attempt.objects.filter(provider=provider.slug).count()


def measured(gateway: Gateway, tenant: Tenant, model: Model, *providers: Provider) -> None:
    """Lets a process call providers until it knows them."""
    for provider in providers:
        for _ in range(ENOUGH):
            assert gateway.chat(tenant.secret, f"{model.slug}:{provider.slug}", stream=True).status_code == 200
        assert attempts(provider) == ENOUGH


def ask(gateway: Gateway, tenant: Tenant, model: Model) -> None:
    """Leaves the choice to the process, many times."""
    for _ in range(ASKED):
        assert gateway.chat(tenant.secret, model.slug, stream=True).status_code == 200


def test_the_others_leave_a_slow_offer_that_one_has_measured(
    processes: list[Gateway], alice: Tenant, model: Model, slow: Provider, fast: Provider,
    simulated: SimulatedProvider, tmp_path: Path,
) -> None:  # fmt: skip
    """Also with the worker stopped; then the board says how old they are."""
    one, other = processes
    synchronize(one, other)
    measured(one, alice, model, slow, fast)
    before = datetime.now(UTC)
    with working(tmp_path) as worker:
        worker.run("routing.roll_up")
    assert worker.process.poll() is not None
    until(lambda: learnt(other) >= before.timestamp())
    ask(other, alice, model)
    assert attempts(slow) - ENOUGH <= SECOND_LOOKS
    assert attempts(slow) + attempts(fast) == 2 * ENOUGH + ASKED

    with running(tmp_path / "fresh", EGRESS_ALLOW=simulated.url) as (fresh,):
        until(lambda: learnt(fresh) >= before.timestamp())
        synchronize(fresh)
        known = attempts(slow)
        ask(fresh, alice, model)
        assert attempts(slow) - known <= SECOND_LOOKS

    board = console().get("/console/health/")
    assert context_of(board)["age"]["late"] is False
    assert re.fullmatch(r"Statistics as of \d+ s ago\.", context_of(board)["age"]["text"])
    # The clock of the worker's last run is turned back instead of waiting.
    Mark.objects.filter(name="offers:1h").update(until=before - timedelta(hours=3))
    age = context_of(console().get("/console/health/"))["age"]
    assert age["late"] is True and age["text"].startswith("Statistics as of 3 h")
    known = attempts(slow)
    ask(other, alice, model)
    assert attempts(slow) - known <= SECOND_LOOKS


def test_without_statistics_a_process_tries_both(
    processes: list[Gateway], alice: Tenant, model: Model, slow: Provider, fast: Provider
) -> None:
    """Else the test above would prove nothing."""
    synchronize(*processes)
    for _ in range(3):  # chance decides which of two unknown ones is asked
        ask(processes[0], alice, model)
        if min(attempts(slow), attempts(fast)) > SECOND_LOOKS:
            break
    assert attempts(slow) > SECOND_LOOKS and attempts(fast) > SECOND_LOOKS
