"""The choice of a model: from what a request says, by weights that are rows. Pure, then through a gateway."""

from typing import Any

import pytest

from billing.models import Usage
from gateway.request.choosing import demand
from routing.health.health import Health
from routing.models import ChoiceWeight, Policy
from routing.planning.choice import ranked
from routing.planning.plan import Candidate
from routing.planning.policy import DEFAULT
from tests.protocols.openai_chat.requests import function, read
from tests.routing import plans
from tests.routing.plans import measured, planned, rates, wanting
from tests.simulated.process import SimulatedProvider
from tests.stage import shelf
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.speech import error, nothing_happened, speak

AUTO = ["auto", "meterline/auto", "zenmux/auto"]


def candidate(slug: str, price: str, quality: int, health: Health | None = None, **fields: Any) -> Candidate:
    """The first offer of a model."""
    id = sum(slug.encode())
    offer = plans.make_offer(id, versions=rates(input=price, output=price) if price else (), **fields)
    model = plans.make_model(
        offer, id=id, slug=slug, quality=quality, capabilities=("writing",) if quality > 60 else ()
    )
    return planned([model], wanting(), DEFAULT, health or Health(), 0).taken[0]


POOL = [candidate("a/small", "0.1", 30), candidate("b/middle", "1", 60), candidate("c/large", "10", 95)]


def weights() -> dict[tuple[str, str], float]:
    """Those that an installation begins with."""
    return {(row.word, row.term): row.weight for row in ChoiceWeight.objects.all()}


def best(*words: str, pool: list[Candidate] | None = None, **said: Any) -> str:
    """The slug of the model that is chosen."""
    chosen = ranked(pool or POOL, words, weights(), prompt_tokens=1000, **said)
    return chosen[0].candidate.model.slug


@pytest.mark.row("B171", "B173")
def test_what_is_said_decides() -> None:
    assert best("price") == "a/small"
    assert best("performance") == "c/large"
    assert best("balanced", "low") == best("performance", "low") == "a/small"
    assert best("balanced", "high") == best("price", "high") == "c/large"
    assert best("price", preferred="b/middle") == "b/middle"


@pytest.mark.row("B176")
def test_the_choice_is_repeatable_whatever_the_order_of_the_pool() -> None:
    first = ranked(POOL, ("balanced",), weights(), prompt_tokens=1000, demand=0.4)
    again = ranked(POOL[::-1], ("balanced",), weights(), prompt_tokens=1000, demand=0.4)
    assert [(one.candidate.model.slug, one.score) for one in first] == [
        (one.candidate.model.slug, one.score) for one in again
    ]
    twins = [candidate(slug, "1", 50) for slug in ("b/twin", "a/twin")]
    assert best("balanced", pool=twins) == "a/twin"


def test_a_score_is_the_sum_of_weighed_marks() -> None:
    (chosen,) = ranked([POOL[1]], ("x", "y"), {("x", "quality"): 2.0, ("y", "price"): 0.5}, prompt_tokens=1)
    assert chosen.marks == {
        "quality": 0.6,
        "price": 1.0,
        "latency": 0.5,
        "availability": 1.0,
        "parameters": 1.0,
        "demand": 0.0,
        "task": 0.0,
    }
    assert chosen.score == pytest.approx(2 * 0.6 + 0.5)


def test_marks_compare_with_the_best_of_the_pool() -> None:
    health = Health()
    offers = {slug: candidate(slug, price, 50) for slug, price in (("a/x", "1"), ("b/x", "4"), ("c/x", ""))}
    measured(health, offers["a/x"].offer, 1.0, tokens=0, seconds=0.0)
    measured(health, offers["b/x"].offer, 0.5, tokens=0, seconds=0.0)
    pool = [planned([one.model], wanting(), DEFAULT, health, 0).taken[0] for one in offers.values()]
    marks = {one.candidate.model.slug: one.marks for one in ranked(pool, ("price",), weights(), prompt_tokens=10)}
    assert [marks[slug]["price"] for slug in offers] == [1.0, 0.25, 0.0]
    assert [marks[slug]["latency"] for slug in offers] == [pytest.approx(0.5), 1.0, 0.5]


