"""What happens after a failure: whose turn it is, who rests, who is asked again, and when a client may come back."""

import json
import time
from decimal import Decimal
from typing import Any

import httpx
import pytest

from billing.models import Attempt, Usage
from routing.models import Credential, Policy
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize, until
from tests.stage.raw import chat, dial
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff
from tests.stage.speech import error, events


def tries(answer: httpx.Response) -> list[tuple[str, str]]:
    """Status and fault of each attempt of a generation."""
    attempts = Attempt.objects.filter(generation=answer.headers["x-generation-id"]).order_by("number")
    return [(attempt.status, attempt.fault) for attempt in attempts]


def dials(simulated: SimulatedProvider, model: str) -> int:
    """How often the provider was asked for this model."""
    return sum(line["event"] == "start" and line["model"] == model for line in simulated.lines())


def named(tenant: Tenant, what: str, options: str) -> str:
    """An upstream model that no other test asks for."""
    return f"{what}-{tenant.organization.slug}?{options}"


# --- rate limits and rests ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_the_last_429_says_when_the_first_of_all_may_be_asked_again(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool
) -> None:
    model = make_model(make_provider(simulated.base_url, "sk-1"), "sim-small?status=429&retry_after=30")
    add_offer(model, make_provider(simulated.base_url, "sk-2", cooldown=12), "sim-small?status=429", priority=1)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=stream)
    assert (answer.status_code, error(answer)["type"], answer.headers["retry-after"]) == (429, "rate_limit_error", "12")
    assert tries(answer) == [("failed", "rate_limited"), ("failed", "rate_limited")]
    # While both rest nobody is asked, and the header is there all the same.
    again = gateway.chat(alice.secret, model.slug, stream=stream)
    assert again.status_code == 429
    assert 1 <= int(again.headers["retry-after"]) <= 12
    assert Usage.objects.filter(model=model.slug).count() == 1


def test_a_provider_nobody_answers_at_rests_after_its_threshold_and_returns_by_itself(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    first, second = named(alice, "first", "status=500&fail_first=1&tokens=2"), named(alice, "second", "tokens=2")
    model = make_model(make_provider(simulated.base_url, failure_threshold=1, cooldown=1), first)
    add_offer(model, make_provider(simulated.base_url), second, priority=1)
    synchronize(gateway)
    seen = [tries(gateway.chat(alice.secret, model.slug)) for _ in range(3)]
    assert seen == [[("failed", "server_error"), ("completed", "")], [("completed", "")], [("completed", "")]]
    assert (dials(simulated, first), dials(simulated, second)) == (1, 3)

    def back() -> bool:
        assert gateway.chat(alice.secret, model.slug).status_code == 200
        return dials(simulated, first) > 1

    until(back, 10, pause=0.1)
    before = dials(simulated, second)
    assert tries(gateway.chat(alice.secret, model.slug)) == [("completed", "")]
    assert dials(simulated, second) == before


def test_a_probe_is_seen_through_though_its_client_leaves(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    first, second = (
        named(alice, "probed", "status=500&fail_first=1&tokens=2&first=1500ms"),
        named(alice, "b", "tokens=2"),
    )
    model = make_model(make_provider(simulated.base_url, failure_threshold=1, cooldown=1), first)
    add_offer(model, make_provider(simulated.base_url), second, priority=1)
    synchronize(gateway)
    assert gateway.chat(alice.secret, model.slug).status_code == 200
    while dials(simulated, first) < 2:  # until its rest is over, every request goes to the other one
        with dial(gateway) as line:
            line.send(chat(alice.secret, model.slug, "Connection: close", stream=True))
            until(lambda: any(line["model"] in (first, second) for line in simulated.lines()), 5)
            time.sleep(0.3)  # the client leaves long before the first byte
    simulated.until(10, answering=0)
    probe = [line for line in simulated.bill() if line["model"] == first][-1]
    assert (probe["status"], probe["events"] > 0) == (200, True), "nobody waited for the probe's answer"
    before = dials(simulated, second)
    assert tries(gateway.chat(alice.secret, model.slug, stream=True)) == [("completed", "")]
    assert dials(simulated, second) == before
    statuses = set(Usage.objects.filter(model=model.slug).values_list("status", flat=True))
    assert "cancelled" in statuses


# --- credentials ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("status", "fault"), [(401, "auth"), (402, "exhausted"), (403, "auth"), (429, "rate_limited")])
def test_the_next_credential_of_the_same_provider_is_tried_first(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, status: int, fault: str, stream: bool
) -> None:
    first = named(alice, f"turning{status}{stream}", f"status={status}&fail_first=1&tokens=2")
    second = named(alice, f"unused{status}{stream}", "tokens=2")
    provider = make_provider(simulated.base_url, "sk-the-first-of-them")
    other = Credential(provider=provider, name="other")
    other.put("sk-the-second-of-them")
    other.save()
    model = make_model(provider, first)
    add_offer(model, make_provider(simulated.base_url), second, priority=1)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=stream)
    assert answer.status_code == 200
    attempts = Attempt.objects.filter(generation=answer.headers["x-generation-id"]).order_by("number")
    assert [(one.provider, one.fault) for one in attempts] == [(provider.slug, fault), (provider.slug, "")]
    assert [one.credential for one in attempts] == [
        provider.credentials.get(name="default").pk,
        other.pk,
    ]
    # The one that was refused rests; the next request begins with the other.
    again = gateway.chat(alice.secret, model.slug, stream=stream)
    assert tries(again) == [("completed", "")]
    assert [line["credential"]["last4"] for line in simulated.bill() if line["model"] == first] == 3 * ["them"]
    assert len({line["credential"]["digest"] for line in simulated.bill() if line["model"] == first}) == 2
    assert dials(simulated, second) == 0


# --- how far a request goes -----------------------------------------------------------------------------------------


def test_an_outage_of_everybody_costs_no_more_dials_than_the_policy_allows(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    names = [named(alice, f"down{number}", "status=503") for number in range(5)]
    model = make_model(make_provider(simulated.base_url), names[0])
    for priority, name in enumerate(names[1:], 1):
        add_offer(model, make_provider(simulated.base_url), name, priority=priority)
    Policy.objects.create(level="project", project=alice.project, max_attempts=4)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug)
    assert (answer.status_code, error(answer)["code"]) == (503, "upstream_overloaded")
    assert int(answer.headers["retry-after"]) >= 1
    assert [dials(simulated, name) for name in names] == [1, 1, 1, 1, 0]
    assert gateway.client.get("/healthz").status_code == 200


@pytest.mark.row("B157")
@pytest.mark.parametrize("fallback", [False, "false"])
def test_without_a_fallback_the_first_error_is_told_at_once(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, fallback: bool | str
) -> None:
    second = named(alice, "never", "tokens=2")
    model = make_model(make_provider(simulated.base_url), "sim-small?status=500")
    add_offer(model, make_provider(simulated.base_url), second, priority=1)
    Policy.objects.create(
        level="project", project=alice.project, fallback=make_model(make_provider(simulated.base_url)).slug
    )
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, provider={"fallback": fallback})
    assert (answer.status_code, error(answer)["code"]) == (502, "upstream_error")
    assert tries(answer) == [("failed", "server_error")]
    assert dials(simulated, second) == 0


