"""The parameters of a request: the exact values that are refused, lowered or passed on, and what is named then."""

import json
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Attempt, Hold, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.raw import chat, dial
from tests.stage.shelf import make_model, make_provider


@pytest.fixture
def model(gateway: Gateway, simulated: SimulatedProvider) -> str:
    """A model that answers at once."""
    slug = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=5").slug
    synchronize(gateway)
    return slug


@pytest.fixture
def echo(gateway: Gateway, simulated: SimulatedProvider) -> str:
    """A model that says the body it got; its answers are at most 100 tokens."""
    slug = make_model(make_provider(simulated.base_url), "sim-small?echo", max_output=100).slug
    synchronize(gateway)
    return slug


NUMBERS: list[tuple[Any, str]] = [
    *((10**12, "invalid_value"), (-1, "invalid_value"), (0, "invalid_value"), ("10", "invalid_type")),
    *((True, "invalid_type"), (1.5, "invalid_type"), (1.0, "invalid_type"), ([5], "invalid_type")),
]
ELSEWHERE = ("api_base", "base_url", "api_key", "apiKey", "headers", "extra_headers", "organization", "proxies")
NO_SWITCH: list[Any] = ["yes", "true", 1, 0, []]
WRONG: list[tuple[dict[str, Any], str, str]] = [
    *(({name: value}, name, code) for name in ("max_tokens", "max_completion_tokens", "n") for value, code in NUMBERS),
    ({"n": 1000}, "n", "invalid_value"),
    ({"n": 129}, "n", "invalid_value"),
    *(({"stream": value}, "stream", "invalid_type") for value in NO_SWITCH),
    ({"stream_options": {}}, "stream_options", "unsupported_parameter"),
    ({"stream": True, "stream_options": []}, "stream_options", "invalid_type"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage", "invalid_type"),
    ({"temperature": "1"}, "temperature", "invalid_type"),
    ({"temperature": True}, "temperature", "invalid_type"),
    ({"messages": None}, "messages", "missing_required_parameter"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": {}}, "messages", "invalid_type"),
    ({"messages": [None]}, "messages[0]", "invalid_value"),
    ({"messages": [{"role": "root", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content", "invalid_type"),
    ({"model": None}, "model", "missing_required_parameter"),
    ({"model": 5}, "model", "invalid_type"),
    ({"model": "x" * 300}, "model", "invalid_value"),
    ({"user": 5}, "user", "invalid_type"),
    ({"metadata": {"a": 1}}, "metadata.a", "invalid_type"),
    *(({name: "http://127.0.0.1:1/"}, name, "forbidden_parameter") for name in ELSEWHERE),
    ({"extra_body": {"api_base": "x"}}, "extra_body.api_base", "forbidden_parameter"),
    ({"provider": {"api_key": "x"}}, "provider.api_key", "forbidden_parameter"),
]


def test_a_wrong_parameter_is_named_and_nothing_happens(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, model: str
) -> None:
    before = simulated.state()["requests"], Attempt.objects.count()
    with dial(gateway) as line:
        for fields, param, code in WRONG:
            line.send(chat(alice.secret, **{"model": model, **fields}))
            answer = line.answer()
            error = answer.json["error"]
            assert (answer.status, error["code"], error["param"]) == (400, code, param), fields
            assert (param in error["message"]) or code == "invalid_value", fields
            assert error["type"] == "invalid_request_error"
    assert (simulated.state()["requests"], Attempt.objects.count()) == before
    assert not Hold.objects.filter(key=alice.key.id).exists()
    assert not Usage.objects.filter(organization=alice.organization.id).exists()


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"max_tokens": 7}, {"max_tokens": 7}),
        ({"max_completion_tokens": 7}, {"max_completion_tokens": 7}),
        ({"max_tokens": 9, "max_completion_tokens": 7}, {"max_completion_tokens": 7}),
        ({"max_tokens": 2**31}, {"max_tokens": 100}),
        ({"max_tokens": None}, {}),
        ({}, {}),
    ],
)
def test_a_cap_reaches_the_provider_lowered_to_what_the_model_can_write(
    gateway: Gateway, alice: Tenant, echo: str, fields: dict[str, Any], sent: dict[str, Any]
) -> None:
    answer = gateway.chat(alice.secret, echo, **fields).json()
    said = json.loads(answer["choices"][0]["message"]["content"])
    assert {name: said[name] for name in said if name.startswith("max_")} == sent


@pytest.mark.parametrize("stream", [None, False])
def test_null_is_absent(gateway: Gateway, alice: Tenant, model: str, stream: bool | None) -> None:
    answer = gateway.chat(alice.secret, model, stream=stream, n=None, temperature=None, stop=None, user=None)
    assert answer.json()["object"] == "chat.completion"


def test_the_hold_is_for_the_lowered_cap(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    slug = make_model(make_provider(simulated.base_url), "sim-small?hold=0", max_output=100).slug
    synchronize(gateway)
    with dial(gateway) as line:
        line.send(chat(alice.secret, slug, max_tokens=2**31))
        simulated.until(waiting=1)
        hold = Hold.objects.get(key=alice.key.id)
        assert hold.output_cap == 100
        # 100 tokens at $4 a million, and at most a token a byte of the body at $2.
        assert Decimal("0.0004") < (hold.money or 0) < Decimal("0.001")
        simulated.release()
        assert line.answer().status == 200