def test_a_task_that_is_a_capability_counts() -> None:
    pool = [candidate("a/plain", "1", 60), candidate("b/writer", "1", 61)]
    marks = {
        one.candidate.model.slug: one.marks["task"] for one in ranked(pool, (), {}, prompt_tokens=1, task="writing")
    }
    assert marks == {"a/plain": 0.0, "b/writer": 1.0}


def test_the_content_says_how_much_is_asked() -> None:
    assert demand(read()) < 0.01
    code = [{"role": "user", "content": "why?\n```\nx = 1\n```"}]
    assert demand(read(messages=code)) == pytest.approx(0.1, abs=0.01)
    assert demand(read(tools=[function("f")])) == pytest.approx(0.2, abs=0.01)
    assert demand(read(reasoning_effort="high", tools=[function("f")])) == pytest.approx(0.4, abs=0.01)
    assert demand(read(messages=[{"role": "user", "content": "x" * 40_000}])) == 0.3


# --- through a gateway ----------------------------------------------------------------------------------------------


class Pool:
    """A cheap, weak model and a dear, strong one, which a tenant's key may use alone."""

    def __init__(self, simulated: SimulatedProvider, tenant: Tenant, weak: str = "tokens=2", strong: str = "tokens=3"):
        provider = shelf.make_provider(simulated.base_url)
        self.weak = shelf.make_model(
            provider, f"sim-small?{weak}", shelf.make_tariff(input="0.1", output="0.1"), quality=20
        )
        self.strong = shelf.make_model(
            provider, f"sim-small?{strong}", shelf.make_tariff(input="9", output="9"), quality=95
        )
        self.slugs = [self.weak.slug, self.strong.slug]
        tenant.key.allowed_models = self.slugs
        tenant.key.save()


@pytest.fixture
def pool(gateway: Gateway, simulated: SimulatedProvider, alice: Tenant) -> Pool:
    """Both, and whoever may use them."""
    found = Pool(simulated, alice)
    synchronize(gateway)
    return found


def ask(gateway: Gateway, tenant: Tenant, model: str = "auto", **config: Any) -> Any:
    """The model that answers a request with this config."""
    answer = gateway.chat(tenant.secret, model, model_routing_config=config)
    assert answer.status_code == 200, answer.text
    return answer.json()["model"]


@pytest.mark.row("B073", "B170", "B171", "B173")
@pytest.mark.parametrize("name", AUTO)
def test_a_reserved_name_has_the_gateway_choose(gateway: Gateway, alice: Tenant, pool: Pool, name: str) -> None:
    weak, strong = pool.slugs
    assert ask(gateway, alice, name, available_models=pool.slugs, preference="price") == weak
    assert ask(gateway, alice, name, available_models=pool.slugs, preference="performance") == strong
    assert ask(gateway, alice, name, available_models=pool.slugs, preference=weak) == weak
    assert ask(gateway, alice, name, available_models=[strong], preference="price") == strong
    for complexity, chosen in (("low", weak), ("high", strong)):
        task = {"task_type": "chat", "complexity": complexity}
        assert ask(gateway, alice, name, available_models=pool.slugs, task_info=task) == chosen


@pytest.mark.row("B074", "B169")
def test_without_a_pool_it_chooses_among_all_of_the_key(gateway: Gateway, alice: Tenant, pool: Pool) -> None:
    assert ask(gateway, alice, preference="price") == pool.weak.slug
    answer = gateway.chat(alice.secret, "auto")
    assert answer.json()["model"] in pool.slugs


@pytest.mark.row("B074")
def test_a_strict_caller_must_name_a_config(gateway: Gateway, alice: Tenant, pool: Pool) -> None:
    speak(alice, "zenmux")
    alice.project.strict_params = True
    alice.project.save()
    synchronize(gateway)
    answer = gateway.chat(alice.secret, "zenmux/auto")
    assert answer.status_code == 400
    assert error(answer)["message"] == "Parameter model_routing_config is required when model is zenmux/auto"
    assert nothing_happened(alice)
    assert ask(gateway, alice, "zenmux/auto", preference="price") == pool.weak.slug