@pytest.mark.row("B153")
@pytest.mark.parametrize("stream", [True, False])
def test_listed_providers_are_all_tried_and_the_last_error_is_told(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool
) -> None:
    providers = [make_provider(simulated.base_url) for _ in range(3)]
    model = make_model(providers[0], "sim-small?status=503")
    add_offer(model, providers[1], "sim-small?status=500", priority=1)
    add_offer(model, providers[2], named(alice, "unlisted", "tokens=1"), priority=2)
    synchronize(gateway)
    listed = {"routing": {"type": "order", "providers": [providers[1].slug, providers[0].slug]}, "fallback": False}
    answer = gateway.chat(alice.secret, model.slug, provider=listed, stream=stream)
    assert (answer.status_code, error(answer)["code"]) == (503, "upstream_overloaded")
    assert tries(answer) == [("failed", "server_error"), ("failed", "overloaded")]
    only = {"routing": {"type": "order", "providers": [providers[1].slug]}, "fallback": False}
    answer = gateway.chat(alice.secret, model.slug, provider=only, stream=stream)
    assert (answer.status_code, error(answer)["code"]) == (502, "upstream_error")


@pytest.mark.row("B158", "B161", "B162")
@pytest.mark.parametrize("stream", [True, False])
def test_a_named_model_answers_in_its_own_name_and_is_tried_once(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?status=503")
    other = make_model(make_provider(simulated.base_url), named(alice, "stands-in", "tokens=2&prompt=5"))
    broken = make_model(make_provider(simulated.base_url), "sim-small?status=500")
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, provider={"fallback": other.slug}, stream=stream, temperature=0.5)
    assert answer.status_code == 200
    shown = events(answer.text)[0] if stream else answer.json()
    assert shown["model"] == other.slug
    usage = Usage.objects.get(id=answer.headers["x-generation-id"])
    assert (usage.model, usage.attempts) == (other.slug, 2)
    attempts = Attempt.objects.filter(generation=usage.id).order_by("number")
    assert [attempt.model for attempt in attempts] == [model.slug, other.slug]
    answer = gateway.chat(alice.secret, model.slug, provider={"fallback": broken.slug}, stream=stream)
    assert (answer.status_code, error(answer)["code"]) == (502, "upstream_error")
    assert tries(answer) == [("failed", "overloaded"), ("failed", "server_error")]


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_that_is_too_long_goes_to_another_model_alone(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool
) -> None:
    first, twin = named(alice, f"short{stream}", "status=400"), named(alice, f"twin{stream}", "tokens=2")
    model = make_model(make_provider(simulated.base_url, failure_threshold=1), first)
    add_offer(model, make_provider(simulated.base_url), twin, priority=1)
    roomy = make_model(make_provider(simulated.base_url), "sim-small?tokens=2")
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=stream)
    assert (answer.status_code, error(answer)["code"]) == (400, "context_length_exceeded")
    answer = gateway.chat(alice.secret, model.slug, provider={"fallback": roomy.slug}, stream=stream)
    assert answer.status_code == 200
    assert tries(answer) == [("failed", "rejected"), ("completed", "")]
    assert Usage.objects.get(id=answer.headers["x-generation-id"]).model == roomy.slug
    assert (dials(simulated, first), dials(simulated, twin)) == (2, 0)  # and no rest: it is not the provider's fault


