"""Where a request goes, through a running gateway: pins, aliases, wishes in body and headers, policies, fallbacks."""

import time
from collections import Counter, deque
from typing import Any

import httpx
import pytest

from billing.models import Attempt, Usage
from routing.models import Model, Policy, Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff
from tests.stage.speech import error, nothing_happened, speak

FAILS = "sim-small?status=503"
ANSWERS = "sim-small?tokens=2"


class Three:
    """A model of three providers, first, second and third by priority, each saying what it is told to."""

    def __init__(self, simulated: SimulatedProvider, *behaviours: str, **fields: Any) -> None:
        behaviours = behaviours or (ANSWERS, ANSWERS, ANSWERS)
        self.providers: list[Provider] = [make_provider(simulated.base_url) for _ in behaviours]
        self.model: Model = make_model(self.providers[0], behaviours[0], **fields)
        for priority, (provider, behaviour) in enumerate(zip(self.providers[1:], behaviours[1:], strict=True), 1):
            add_offer(self.model, provider, behaviour, priority=priority)

    def slugs(self, *places: int) -> list[str]:
        """The providers' slugs."""
        return [self.providers[place].slug for place in places]

    def tried(self, answer: httpx.Response) -> list[int]:
        """The places of the providers that were dialled for an answer, in order."""
        places = {provider.slug: place for place, provider in enumerate(self.providers)}
        attempts = Attempt.objects.filter(generation=answer.headers["x-generation-id"]).order_by("number")
        return [places[attempt.provider] for attempt in attempts]


@pytest.fixture
def three(simulated: SimulatedProvider, gateway: Gateway) -> Three:
    """Three that answer."""
    found = Three(simulated)
    synchronize(gateway)
    return found


def wish(*providers: str, **fields: Any) -> dict[str, Any]:
    """A `provider` that lists these."""
    fallback = {"fallback": fields.pop("fallback")} if "fallback" in fields else {}
    return {"provider": {"routing": {"providers": list(providers), **fields}, **fallback}}