@pytest.mark.row("B175")
def test_beside_a_concrete_model_the_pool_is_its_fallback(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    found = Pool(simulated, alice, weak="status=503")
    synchronize(gateway)
    config = {"available_models": found.slugs}
    assert ask(gateway, alice, found.strong.slug, **config) == found.strong.slug
    assert ask(gateway, alice, found.weak.slug, **config) == found.strong.slug
    alone = gateway.chat(alice.secret, found.weak.slug, model_routing_config=config, provider={"fallback": False})
    assert alone.status_code == 503


@pytest.mark.row("B073", "B153")
def test_the_next_model_follows_a_chosen_one_that_failed(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    found = Pool(simulated, alice, weak="status=503")
    synchronize(gateway)
    assert ask(gateway, alice, available_models=found.slugs, preference="price") == found.strong.slug


@pytest.mark.row("B174", "B176")
def test_the_choice_is_kept_with_the_generation(gateway: Gateway, alice: Tenant, pool: Pool) -> None:
    config = {
        "available_models": pool.slugs,
        "preference": "price",
        "task_info": {"task_type": "summary", "complexity": "low", "additional_properties": {"b": [1]}},
        "additional_properties": {"a": "x" * 5000},
    }
    answer = gateway.chat(alice.secret, "auto", model_routing_config=config)
    plan = Usage.objects.get(id=answer.headers["x-generation-id"]).plan
    assert plan is not None
    kept = plan["choice"]
    assert [slug for slug, _ in kept.pop("models")] == pool.slugs
    assert kept == {
        "preference": "price",
        "demand": kept["demand"],
        "task_type": "summary",
        "complexity": "low",
        "additional": None,  # too long to keep
        "task_additional": {"b": [1]},
    }
    assert [line[-1] for line in plan["offers"]][1:] == [pool.strong.slug]


@pytest.mark.row("B168", "B169")
@pytest.mark.parametrize("field", ["available_models", "preference"])
@pytest.mark.parametrize("pin", ["", ":provider"])
def test_a_model_the_key_has_not_is_refused(gateway: Gateway, alice: Tenant, pool: Pool, field: str, pin: str) -> None:
    name = pool.slugs[0] + pin if pin else "no/such"  # a pool is of models: a pin has no place in it
    config = {"available_models": [*pool.slugs, name]} if field == "available_models" else {field: name}
    answer = gateway.chat(alice.secret, "auto", model_routing_config=config)
    assert (answer.status_code, error(answer)["code"]) == (404, "model_not_found")
    assert error(answer)["param"] == f"model_routing_config.{field}"
    assert nothing_happened(alice)


def test_a_model_that_no_policy_lets_through_is_not_chosen(gateway: Gateway, alice: Tenant, pool: Pool) -> None:
    Policy.objects.create(level="model", model=pool.weak, only_providers=["nobody"])
    synchronize(gateway)
    assert ask(gateway, alice, preference="price") == pool.strong.slug


def test_a_key_without_any_model_is_told_so(gateway: Gateway, charlie: Tenant) -> None:
    charlie.key.allowed_models = ["gone/since"]
    charlie.key.save()
    synchronize(gateway)
    answer = gateway.chat(charlie.secret, "auto")
    assert (answer.status_code, error(answer)["code"]) == (502, "no_provider_available")
    assert nothing_happened(charlie)


def test_operators_weigh(gateway: Gateway, alice: Tenant, pool: Pool) -> None:
    row = ChoiceWeight.objects.create(word="medium", term="price", weight=-1000)
    try:
        synchronize(gateway)
        task = {"task_type": "chat", "complexity": "medium"}
        assert ask(gateway, alice, preference="price", task_info=task) == pool.strong.slug
    finally:
        row.delete()
