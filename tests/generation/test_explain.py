"""A plan told on request: in the answer, in the last chunk, in an error, by /v1/route, and in the lookup."""

import json
from decimal import Decimal
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.models import Attempt, Budget, Counter, Hold, LedgerEntry, Limit, Usage
from gateway.generation.explaining import DONE, FIELD, into_answer, recorded
from routing.models import Credential, Model, Policy, Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff

ASKED = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100}


def ask(
    gateway: Gateway, secret: str, model: str, path: str = "/v1/chat/completions", explain: str = "1", **body: Any
) -> httpx.Response:
    """POSTs a chat completion that wants its plan told."""
    headers = {"Authorization": f"Bearer {secret}", "X-Gateway-Explain": explain}
    return gateway.client.post(path, json={**ASKED, "model": model, **body}, headers=headers)


def route(gateway: Gateway, secret: str, model: str, **body: Any) -> httpx.Response:
    """Asks where a chat completion would go, without the header."""
    return ask(gateway, secret, model, "/v1/route", explain="", **body)


def chunks(text: str) -> list[Any]:
    """The payloads of an event stream, [DONE] as text."""
    payloads = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


def shelf(simulated: SimulatedProvider, first: str, second: str = "sim-small?tokens=2") -> tuple[Model, list[Provider]]:
    """A model that two providers offer, and a third that has no secret to send."""
    providers = [make_provider(simulated.base_url, secret=f"secret-of-{n}-0123456789") for n in range(2)]
    providers.append(make_provider(simulated.base_url, auth_style="bearer"))
    model = make_model(providers[0], first, make_tariff(input=("1", "2"), output=("2", "4")))
    add_offer(model, providers[1], second, make_tariff(input=("1", "8"), output=("2", "16")), priority=1)
    add_offer(model, providers[2], "sim-small", priority=2)
    return model, providers


def written() -> tuple[int, ...]:
    """How many rows there are of everything that a call writes."""
    return tuple(table._default_manager.count() for table in (Usage, Attempt, Hold, LedgerEntry, Counter))