def refused(answer: httpx.Response, status: int, code: str, tenant: Tenant) -> bool:
    """Whether the answer is this refusal and nothing is on the books."""
    return (answer.status_code, error(answer)["code"]) == (status, code) and nothing_happened(tenant)


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("B070")
def test_a_pin_goes_to_that_provider_alone(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    three = Three(simulated, ANSWERS, FAILS, ANSWERS)
    synchronize(gateway)
    pin = f"{three.model.slug}:{three.providers[2].slug}"
    answer = gateway.chat(alice.secret, pin)
    assert (answer.status_code, three.tried(answer)) == (200, [2])
    assert answer.json()["model"] == three.model.slug
    failed = gateway.chat(alice.secret, f"{three.model.slug}:{three.providers[1].slug}")
    assert (failed.status_code, three.tried(failed)) == (503, [1])


@pytest.mark.row("B070")
def test_a_pin_with_a_fallback_goes_on(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    three = Three(simulated, ANSWERS, FAILS, ANSWERS)
    synchronize(gateway)
    pin = f"{three.model.slug}:{three.providers[1].slug}"
    assert three.tried(gateway.chat(alice.secret, pin, provider={"fallback": True})) == [1, 0]


@pytest.mark.row("B070", "B072")
def test_an_alias_may_be_pinned(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    three = Three(simulated)
    three.model.aliases = [f"alias-{three.model.pk}"]
    three.model.save()
    synchronize(gateway)
    answer = gateway.chat(alice.secret, f"alias-{three.model.pk}:{three.providers[1].slug}")
    assert (answer.json()["model"], three.tried(answer)) == (three.model.slug, [1])


def test_what_changes_of_names_offers_and_rights_holds_for_the_next_request(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, three: Three
) -> None:
    other = make_model(make_provider(simulated.base_url), ANSWERS)
    name = f"alias-{three.model.pk}"

    def asked() -> httpx.Response:
        synchronize(gateway)
        return gateway.chat(alice.secret, name)

    Model.objects.filter(pk=three.model.pk).update(aliases=[name])
    assert asked().json()["model"] == three.model.slug
    Model.objects.filter(pk=three.model.pk).update(aliases=[])
    Model.objects.filter(pk=other.pk).update(aliases=[name])
    assert asked().json()["model"] == other.slug
    other.offers.update(priority=2)
    add_offer(other, three.providers[1], ANSWERS, priority=1)
    assert three.tried(asked()) == [1]
    alice.key.allowed_models = [three.model.slug]
    alice.key.save()
    refusal = asked()
    assert (refusal.status_code, error(refusal)["code"]) == (404, "model_not_found")


@pytest.mark.row("B071", "B151")
def test_a_provider_that_has_not_the_model_is_a_502(gateway: Gateway, alice: Tenant, three: Three) -> None:
    stranger = make_provider("http://127.0.0.1:9/v1")
    make_model(stranger)
    synchronize(gateway)
    for slug in (stranger.slug, "no-such-provider"):
        answer = gateway.chat(alice.secret, f"{three.model.slug}:{slug}")
        assert refused(answer, 502, "no_provider_available", alice)
    unknown = gateway.chat(alice.secret, f"no/such-model:{three.providers[0].slug}")
    assert refused(unknown, 404, "model_not_found", alice)


@pytest.mark.row("B151")
@pytest.mark.parametrize("dialect", ["standard", "zenmux"])
def test_a_wished_provider_that_does_not_exist_is_a_502(
    gateway: Gateway, alice: Tenant, three: Three, dialect: str
) -> None:
    speak(alice, dialect)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, three.model.slug, **wish(*three.slugs(0), "no-such-provider"))
    assert answer.status_code == 502
    assert "no_provider_available" in error(answer).values()
    assert "no-such-provider" in error(answer)["message"]
    assert nothing_happened(alice)


# --- wishes ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("B144", "B150", "B153")
def test_wished_providers_are_tried_in_their_order(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    three = Three(simulated, ANSWERS, FAILS, FAILS)
    synchronize(gateway)
    first = gateway.chat(alice.secret, three.model.slug, **wish(*three.slugs(2, 1), type="priority"))
    assert (first.status_code, three.tried(first)) == (200, [2, 1, 0])
    alone = gateway.chat(alice.secret, three.model.slug, **wish(*three.slugs(2, 1), type="order", fallback=False))
    assert (alone.status_code, three.tried(alone)) == (503, [2, 1])


@pytest.mark.row("B150")
def test_a_wish_may_name_an_endpoint(gateway: Gateway, alice: Tenant, three: Three) -> None:
    provider = three.providers[1]
    add_offer(three.model, provider, "sim-small?tokens=3", priority=5)
    synchronize(gateway)
    for endpoint, tokens in (("sim-small?tokens=3", 3), (ANSWERS, 2), ("some_endpoint", 2)):
        answer = gateway.chat(alice.secret, three.model.slug, **wish(f"{provider.slug}/{endpoint}", fallback=False))
        assert (three.tried(answer), answer.json()["usage"]["completion_tokens"]) == ([1], tokens)


@pytest.mark.row("B145")
def test_round_robin_spreads_evenly(gateway: Gateway, alice: Tenant, three: Three) -> None:
    body = {"provider": {"routing": {"type": "round_robin"}}}
    answers = [gateway.chat(alice.secret, three.model.slug, **body) for _ in range(30)]
    firsts = [three.tried(answer)[0] for answer in answers]
    assert Counter(firsts) == {0: 10, 1: 10, 2: 10}
    assert all(len(set(firsts[place : place + 3])) == 3 for place in range(0, 30, 3))


@pytest.mark.row("B146")
def test_least_latency_takes_the_fastest(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    three = Three(simulated, "sim-small?tokens=2&first=400ms", ANSWERS)
    synchronize(gateway)
    body = {"provider": {"routing": {"type": "least_latency"}}, "stream": True}
    # Until the fast one has been called often enough to be known it gets its small share of a new offer's.
    firsts: deque[int] = deque(maxlen=20)
    deadline = time.monotonic() + 60
    while firsts.count(1) < 18 and time.monotonic() < deadline:
        firsts.append(three.tried(gateway.chat(alice.secret, three.model.slug, **body))[0])
    assert firsts.count(1) >= 18


@pytest.mark.row("B147", "B148")
def test_a_factor_sorts_a_list_by_priority_and_never_an_explicit_order(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    three = Three(simulated)
    for place, price in enumerate(("9", "3", "6")):
        offer = three.model.offers.get(provider=three.providers[place])
        offer.tariff = make_tariff(input=price, output=price)
        offer.save()
    synchronize(gateway)

    def first(**fields: Any) -> int:
        return three.tried(gateway.chat(alice.secret, three.model.slug, **fields))[0]

    assert first() == 0
    assert first(provider={"routing": {"type": "priority", "primary_factor": "cost"}}) == 1
    assert first(provider={"routing": {"primary_factor": "price"}}) == 1
    assert first(**wish(*three.slugs(0, 2), type="priority", primary_factor="price")) == 2
    assert first(**wish(*three.slugs(0, 2), type="order", primary_factor="price")) == 0


@pytest.mark.row("B147")
def test_quality_is_the_operators_score(gateway: Gateway, alice: Tenant, three: Three) -> None:
    three.model.offers.filter(provider=three.providers[2]).update(quality=90)
    synchronize(gateway)
    body = {"provider": {"routing": {"type": "priority", "primary_factor": "quality"}}}
    assert three.tried(gateway.chat(alice.secret, three.model.slug, **body)) == [2]


# --- headers --------------------------------------------------------------------------------------------------------


def with_headers(gateway: Gateway, secret: str, model: str, headers: dict[str, str], **body: Any) -> httpx.Response:
    """A chat with further headers."""
    return gateway.client.post(
        "/v1/chat/completions",
        json={"model": model, "messages": [{"role": "user", "content": "hi"}], **body},
        headers={"Authorization": f"Bearer {secret}", **headers},
    )


def test_headers_say_what_a_body_cannot(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    three = Three(simulated, ANSWERS, FAILS, FAILS)
    synchronize(gateway)
    listed = ", ".join(three.slugs(2, 1))
    headers = {"X-Gateway-Routing": "order", "X-Gateway-Providers": listed, "X-Gateway-Fallback": "false"}
    assert three.tried(with_headers(gateway, alice.secret, three.model.slug, headers)) == [2, 1]
    named = {"X-Gateway-Providers": three.slugs(2)[0], "X-Gateway-Fallback": three.slugs(0)[0]}
    assert three.tried(with_headers(gateway, alice.secret, three.model.slug, named)) == [2, 0]


def test_the_body_wins_over_headers(gateway: Gateway, alice: Tenant, three: Three) -> None:
    headers = {"X-Gateway-Providers": three.slugs(2)[0], "X-Gateway-Fallback": "false"}
    body = wish(*three.slugs(1))
    assert three.tried(with_headers(gateway, alice.secret, three.model.slug, headers, **body)) == [1]
    silent = {"provider": {"fallback": True}}
    assert three.tried(with_headers(gateway, alice.secret, three.model.slug, headers, **silent)) == [2]


def test_a_factor_in_a_header(gateway: Gateway, alice: Tenant, three: Three) -> None:
    three.model.offers.filter(provider=three.providers[1]).update(quality=99)
    synchronize(gateway)
    headers = {"X-Gateway-Factor": "quality"}
    assert three.tried(with_headers(gateway, alice.secret, three.model.slug, headers)) == [1]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-Gateway-Routing", "fastest"),
        ("X-Gateway-Routing", ""),
        ("X-Gateway-Factor", "luck"),
        ("X-Gateway-Providers", ""),
        ("X-Gateway-Providers", "north,,south"),
        ("X-Gateway-Fallback", ""),
    ],
)
def test_a_wrong_header_is_refused_by_name(
    gateway: Gateway, alice: Tenant, three: Three, header: str, value: str
) -> None:
    answer = with_headers(gateway, alice.secret, three.model.slug, {header: value})
    assert refused(answer, 400, "invalid_value", alice)
    assert error(answer)["param"] == header
    assert header in error(answer)["message"]


# --- levels ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("B139", "B140")
def test_the_most_important_level_that_speaks_decides(gateway: Gateway, alice: Tenant, three: Three) -> None:
    def first(**body: Any) -> int:
        synchronize(gateway)
        return three.tried(gateway.chat(alice.secret, three.model.slug, **body))[0]

    assert first() == 0
    Policy.objects.create(level="model", model=three.model, strategy="order", providers=three.slugs(1))
    assert first() == 1
    Policy.objects.create(level="project", project=alice.project, strategy="order", providers=three.slugs(2))
    assert first() == 2
    assert first(provider={"fallback": True}) == 2
    Policy.objects.create(level="key", key=alice.key, strategy="order", providers=three.slugs(1, 0))
    assert first() == 1
    assert first(**wish(*three.slugs(0))) == 0
    Policy.objects.filter(key=alice.key).delete()
    assert first() == 2


@pytest.mark.row("B160")
def test_the_requests_fallback_wins_over_the_projects(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    three = Three(simulated, FAILS, ANSWERS, ANSWERS)
    other = make_model(make_provider(simulated.base_url), "sim-small?tokens=5")
    Policy.objects.create(level="project", project=alice.project, fallback="false")
    synchronize(gateway)
    assert three.tried(gateway.chat(alice.secret, three.model.slug)) == [0]
    assert three.tried(gateway.chat(alice.secret, three.model.slug, provider={"fallback": True})) == [0, 1]
    named = gateway.chat(alice.secret, three.model.slug, provider={"fallback": three.slugs(2)[0]})
    assert three.tried(named) == [0, 2]
    Policy.objects.filter(project=alice.project).update(fallback=other.slug)
    three.model.offers.exclude(provider=three.providers[0]).update(active=False)
    synchronize(gateway)
    assert gateway.chat(alice.secret, three.model.slug).json()["model"] == other.slug
    assert gateway.chat(alice.secret, three.model.slug, provider={"fallback": False}).status_code == 503


def test_no_wish_gets_past_the_allowed_providers(gateway: Gateway, alice: Tenant, three: Three) -> None:
    Policy.objects.create(level="key", key=alice.key, only_providers=three.slugs(1))
    synchronize(gateway)
    assert three.tried(gateway.chat(alice.secret, three.model.slug)) == [1]
    for body in (wish(*three.slugs(0)), wish(*three.slugs(0, 2), type="order"), {"provider": {"fallback": True}}):
        assert three.tried(gateway.chat(alice.secret, three.model.slug, **body)) == [1]
    for answer in (
        gateway.chat(alice.secret, f"{three.model.slug}:{three.providers[0].slug}"),
        gateway.chat(alice.secret, three.model.slug, **wish(*three.slugs(0, 2), fallback=False)),
    ):
        assert (answer.status_code, error(answer)["code"]) == (502, "no_provider_available")
    generations = Usage.objects.filter(organization=alice.organization.id).values("id")
    assert {one.provider for one in Attempt.objects.filter(generation__in=generations)} == set(three.slugs(1))


def test_a_project_that_refuses_training(gateway: Gateway, alice: Tenant, three: Three) -> None:
    Provider.objects.filter(pk=three.providers[0].pk).update(trains_on_data=True)
    Policy.objects.create(level="project", project=alice.project, refuses_training=True)
    synchronize(gateway)
    assert three.tried(gateway.chat(alice.secret, three.model.slug)) == [1]
    assert three.tried(gateway.chat(alice.secret, three.model.slug, **wish(*three.slugs(0)))) == [1]


# --- fallbacks ------------------------------------------------------------------------------------------------------


@pytest.mark.row("B154", "B158", "B161", "B162")
def test_a_named_model_follows_when_the_providers_failed(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    three = Three(simulated, FAILS, FAILS, FAILS)
    other = make_model(make_provider(simulated.base_url), "sim-small?tokens=5", aliases=[f"spare-{three.model.pk}"])
    synchronize(gateway)
    for name in (other.slug, other.aliases[0]):
        answer = gateway.chat(alice.secret, three.model.slug, provider={"fallback": name})
        assert answer.status_code == 200
        assert answer.json()["model"] == other.slug
        usage = Usage.objects.get(id=answer.headers["x-generation-id"])
        assert (usage.model, usage.attempts) == (other.slug, 3)
        models = [attempt.model for attempt in Attempt.objects.filter(generation=usage.id).order_by("number")]
        assert models == [three.model.slug, three.model.slug, other.slug]


@pytest.mark.row("B154")
def test_a_fallback_that_is_neither_provider_nor_model_is_a_400(
    gateway: Gateway, alice: Tenant, charlie: Tenant, three: Three
) -> None:
    secret_model = make_model(three.providers[0])
    charlie.key.allowed_models = [three.model.slug]
    charlie.key.save()
    synchronize(gateway)
    for tenant, name in ((alice, "neither/of-them"), (charlie, secret_model.slug)):
        answer = gateway.chat(tenant.secret, three.model.slug, provider={"fallback": name})
        assert refused(answer, 400, "invalid_value", tenant)
        assert error(answer)["param"] == "provider.fallback"


def test_an_operators_fallback_that_is_gone_is_as_if_there_were_none(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    three = Three(simulated, FAILS, ANSWERS)
    Policy.objects.create(level="project", project=alice.project, fallback="gone/since")
    synchronize(gateway)
    assert three.tried(gateway.chat(alice.secret, three.model.slug)) == [0, 1]


def test_when_every_offer_cools_the_client_is_told_when_to_come_back(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    three = Three(simulated, "sim-small?status=429&retry_after=30", "sim-small?status=429&retry_after=12")
    synchronize(gateway)
    first = gateway.chat(alice.secret, three.model.slug)
    assert (first.status_code, three.tried(first)) == (429, [0, 1])
    second = gateway.chat(alice.secret, three.model.slug)
    assert (second.status_code, error(second)["type"]) == (429, "rate_limit_error")
    assert 1 <= int(second.headers["retry-after"]) <= 12
    assert Usage.objects.filter(organization=alice.organization.id).count() == 1


# --- what an offer takes --------------------------------------------------------------------------------------------


def test_the_offer_that_answers_says_what_it_ignored(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    three = Three(simulated, ANSWERS, ANSWERS)
    three.model.offers.filter(provider=three.providers[0]).update(supported_parameters=["temperature"])
    three.model.offers.filter(provider=three.providers[1]).update(supported_parameters=["temperature", "seed"])
    synchronize(gateway)
    plain = gateway.chat(alice.secret, three.model.slug, temperature=0.5)
    assert three.tried(plain) == [0]
    preferred = gateway.chat(alice.secret, three.model.slug, temperature=0.5, seed=7)
    assert (three.tried(preferred), "x-gateway-ignored-params" in preferred.headers) == ([1], False)
    forced = gateway.chat(alice.secret, three.model.slug, seed=7, **wish(*three.slugs(0), type="order"))
    assert (three.tried(forced), forced.headers["x-gateway-ignored-params"]) == ([0], "seed")


def test_a_strict_caller_goes_where_all_is_taken(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    three = Three(simulated, ANSWERS, ANSWERS)
    three.model.offers.filter(provider=three.providers[0]).update(supported_parameters=["temperature"])
    three.model.offers.filter(provider=three.providers[1]).update(supported_parameters=["temperature", "seed"])
    alice.project.strict_params = True
    alice.project.save()
    synchronize(gateway)
    refusal = gateway.chat(alice.secret, three.model.slug, top_p=0.5)
    assert refused(refusal, 400, "unsupported_parameter", alice)
    assert error(refusal)["param"] == "top_p"
    assert three.tried(gateway.chat(alice.secret, three.model.slug, seed=7)) == [1]


def test_the_model_that_follows_must_take_all_of_a_strict_callers_parameters_too(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    three = Three(simulated, FAILS)
    other = make_model(make_provider(simulated.base_url), ANSWERS, supported_parameters=["temperature"])
    said = {"seed": 7, "provider": {"fallback": other.slug}}
    synchronize(gateway)
    lenient = gateway.chat(alice.secret, three.model.slug, **said)
    assert (lenient.json()["model"], lenient.headers["x-gateway-ignored-params"]) == (other.slug, "seed")
    alice.project.strict_params = True
    alice.project.save()
    synchronize(gateway)
    strict = gateway.chat(alice.secret, three.model.slug, **said)
    assert (strict.status_code, three.tried(strict)) == (503, [0])


@pytest.mark.row("B063")
def test_thoughts_of_another_kind_are_left_out_and_their_maker_is_preferred(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    three = Three(simulated, "sim-small?echo", "sim-small?echo")
    Provider.objects.filter(pk=three.providers[0].pk).update(reasoning_format="first-v1")
    Provider.objects.filter(pk=three.providers[1].pk).update(reasoning_format="second-v1")
    synchronize(gateway)

    def entry(format: str) -> dict[str, Any]:
        return {"type": "reasoning.text", "text": "hm", "signature": f"s-{format}", "format": format, "index": 0}

    plain = {"type": "reasoning.summary", "summary": "so", "format": "third-v1", "index": 1}
    turn = {"role": "assistant", "content": "yes", "reasoning_details": [entry("second-v1"), plain]}
    messages = [{"role": "user", "content": "hi"}, turn, {"role": "user", "content": "go on"}]
    answer = gateway.chat(alice.secret, three.model.slug, messages=messages)
    assert three.tried(answer) == [1]
    assert '"signature":"s-second-v1"' in answer.json()["choices"][0]["message"]["content"].replace(" ", "")
    pinned = gateway.chat(alice.secret, f"{three.model.slug}:{three.providers[0].slug}", messages=messages)
    said = pinned.json()["choices"][0]["message"]["content"]
    assert "s-second-v1" not in said
    assert "third-v1" in said  # a summary is bound to nobody


def test_a_conversation_stays_where_its_prompt_is_cached(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    three = Three(simulated, ANSWERS, ANSWERS)
    cheaper, dearer = (make_tariff(input=price, output="4", cached_input="0.1") for price in ("1", "3"))
    three.model.offers.filter(provider=three.providers[0]).update(tariff=make_tariff(input="2", output="4"))
    three.model.offers.filter(provider=three.providers[1]).update(tariff=cheaper)
    synchronize(gateway)
    cheapest = {"provider": {"routing": {"primary_factor": "price"}}}
    opening = [{"role": "system", "content": "You are brief. " * 50}, {"role": "user", "content": "first"}]
    more = [*opening, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "second"}]
    other = [{"role": "user", "content": "another conversation"}]

    def tried(messages: list[dict[str, str]]) -> list[int]:
        return three.tried(gateway.chat(alice.secret, three.model.slug, messages=messages, **cheapest))

    assert tried(opening) == [1]
    # What it has in its cache stays cheap, though its price rises above the other's; nobody else has a reason to come.
    three.model.offers.filter(provider=three.providers[1]).update(tariff=dearer)
    synchronize(gateway)
    assert tried(more) == [1]
    assert tried(other) == [0]
    kept = Usage.objects.filter(organization=alice.organization.id).order_by("id").values_list("plan", flat=True)
    assert [plan["offers"][0][3] for plan in kept if plan] == ["price", "seat", "price"]


def test_the_plan_is_kept_with_the_generation(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    three = Three(simulated, FAILS, ANSWERS, ANSWERS)
    Policy.objects.create(level="project", project=alice.project, only_providers=three.slugs(0, 1))
    synchronize(gateway)
    answer = gateway.chat(alice.secret, three.model.slug, max_tokens=9)
    kept = Usage.objects.get(id=answer.headers["x-generation-id"]).plan
    assert kept is not None
    assert [line[1:4] for line in kept["offers"]] == [
        [three.providers[0].slug, FAILS, "priority"],
        [three.providers[1].slug, ANSWERS, "priority"],
    ]
    assert [line[1:4] for line in kept["out"]] == [[three.providers[2].slug, ANSWERS, "not_allowed"]]
    assert (kept["model"], kept["taken"], kept["by"]) == (three.model.slug, 2, "default")
    assert kept["policy"] == {"only_providers": sorted(three.slugs(0, 1))}
    assert kept["wanted"]["cap"] == 9
