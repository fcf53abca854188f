"""Two gateway processes, one provider that fails: what one of them finds out, both go by."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, pairwise
from typing import Any

import pytest

from routing.models import Ejection, Offer
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.shelf import add_offer, make_model, make_provider

COOLDOWN = 2.0


@pytest.fixture(scope="module")
def pair(
    database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Gateway]]:
    """Two processes on one database."""
    with running(tmp_path_factory.mktemp("pair"), 2, EGRESS_ALLOW=simulated.url) as gateways:
        yield gateways


class Shaky:
    """A model whose first offer is told how to behave and whose second one is well."""

    def __init__(self, simulated: SimulatedProvider, pair: list[Gateway], options: str, **provider: Any) -> None:
        self._simulated = simulated
        self.name = f"shaky-{secrets.token_hex(4)}"
        self.behave(options)
        provider = {"failure_threshold": 3, "cooldown": COOLDOWN, **provider}
        model = make_model(make_provider(simulated.base_url, **provider), self.name)
        add_offer(model, make_provider(simulated.base_url), "sim-small?tokens=1", priority=1)
        self.model = model.slug
        self.offer = Offer.objects.get(model=model, priority=0)
        synchronize(*pair)

    def behave(self, options: str) -> None:
        """What it does from now on."""
        self._simulated.behave(self.name, options)

    def calls(self) -> list[float]:
        """When it was called, in seconds since 1970."""
        return [
            line["at"] for line in self._simulated.lines() if (line["event"], line["model"]) == ("start", self.name)
        ]

    def rests(self) -> list[Ejection]:
        """Its history, the oldest first."""
        return list(Ejection.objects.filter(offer=self.offer).order_by("opened_at"))


def test_a_provider_that_is_always_rate_limited_is_called_once_a_cool_down_by_both_together(
    pair: list[Gateway], alice: Tenant, simulated: SimulatedProvider
) -> None:
    shaky = Shaky(simulated, pair, "status=429")
    turns = cycle(pair)
    statuses = set()

    def called_four_times() -> bool:
        statuses.add(next(turns).chat(alice.secret, shaky.model).status_code)
        return len(shaky.calls()) >= 4

    until(called_four_times, 40, pause=0.1)
    assert statuses == {200}
    calls = shaky.calls()
    assert all(later - earlier >= COOLDOWN for earlier, later in pairwise(calls))
    (rest,) = shaky.rests()
    assert (rest.cause, rest.closed_at) == ("rate_limited", None)


def test_failures_in_one_process_rest_the_offer_in_both_and_one_success_ends_it(
    pair: list[Gateway], alice: Tenant, simulated: SimulatedProvider
) -> None:
    shaky = Shaky(simulated, pair, "status=500", cooldown=300.0)
    for _ in range(3):
        assert pair[0].chat(alice.secret, shaky.model).status_code == 200
    until(lambda: len(shaky.rests()) == 1)
    synchronize(*pair)
    for gateway in pair * 3:
        assert gateway.chat(alice.secret, shaky.model).status_code == 200
    assert len(shaky.calls()) == 3
    shaky.behave("tokens=1")
    # An operator who knows that it is mended need not wait.
    Ejection.objects.filter(offer=shaky.offer).update(closed_at=shaky.rests()[0].until, closed_by="operator")
    synchronize(*pair)
    for gateway in pair * 2:
        assert gateway.chat(alice.secret, shaky.model).status_code == 200
    until(lambda: len(shaky.calls()) == 3 + 4)


def test_one_request_of_both_processes_is_the_probe(
    pair: list[Gateway], alice: Tenant, simulated: SimulatedProvider
) -> None:
    shaky = Shaky(simulated, pair, "status=500", failure_threshold=1)
    assert pair[0].chat(alice.secret, shaky.model).status_code == 200
    until(lambda: len(shaky.rests()) == 1)
    synchronize(*pair)
    shaky.behave("hold")
    with ThreadPoolExecutor(8) as pool:
        turns = cycle(pair)
        answers = []

        def probed() -> bool:
            answers.append(pool.submit(next(turns).chat, alice.secret, shaky.model))
            return len(shaky.calls()) == 2

        until(probed, 30, pause=0.1)
        others = [pool.submit(gateway.chat, alice.secret, shaky.model) for gateway in pair * 3]
        assert [other.result().status_code for other in others] == [200] * 6
        assert len(shaky.calls()) == 2
        shaky.behave("tokens=1")
        simulated.release()
        assert {answer.result().status_code for answer in answers} == {200}
    until(lambda: [rest.closed_by for rest in shaky.rests()] == ["process"])
    synchronize(*pair)
    for gateway in pair:
        assert gateway.chat(alice.secret, shaky.model).status_code == 200
    until(lambda: len(shaky.calls()) == 4)
