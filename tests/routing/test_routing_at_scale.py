"""Shares, outages and unsteady providers, over many requests and several gateway processes."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from billing.models import Attempt, Usage
from routing.models import Model, Policy
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider

REQUESTS = int(os.environ.get("FAULT_REQUESTS", "300"))
CLIENTS = 8


@pytest.fixture(scope="module")
def four(
    database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Gateway]]:
    """Four gateway processes."""
    with running(tmp_path_factory.mktemp("four"), 4, EGRESS_ALLOW=simulated.url) as gateways:
        yield gateways


def make_offers(tenant: Tenant, simulated: SimulatedProvider, *options: str, **fields: Any) -> tuple[Model, list[str]]:
    """A model with an offer a provider, by priority, and the names that the provider's bill knows them by."""
    names = [f"{tenant.organization.slug}-{number}?{option}" for number, option in enumerate(options)]
    model = make_model(make_provider(simulated.base_url, "sk-upstream", **fields), names[0])
    for priority, name in enumerate(names[1:], 1):
        add_offer(model, make_provider(simulated.base_url, "sk-upstream", **fields), name, priority=priority)
    return model, names


def send(gateways: list[Gateway], secret: str, model: str, count: int, stream: Callable[[int], bool]) -> list[int]:
    """The statuses of `count` requests by several clients, each of whom goes from gateway to gateway."""
    statuses: list[int] = []
    numbers = iter(range(count))
    lock = threading.Lock()

    def client() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            answer = gateways[number % len(gateways)].chat(secret, model, stream=stream(number))
            whole = answer.text.endswith("data: [DONE]\n\n") if stream(number) else bool(answer.json())
            with lock:
                statuses.append(answer.status_code if whole or answer.status_code != 200 else 0)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def dialled(simulated: SimulatedProvider, names: list[str]) -> list[int]:
    """How often each was asked."""
    asked = Counter(line["model"] for line in simulated.lines() if line["event"] == "start")
    return [asked[name] for name in names]


@pytest.mark.timeout(600)
def test_a_rotation_gives_each_provider_its_share_whichever_process_is_asked(
    four: list[Gateway], alice: Tenant, simulated: SimulatedProvider
) -> None:
    model, names = make_offers(alice, simulated, *3 * ["tokens=1"])
    Policy.objects.create(level="project", project=alice.project, strategy="round_robin")
    synchronize(*four)
    count = min(REQUESTS, 3000)
    assert set(send(four, alice.secret, model.slug, count, lambda number: False)) == {200}
    shares = [asked / count for asked in dialled(simulated, names)]
    assert sum(shares) == pytest.approx(1)
    assert all(abs(share - 1 / 3) <= 0.01 for share in shares), shares


@pytest.mark.timeout(600)
def test_a_provider_that_fails_midway_fails_no_request(
    four: list[Gateway], alice: Tenant, simulated: SimulatedProvider
) -> None:
    model, names = make_offers(alice, simulated, "tokens=2", "tokens=2", cooldown=1)
    failing = names[0].partition("?")[0]
    synchronize(*four)
    stop = threading.Timer(1.0, simulated.behave, [failing, "status=503"])
    stop.start()
    try:
        statuses = Counter(send(four, alice.secret, model.slug, REQUESTS, lambda number: number % 2 == 0))
        started = time.monotonic()
        while simulated.state()["requests"].get(names[0]) and not stop.finished.is_set():
            assert time.monotonic() - started < 10
        statuses.update(send(four, alice.secret, model.slug, 100, lambda number: number % 2 == 0))
    finally:
        stop.join()
        simulated.behave(failing, "")
    assert statuses == {200: REQUESTS + 100}
    rows = Usage.objects.filter(organization=alice.organization.id)
    assert Attempt.objects.filter(generation__in=rows.values("id"), status="failed").exists()


@pytest.mark.timeout(600)
def test_a_provider_that_comes_and_goes_meets_no_wave_of_retries(
    four: list[Gateway], alice: Tenant, simulated: SimulatedProvider
) -> None:
    model, names = make_offers(alice, simulated, "status=503&flap=2s&tokens=1", "tokens=1", cooldown=1)
    synchronize(*four)
    began, sent, pace = time.monotonic(), 0, threading.Event()
    while time.monotonic() - began < 8:
        statuses = send(four, alice.secret, model.slug, 80, lambda number: False)
        assert set(statuses) == {200}
        sent += len(statuses)
        pace.wait(0.4)  # seconds: all that the machine can send says no more, and takes it from others
    first, second = dialled(simulated, names)
    assert first > 0
    assert first + second <= 1.1 * sent


def test_what_one_process_was_told_to_leave_alone_all_leave_alone(
    four: list[Gateway], alice: Tenant, simulated: SimulatedProvider
) -> None:
    model, names = make_offers(alice, simulated, "status=429", "tokens=1", cooldown=2)
    synchronize(*four)
    began, number, pace = time.monotonic(), 0, threading.Event()
    while (passed := time.monotonic() - began) < 7:
        assert four[number % 4].chat(alice.secret, model.slug).status_code == 200
        number += 1
        pace.wait(0.2)  # seconds, so that the processes can hear of each other
    first, second = dialled(simulated, names)
    assert 2 <= first <= 1 + passed / 2  # at once, and then after each rest
    assert second == number


def test_an_outage_that_no_breaker_ends_is_met_with_so_many_retries_and_no_more(
    database: None, alice: Tenant, simulated: SimulatedProvider, tmp_path: Path
) -> None:
    model, names = make_offers(alice, simulated, "status=503", "tokens=1")
    model.offers.filter(priority=0).update(forced="closed")
    with running(tmp_path, EGRESS_ALLOW=simulated.url) as (gateway,):
        synchronize(gateway)
        began = time.monotonic()
        statuses = [gateway.chat(alice.secret, model.slug).status_code for _ in range(80)]
        assert time.monotonic() - began < 10, "too slow to say anything of ten seconds"
    assert statuses == 64 * [200] + 16 * [503]
    assert dialled(simulated, names) == [80, 64]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_provider_of_which_one_call_in_five_is_thirty_times_slower_is_left(
    four: list[Gateway], alice: Tenant, simulated: SimulatedProvider
) -> None:
    gray = "tokens=1&first=50ms&fault=slow@1500ms&fail_every=5"
    model, names = make_offers(alice, simulated, gray, "tokens=1&first=50ms")
    Policy.objects.create(level="project", project=alice.project, strategy="least_latency")
    synchronize(*four)
    assert set(send(four, alice.secret, model.slug, 400, lambda number: True)) == {200}
    before = dialled(simulated, names)
    count = 400
    assert set(send(four, alice.secret, model.slug, count, lambda number: True)) == {200}
    met = dialled(simulated, names)[0] - before[0]
    assert before[0] > 0
    assert met / 5 <= 0.01 * count  # fewer than one answer in a hundred is slow