@pytest.mark.parametrize("stream", [True, False])
def test_a_policys_deadlines_hold_where_they_are_shorter(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?fault=hang")
    add_offer(model, make_provider(simulated.base_url), "sim-small?tokens=2", priority=1)
    slow = make_model(make_provider(simulated.base_url), "sim-small?tokens=100&pace=200ms")
    Policy.objects.create(level="project", project=alice.project, first_byte_timeout=0.5, total_timeout=3)
    Policy.objects.create(level="model", model=slow, first_byte_timeout=100)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=stream)
    assert tries(answer) == [("failed", "timeout"), ("completed", "")]
    started = time.monotonic()
    answer = gateway.chat(alice.secret, slow.slug, stream=stream)
    assert time.monotonic() - started < 10
    if stream:
        assert events(answer.text)[-1]["error"]["code"] == "upstream_timeout"
    else:
        assert (answer.status_code, error(answer)["code"]) == (504, "upstream_timeout")


@pytest.mark.row("B163")
@pytest.mark.parametrize("end", ["fin_mid@4", "reset_mid@4", "hang_mid@4", "half_json@4", "error_mid@4"])
def test_after_the_first_output_only_an_error_event_follows(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, end: str
) -> None:
    unused = named(alice, end.partition("@")[0], "tokens=2")
    model = make_model(make_provider(simulated.base_url, idle_timeout=0.5), f"sim-small?tokens=9&fault={end}")
    add_offer(model, make_provider(simulated.base_url), unused, priority=1)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=True)
    *before, last = events(answer.text)
    assert "error" in last
    assert "[DONE]" not in before
    assert len(before) == 4
    assert dials(simulated, unused) == 0


@pytest.mark.row("B164")
def test_every_try_is_on_record(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?status=503")
    add_offer(model, make_provider(simulated.base_url), "sim-small?status=500", priority=1)
    answers = make_provider(simulated.base_url)
    add_offer(model, answers, "sim-small?tokens=10&prompt=100", make_tariff(input="3", output="15"), priority=2)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug)
    usage = Usage.objects.get(id=answer.json()["id"])  # at the prices of whoever answered
    assert (usage.charge, usage.provider, usage.attempts) == (Decimal("0.00045"), answers.slug, 3)
    found = gateway.client.get(
        f"/v1/management/generation?id={answer.json()['id']}", headers={"x-api-key": alice.secret}
    ).json()
    assert (found["requestRetryTimes"], found["finalRetry"]) == (2, True)
    last = Attempt.objects.filter(generation=answer.json()["id"]).order_by("number").last()
    assert last is not None
    assert (last.prompt_tokens, last.completion_tokens) == (100, 10)
    assert last.duration_ms is not None


def test_a_stream_that_says_error_and_then_done_is_no_answer(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    said = {"error": {"message": "quota exceeded", "type": "insufficient_quota", "code": 429}}
    option = simulated.script("quota", b"data: " + json.dumps(said).encode() + b"\n\ndata: [DONE]\n\n")
    model = make_model(make_provider(simulated.base_url, "sk-1"), f"sim-small?{option}")
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=True)
    assert (answer.status_code, error(answer)["code"]) == (429, "upstream_exhausted")
    assert Usage.objects.get(model=model.slug).charge == 0


def test_a_code_hidden_in_an_errors_metadata_is_read(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    seen: list[Any] = []
    errors: list[dict[str, Any]] = [{"code": 429}, {"code": "429"}, {"metadata": {"code": 429}}, {"metadata": {}}]
    for number, inner in enumerate(errors):
        body = json.dumps({"error": {"message": "Provider returned error", **inner}}).encode()
        option = simulated.script(f"hidden-{number}", body, content_type="application/json")
        model = make_model(make_provider(simulated.base_url, "sk-1"), f"sim-small?{option}")
        synchronize(gateway)
        seen.append(gateway.chat(alice.secret, model.slug).status_code)
    assert seen == [429, 429, 429, 502]
