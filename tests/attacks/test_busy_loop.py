"""What one tenant sends keeps no other tenant waiting: bodies that are hard to parse, and plans that are long."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from routing.models import Model, Offer
from tests.attacks.neighbours import Victim, holds
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.raw import dial, head, post
from tests.stage.shelf import make_model, make_provider, make_tariff

MIB = 1 << 20
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def victim(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> Victim:
    """Alice, who pays."""
    slug = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=5").slug
    synchronize(gateway)
    return Victim(gateway, alice.secret, slug)


def text(inside: bytes, count: int) -> bytes:
    """A message whose text is long."""
    return b'{"model":"none","messages":[{"role":"user","content":"' + inside * count + b'"}]}'


def many(what: str, count: int = 45_000) -> bytes:
    """A body with many of something."""
    body: dict[str, Any] = {"model": "none", "messages": HI}
    match what:
        case "fields":
            body |= {f"f{number:05}": 1 for number in range(count)}
        case "routing fields":
            body["provider"] = {f"f{number:05}": 1 for number in range(count)}
        case "messages":
            body["messages"] = [{"role": "user", "content": "a"}] * (count // 3)
        case "parts":
            body["messages"] = [{"role": "user", "content": [{"type": "text", "text": "a"}] * (count // 3)}]
        case "values":
            body["messages"] = [{}] * 500_000
    return json.dumps(body).encode()


# Made when they are sent: together they are large.
HARD: dict[str, Callable[[], bytes]] = {
    "text without an end": lambda: b'{"model":"' + b"w" * (30 * MIB),
    "bytes that are no text": lambda: b'{"model":"' + b"w" * (30 * MIB) + b'\xff"}',
    "blanks": lambda: b" " * (30 * MIB),
    "escapes": lambda: text(b"\\n", 15 * MIB),
    "quotes and commas": lambda: text(b',\\"', 10 * MIB),
    **{what: partial(many, what) for what in ("fields", "routing fields", "messages", "parts", "values")},
}


@pytest.mark.parametrize("name", HARD)
def test_a_body_that_is_hard_to_parse_keeps_nobody_waiting(
    gateway: Gateway, victim: Victim, charlie: Tenant, name: str
) -> None:
    request = post(charlie.secret, HARD[name]())

    def attack() -> None:
        with dial(gateway) as line:
            line.send(request)
            assert line.answer().status in (400, 404)

    attack()
    holds(victim, *[attack] * 4)


@pytest.mark.parametrize(
    ("name", "code"),
    [("fields", "invalid_value"), ("values", "invalid_json"), ("routing fields", "invalid_value")],
)
def test_more_than_any_request_needs_is_refused(gateway: Gateway, alice: Tenant, name: str, code: str) -> None:
    with dial(gateway) as line:
        line.send(post(alice.secret, HARD[name]()))
        answer = line.answer()
    assert (answer.status, answer.code) == (400, code)


def test_a_long_body_arrives_whole(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    """It is parsed in another process and written in pieces: not a character is lost on the way."""
    provider = make_provider(simulated.base_url)
    slug = make_model(provider, "sim-small?echo", max_output=1_000_000).slug  # the answer says all that was asked
    synchronize(gateway)
    said = 'é"\\\n\u2028😀' * 300_000
    answer = gateway.chat(alice.secret, slug, messages=[{"role": "user", "content": said}], metadata={"a": "b"})
    sent = json.loads(answer.json()["choices"][0]["message"]["content"])
    assert sent["messages"] == [{"role": "user", "content": said}]
    assert sent["metadata"] == {"a": "b"}


@pytest.fixture
def crowd(gateway: Gateway, simulated: SimulatedProvider) -> Iterator[None]:
    """1,083 models to choose among."""
    provider, tariff = make_provider(simulated.base_url), make_tariff(input="1", output="2")
    models = Model.objects.bulk_create(
        Model(slug=f"crowd/model-{number:04}", name="Model", quality=number % 100) for number in range(1083)
    )
    offers = Offer.objects.bulk_create(
        Offer(model=model, provider=provider, upstream_model="sim-small", tariff=tariff) for model in models
    )
    synchronize(gateway)
    yield
    Offer.objects.filter(id__in=[offer.id for offer in offers]).delete()
    Model.objects.filter(slug__startswith="crowd/").delete()
    synchronize(gateway)


def routes(gateway: Gateway, secret: str) -> Callable[[], None]:
    """Asks where a request would go that leaves the model to the gateway."""
    body = json.dumps({"model": "auto", "messages": HI}).encode()
    request = head("POST /v1/route", f"Authorization: Bearer {secret}", f"Content-Length: {len(body)}") + body

    def ask() -> None:
        with dial(gateway) as line:
            for _ in range(20):
                line.send(request)
                assert line.answer().status in (200, 429)

    return ask


def test_a_choice_among_a_thousand_models_keeps_nobody_waiting(
    gateway: Gateway, victim: Victim, charlie: Tenant, crowd: None
) -> None:
    holds(victim, *[routes(gateway, charlie.secret) for _ in range(8)])


def test_of_a_thousand_models_the_best_are_weighed(gateway: Gateway, alice: Tenant, crowd: None) -> None:
    body = {"model": "auto", "messages": HI, "model_routing_config": {"preference": "performance"}}
    answer = gateway.client.post("/v1/route", json=body, headers={"Authorization": f"Bearer {alice.secret}"})
    assert answer.status_code == 200
    candidates = answer.json()["x_gateway_plan"]["candidates"]
    assert {one["model"] for one in candidates} == {f"crowd/model-{99 + 100 * number:04}" for number in range(8)}