def test_it_works(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model, (one, two, three) = shelf(simulated, "sim-small?status=503")
    synchronize(gateway)
    response = ask(gateway, alice.secret, model.slug)
    answer = response.json()
    plan = answer.pop(FIELD)
    assert response.status_code == 200, answer
    assert (plan["model"], plan["policy"]) == (model.slug, {"source": "default"})
    # The prompt has 96 bytes as it is sent: a token each at most, one for each four most likely. The answer is capped.
    assert plan["candidates"] == [
        {
            "order": 1,
            "taken": True,
            "model": model.slug,
            "provider": one.slug,
            "endpoint": "sim-small?status=503",
            "reason": "priority",
            "why": "in the order of its priority",
            "score": 0,
            "expected_price": 0.000448,
            "price_at_most": 0.000592,
        },
        {
            "order": 2,
            "taken": True,
            "model": model.slug,
            "provider": two.slug,
            "endpoint": "sim-small?tokens=2",
            "reason": "priority",
            "why": "in the order of its priority",
            "score": 1,
            "expected_price": 0.001792,
            "price_at_most": 0.002368,
        },
        {
            "order": None,
            "taken": False,
            "model": model.slug,
            "provider": three.slug,
            "endpoint": "sim-small",
            "reason": "no_credential",
            "why": "left out: its provider has no usable credential",
            "score": None,
            "expected_price": 0.000448,
            "price_at_most": 0.000592,
        },
    ]
    first, second = plan["attempts"]
    assert (first["number"], first["provider"], first["status"], first["fault"]) == (
        1,
        one.slug,
        "failed",
        "overloaded",
    )
    assert (second["number"], second["provider"], second["status"], second["fault"]) == (2, two.slug, "completed", None)
    assert (first["ttft_ms"], second["model"]) == (None, model.slug)
    assert first["duration_ms"] >= 0 and second["duration_ms"] >= 0
    plain = ask(gateway, alice.secret, model.slug, explain="0").json()
    assert FIELD not in plain and plain.keys() == answer.keys()
    assert plain["usage"] == answer["usage"]


def test_a_stream_tells_it_in_its_last_chunk(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model, (one, *_) = shelf(simulated, "sim-small?tokens=3")
    synchronize(gateway)
    asked: tuple[dict[str, Any], ...] = ({}, {"stream_options": {"include_usage": True}})
    for options in asked:
        found = chunks(ask(gateway, alice.secret, model.slug, stream=True, **options).text)
        plain = chunks(ask(gateway, alice.secret, model.slug, explain="", stream=True, **options).text)
        assert found[-1] == plain[-1] == "[DONE]"
        assert [place for place, chunk in enumerate(found[:-1]) if FIELD in chunk] == [len(found) - 2]
        plan = found[-2].pop(FIELD)
        assert next((line["order"], line["provider"]) for line in plan["candidates"]) == (1, one.slug)
        assert [(attempt["provider"], attempt["status"]) for attempt in plan["attempts"]] == [(one.slug, "completed")]
        assert [chunk.keys() for chunk in found[:-1]] == [chunk.keys() for chunk in plain[:-1]]


def test_a_stream_that_breaks_tells_it_beside_the_error(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model, (one, *_) = shelf(simulated, "sim-small?tokens=9&fault=cut_mid@4")
    synchronize(gateway)
    last = chunks(ask(gateway, alice.secret, model.slug, stream=True).text)[-1]
    assert last["error"]["code"] == "upstream_truncated"
    assert [(a["provider"], a["status"], a["fault"]) for a in last[FIELD]["attempts"]] == [
        (one.slug, "failed", "truncated")
    ]


def test_a_failure_tells_it_beside_the_error(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model, (one, two, _) = shelf(simulated, "sim-small?status=503", "sim-small?fault=garbage")
    synchronize(gateway)
    failed = ask(gateway, alice.secret, model.slug)
    assert (failed.status_code, failed.json()["error"]["code"]) == (502, "upstream_invalid_response")
    assert [(a["provider"], a["fault"]) for a in failed.json()[FIELD]["attempts"]] == [
        (one.slug, "overloaded"),
        (two.slug, "invalid_response"),
    ]
    assert ask(gateway, alice.secret, model.slug, explain="").json().keys() == {"error"}


def test_what_goes_nowhere_says_why_each_offer_was_left_out(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model, providers = shelf(simulated, "sim-small")
    Policy.objects.create(level="project", project=alice.project, refuses_training=True)
    Provider.objects.filter(pk__in=[provider.pk for provider in providers]).update(trains_on_data=True)
    synchronize(gateway)
    before = written()
    for refused in (ask(gateway, alice.secret, model.slug), route(gateway, alice.secret, model.slug)):
        assert (refused.status_code, refused.json()["error"]["code"]) == (502, "no_provider_available")
        plan = refused.json()[FIELD]
        assert plan["policy"]["refuses_training"] is True
        assert {line["provider"] for line in plan["candidates"]} == {provider.slug for provider in providers}
        assert {(line["order"], line["taken"], line["reason"]) for line in plan["candidates"]} == {
            (None, False, "trains")
        }
    assert ask(gateway, alice.secret, model.slug, explain="").json().keys() == {"error"}
    assert written() == before


def test_a_refused_hold_tells_it_too(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model, _ = shelf(simulated, "sim-small")
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.0000001"))
    synchronize(gateway)
    refused = ask(gateway, alice.secret, model.slug)
    assert (refused.status_code, refused.json()["error"]["code"]) == (402, "insufficient_credit")
    assert len(refused.json()[FIELD]["candidates"]) == 3 and "attempts" not in refused.json()[FIELD]


def test_a_route_is_planned_and_nothing_happens(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    name = f"sim-{alice.organization.slug}"
    model, (one, two, _) = shelf(simulated, f"{name}?tokens=3")
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.0000001"))
    Limit.objects.create(organization=alice.organization, measure="requests", value=4)  # a look counts, too
    Policy.objects.create(level="key", key=alice.key, strategy="priority", factor="price")
    synchronize(gateway)
    before = written()
    for _ in range(3):
        response = route(gateway, alice.secret, model.slug, stream=True)
        assert response.status_code == 200, response.text
        answer = response.json()
        assert answer.keys() == {"object", FIELD} and answer["object"] == "route"
        plan = answer[FIELD]
        assert plan["policy"] == {"source": "key", "factor": "price"}
        assert [(line["order"], line["provider"], line["score"]) for line in plan["candidates"][:2]] == [
            (1, one.slug, 6),
            (2, two.slug, 24),
        ]
        assert "attempts" not in plan
    listed = route(
        gateway,
        alice.secret,
        model.slug,
        provider={"routing": {"type": "order", "providers": [two.slug]}, "fallback": False},
    ).json()[FIELD]
    assert listed["policy"]["source"] == "request"
    assert [(line["provider"], line["order"], line["reason"]) for line in listed["candidates"][:2]] == [
        (two.slug, 1, "listed"),
        (one.slug, None, "no_fallback"),
    ]
    assert written() == before
    assert not [line for line in simulated.lines() if line.get("model", "").startswith(name)]


def test_a_route_is_refused_as_a_chat_is(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model, _ = shelf(simulated, "sim-small")
    _, management = make_key(alice.project, name="m", scopes=["management"])
    _, elsewhere = make_key(alice.project, name="e", allowed_endpoints=["chat/completions"])
    _, other = make_key(alice.project, name="o", allowed_models=["lab/other"])
    synchronize(gateway)
    assert route(gateway, "sk-ml-nobody", model.slug).status_code == 401
    assert route(gateway, management, model.slug).status_code == 403
    assert route(gateway, elsewhere, model.slug).status_code == 403
    for secret, body in (
        (alice.secret, {"model": "no/such"}),
        (alice.secret, {"temperature": "hot"}),
        (alice.secret, {"messages": []}),
        (alice.secret, {"provider": {"routing": {"type": "best"}}}),
        (other, {}),
    ):
        sent: dict[str, Any] = {"model": model.slug, **body}
        refused, like = route(gateway, secret, **sent), ask(gateway, secret, **sent)
        assert refused.status_code in (400, 404)
        assert (refused.status_code, refused.json()) == (like.status_code, like.json())
    answer = gateway.client.get("/v1/route", headers={"Authorization": f"Bearer {alice.secret}"})
    assert answer.status_code == 405


def test_it_shows_no_address_secret_or_cost_and_nothing_of_others(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    model, providers = shelf(simulated, "sim-small?status=503")
    Policy.objects.create(level="project", project=alice.project, providers=[providers[1].slug], max_attempts=2)
    synchronize(gateway)
    texts = [
        ask(gateway, alice.secret, model.slug).text,
        ask(gateway, alice.secret, model.slug, stream=True).text,
        route(gateway, alice.secret, model.slug).text,
    ]
    credentials = Credential.objects.filter(provider__in=providers)
    hidden = [simulated.url, str(simulated.port), "127.0.0.1", "secret-of-", "cost", "sealed"]
    hidden += [text for row in credentials for text in (str(row.pk), row.pk.hex, row.hint)]
    hidden += [alice.secret, alice.key.pk.hex, str(alice.project.pk), alice.organization.slug]
    for text in texts:
        assert FIELD in text
        assert [secret for secret in hidden if secret in text] == []
    theirs = route(gateway, charlie.secret, model.slug).json()[FIELD]
    assert theirs["policy"] == {"source": "default"}
    assert [line["provider"] for line in theirs["candidates"]] == [provider.slug for provider in providers]


def test_the_lookup_tells_it_to_its_own_organization(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    model, (one, two, _) = shelf(simulated, "sim-small?status=503")
    Policy.objects.create(level="model", model=model, providers=[one.slug, two.slug], max_attempts=2)
    synchronize(gateway)
    answer = ask(gateway, alice.secret, model.slug, explain="")
    id = answer.json()["id"]

    def look(secret: str, **headers: str) -> httpx.Response:
        return gateway.client.get(
            "/v1/generation", params={"id": id}, headers={"Authorization": f"Bearer {secret}", **headers}
        )

    named = look(alice.secret, **{"X-Gateway-Explain": "1"}).json()
    assert named[FIELD] == recorded(Usage.objects.get(id=id).plan or {}, named=True)
    assert [(line["order"], line["provider"]) for line in named[FIELD]["candidates"][:2]] == [
        (1, one.slug),
        (2, two.slug),
    ]
    assert named[FIELD]["policy"] == {"source": "model", "providers": [one.slug, two.slug], "max_attempts": 2}
    assert [(a["provider"], a["endpoint"], a["fault"], a["model"]) for a in named["attempts"]] == [
        (one.slug, "sim-small?status=503", "overloaded", model.slug),
        (two.slug, "sim-small?tokens=2", None, model.slug),
    ]
    plain = look(alice.secret)
    assert one.slug not in plain.text and two.slug not in plain.text and "sim-small" not in plain.text
    assert plain.json()[FIELD]["policy"] == {"source": "model", "max_attempts": 2}
    assert [(line["order"], line["reason"]) for line in plain.json()[FIELD]["candidates"]] == [
        (line["order"], line["reason"]) for line in named[FIELD]["candidates"]
    ]
    for explain in ("", "1"):
        refused = look(charlie.secret, **{"X-Gateway-Explain": explain})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "generation_not_found")


def test_whoever_only_looks_takes_no_turn(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model, (one, two, _) = shelf(simulated, "sim-small?tokens=1", "sim-small?tokens=1")
    Policy.objects.create(level="project", project=alice.project, strategy="round_robin")
    synchronize(gateway)

    def first(response: httpx.Response) -> str:
        plan = response.json()[FIELD]
        assert plan["candidates"][0]["reason"] == "turn"
        return str(plan["candidates"][0]["provider"])

    taken = []
    for _ in range(4):
        looked = {first(route(gateway, alice.secret, model.slug)) for _ in range(3)}
        taken.append(first(ask(gateway, alice.secret, model.slug)))
        assert looked == {taken[-1]}
    assert taken in ([one.slug, two.slug] * 2, [two.slug, one.slug] * 2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text().filter(lambda name: name != FIELD), JSON, max_size=4)


@given(OBJECTS, OBJECTS)
def test_a_body_keeps_every_byte_it_had(body: dict[str, Any], plan: dict[str, Any]) -> None:
    sent = json.dumps(body).encode()
    told = into_answer(sent, plan)
    assert json.loads(told) == {**body, FIELD: plan}
    assert told.startswith(sent[:-1])


@given(st.lists(OBJECTS, min_size=1, max_size=3), OBJECTS, st.sampled_from(["\n", "\r\n"]))
def test_a_stream_keeps_every_event_it_had(events: list[dict[str, Any]], plan: dict[str, Any], line: str) -> None:
    texts = [*(f"data: {json.dumps(event)}{line}{line}" for event in events), DONE.decode() + line + line]
    told = into_answer("".join(texts).encode(), plan).decode()
    assert told.startswith("".join(texts[:-2]) + texts[-2].rstrip()[:-1])
    last = told[len("".join(texts[:-2])) :].partition(line)[0]
    assert json.loads(last.removeprefix("data: ")) == {**events[-1], FIELD: plan}
    assert told.endswith(f"{line}{line}{texts[-1]}")


@pytest.mark.parametrize("value, told", [("1", True), ("true", True), ("True", True), ("0", False), ("yes", False)])
def test_it_is_asked_for_in_one_way(
    value: str, told: bool, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model, _ = shelf(simulated, "sim-small?tokens=1")
    synchronize(gateway)
    assert (FIELD in ask(gateway, alice.secret, model.slug, explain=value).json()) is told
