"""Connections to providers that break, and answers that come packed: told and billed as if nothing had been odd."""

import json
from decimal import Decimal

import pytest

from billing.models import Attempt, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("behaviour", "attempts"), [("tokens=2&idle=200ms", [1, 1, 1]), ("tokens=2&fault=keepalive_race", [1, 2, 2])]
)
def test_a_kept_connection_that_the_provider_closes_costs_nobody_an_answer(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, behaviour: str, attempts: list[int], stream: bool
) -> None:
    """Closed while it was kept it is not used; reset by the next request, that is sent once more, and on the books."""
    model = make_model(make_provider(simulated.base_url), f"sim-small?{behaviour}&prompt=77").slug
    synchronize(gateway)
    simulated.reset()
    simulated.until(sockets=0)  # none is kept of another test's, which might end just now
    before = len(simulated.bill())
    for _ in range(3):
        assert gateway.chat(alice.secret, model, stream=stream).status_code == 200
        if "idle" in behaviour:
            simulated.until(sockets=0)
    assert len(simulated.bill()) == before + 3
    rows = Usage.objects.filter(model=model).order_by("pk")
    assert [row.attempts for row in rows] == attempts
    faults = [[tried.fault for tried in Attempt.objects.filter(generation=row.id).order_by("number")] for row in rows]
    assert faults == [["unreachable"] * (count - 1) + [""] for count in attempts]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "new"])
@pytest.mark.parametrize("fault", ["reset_before", "close_before", "reset_headers"])
def test_a_reset_before_the_answer_is_a_plain_error_in_our_own_words(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, fault: str, kept: bool, stream: bool
) -> None:
    provider = make_provider(simulated.base_url)
    model = make_model(provider, f"sim-small?fault={fault}&prompt=78").slug
    sound = make_model(provider).slug
    synchronize(gateway)
    simulated.reset()
    simulated.until(sockets=0)  # no connection is kept
    if kept:
        assert gateway.chat(alice.secret, sound).status_code == 200
    before = len(simulated.bill())
    response = gateway.chat(alice.secret, model, stream=stream)
    assert response.status_code == 502
    error = response.json()["error"]
    assert error["code"] in ("upstream_unreachable", "upstream_truncated")
    assert error["message"] in ("The provider could not be reached.", "The provider's answer broke off.")
    # A kept connection may have ended by itself, so there is another attempt. On a new one, or once a byte of the
    # answer has come, the request may have been carried out: it is not sent again.
    attempts = 2 if kept and fault != "reset_headers" else 1
    assert len(simulated.bill()) - before <= attempts
    usage = Usage.objects.get(model=model)
    assert (usage.attempts, usage.charge) == (attempts, Decimal(0))
    assert Attempt.objects.filter(generation=usage.id).count() == attempts


def test_a_reset_amid_an_answer_is_told_in_the_stream_and_billed_in_part(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=9&prompt=9&fault=reset_mid@4").slug
    synchronize(gateway)
    response = gateway.chat(alice.secret, model, stream=True)
    last = response.text.rstrip("\n").rpartition("\n")[2]
    assert json.loads(last[6:])["error"]["message"] == "The provider's answer broke off."
    for word in ("aiohttp", "Errno", "Connection", "peer", "127.0.0.1"):
        assert word not in response.text
    usage = Usage.objects.get(model=model)
    assert (usage.status, usage.basis) == ("failed", "estimated")
    assert (usage.charge or 0) > 0


@pytest.mark.parametrize("accept", ["identity", "gzip", "br, zstd"])
def test_a_coded_answer_comes_out_plain(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, accept: str
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=4&prompt=5&fault=gzip").slug
    synchronize(gateway)
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    headers = {"x-api-key": alice.secret, "Accept-Encoding": accept}
    response = gateway.client.post("/v1/chat/completions", json=body, headers=headers)
    assert "content-encoding" not in response.headers
    assert int(response.headers["content-length"]) == len(response.content)
    assert response.json()["usage"]["completion_tokens"] == 4
    streamed = gateway.client.post("/v1/chat/completions", json={**body, "stream": True}, headers=headers)
    assert "content-encoding" not in streamed.headers
    assert streamed.text.endswith("data: [DONE]\n\n")


def test_a_coded_stream_is_unpacked_as_it_comes(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=4&fault=gzip&pace=600ms").slug
    synchronize(gateway)
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with gateway.client.stream(
        "POST", "/v1/chat/completions", json=body, headers={"x-api-key": alice.secret}
    ) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        assert simulated.state()["answering"] == 1
        assert list(lines)[-2] == "data: [DONE]"


@pytest.mark.parametrize("fault", ["gzip_truncated", "br", "gzip_bomb&size=64M"])
def test_an_answer_that_cannot_be_unpacked_is_an_error(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, fault: str
) -> None:
    model = make_model(make_provider(simulated.base_url), f"sim-small?fault={fault}").slug
    synchronize(gateway)
    response = gateway.chat(alice.secret, model)
    assert (response.status_code, response.json()["error"]["type"]) == (502, "upstream_error")
    assert Usage.objects.get(model=model).charge == 0
