"""Idempotency-Key: one answer, one call of the provider and one charge, however often a request is sent."""

import json
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from accounts.models import ApiKey
from billing.models import Budget, Hold, KeptAnswer, KeptShare, Limit, Usage
from billing.tasks import prune
from routing.models import Model
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, database, owner_url
from tests.stage.cast import NOBODYS, Tenant, make_key
from tests.stage.clock import set_clock
from tests.stage.fleet import fleet as fleet
from tests.stage.gate import gate
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.protocols import CONTENTS, HI, Provider
from tests.stage.shelf import make_model, make_provider

CHAT = "/v1/chat/completions"


def word() -> str:
    """A fresh idempotency key."""
    return f"order-{secrets.token_hex(8)}"


def send(
    gateway: Gateway, tenant: Tenant, body: dict[str, Any], key: str, path: str = CHAT, secret: str = ""
) -> httpx.Response:
    """One POST under an idempotency key."""
    headers = {"Authorization": f"Bearer {secret or tenant.secret}", "Idempotency-Key": key}
    return gateway.client.post(path, json=body, headers=headers)


def chat(model: Model, **more: Any) -> dict[str, Any]:
    """The body of a chat completion."""
    return {"model": model.slug, "messages": HI, **more}


@pytest.fixture
def model(simulated: SimulatedProvider) -> Model:
    """A model of its own at the simulated provider."""
    return make_model(make_provider(simulated.base_url), f"kept-{secrets.token_hex(4)}")


def another(simulated: SimulatedProvider, says: str) -> Model:
    """A model that behaves so."""
    return make_model(make_provider(simulated.base_url), f"kept-{secrets.token_hex(4)}?{says}")


def calls(simulated: SimulatedProvider, model: Model) -> int:
    """How often the provider was asked for the model."""
    asked = model.offers.get().upstream_model
    return sum(line["model"] == asked for line in simulated.lines() if line["event"] == "start")


def one_charge(tenant: Tenant) -> Usage:
    """The one usage row there is; the books agree with it, and nothing is held."""
    until(lambda: not Hold.objects.filter(organization=tenant.organization.pk).exists())
    row = Usage.objects.get(organization=tenant.organization.pk)
    found = books(tenant.organization)
    assert found.differences() == []
    return row


def replayed(answer: httpx.Response) -> bool:
    """Whether an answer says that it is one again."""
    return answer.headers.get("idempotent-replayed") == "true"


def same(first: httpx.Response, again: httpx.Response) -> bool:
    """Whether one is the other's replay, byte for byte, under the headers that matter."""
    names = ("content-type", "x-generation-id", "x-gateway-ignored-params", "cache-control")
    assert replayed(again) and not replayed(first)
    assert [first.headers.get(name) for name in names] == [again.headers.get(name) for name in names]
    return (first.status_code, first.content) == (again.status_code, again.content)


def test_a_hundred_twins_over_four_processes_are_one_call_and_one_charge(
    fleet: list[Gateway], simulated: SimulatedProvider, alice: Tenant, model: Model
) -> None:
    synchronize(*fleet)
    key, together = word(), threading.Barrier(100)

    def twin(number: int) -> httpx.Response:
        together.wait()
        while True:
            answer = send(fleet[number % 4], alice, chat(model), key)
            if answer.status_code != 409:
                return answer
            assert answer.json()["error"]["code"] == "idempotency_key_in_use"
            assert answer.headers["retry-after"] == "1"

    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(twin, range(100)))
    (first,) = [answer for answer in answers if not replayed(answer)]
    assert first.status_code == 200
    assert all(same(first, answer) for answer in answers if answer is not first)
    assert calls(simulated, model) == 1
    row = one_charge(alice)
    assert row.pk.hex == first.headers["x-generation-id"] and row.charge and row.charge > 0
