"""What holds of every plan, whatever the offers, the policy, the request and the weather."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from routing.catalog import Offer
from routing.health.faults import Fault
from routing.health.health import Health
from routing.planning.plan import Plan, Wanted
from routing.planning.policy import Policies, Policy, over, together, wished
from tests.routing.plans import make_model, make_offer, make_provider, measured, planned, rates, wanting

PROVIDERS = ("north", "south", "east", "west")
SLUGS = (*PROVIDERS, "north/a", "south/b", "nowhere")
KEY, PROJECT, MODEL = 1, 2, 3

slugs = st.sampled_from(SLUGS)
strategies = st.sampled_from((None, "priority", "order", "round_robin", "least_latency"))
factors = st.sampled_from((None, "price", "latency", "throughput", "quality"))
fallbacks = st.one_of(st.none(), st.booleans(), slugs)
lists = st.one_of(st.none(), st.lists(slugs, min_size=1, max_size=4, unique=True).map(tuple))

# A request's own words; the rest is for operators alone.
wishes = st.builds(Policy, strategies, factors, lists, fallback=fallbacks)
policies = st.builds(
    Policy,
    strategies,
    factors,
    lists,
    st.one_of(st.none(), st.frozensets(slugs, max_size=3)),
    fallbacks,
    st.one_of(st.none(), st.integers(1, 5)),
    refuses_training=st.booleans(),
    refuses_retention=st.booleans(),
)
tariffs = st.one_of(
    st.just(()),
    st.builds(lambda a, b: rates(input=str(a), output=str(b)), st.integers(0, 9), st.integers(0, 9)),
    st.builds(lambda a: rates(input=str(a), output="2", cached_input="0.1"), st.integers(1, 9)),
)


@st.composite
def offers(draw: st.DrawFn) -> tuple[Offer, ...]:
    """Up to six offers, in any order."""
    found = []
    for id in range(1, draw(st.integers(0, 6)) + 1):
        provider = make_provider(
            draw(st.sampled_from(PROVIDERS)),
            trains_on_data=draw(st.booleans()),
            retains_data=draw(st.booleans()),
            reasoning_format=draw(st.sampled_from(("", "x-v1", "y-v1"))),
        )
        fields: dict[str, Any] = {
            "upstream_model": draw(st.sampled_from(("a", "b"))),
            "priority": draw(st.integers(0, 2)),
            "weight": draw(st.integers(0, 3)),
            "context_length": draw(st.sampled_from((0, 100, 100_000))),
            "max_output": draw(st.sampled_from((10, 1000))),
            "input_modalities": draw(st.sampled_from(((), ("text",), ("text", "image")))),
            "supported_parameters": draw(st.sampled_from(((), ("seed",)))),
            "quality": draw(st.integers(0, 100)),
            "forced": draw(st.sampled_from(("", "", "open", "closed"))),
            "versions": draw(tariffs),
        }
        if draw(st.integers(0, 5)) == 0:
            fields["credentials"] = ()
        found.append(make_offer(id, provider, **fields))
    return tuple(draw(st.permutations(found)))


@st.composite
def requests(draw: st.DrawFn) -> Wanted:
    """Any request."""
    return wanting(
        text_bytes=draw(st.sampled_from((0, 400, 40_000))),
        output_cap=draw(st.one_of(st.none(), st.integers(1, 2000))),
        copies=draw(st.integers(1, 3)),
        max_price=draw(st.one_of(st.none(), st.decimals(0, 1, places=4))),
        modalities=draw(st.sampled_from((frozenset(), frozenset({"image"})))),
        lacking=draw(st.sampled_from(({}, {(1, ("seed",)): 2}))),
        strict=draw(st.booleans()),
        formats=draw(st.sampled_from((frozenset(), frozenset({"x-v1"})))),
        seat=draw(st.one_of(st.none(), st.integers(1, 6))),
        turn=draw(st.integers(0, 10)),
    )


@st.composite
def weathers(draw: st.DrawFn) -> list[tuple[int, str]]:
    """What happened to offers before the request."""
    happened = st.tuples(st.integers(1, 6), st.sampled_from(("fast", "slow", "fails", "limits", "auth")))
    return draw(st.lists(happened, max_size=5))


def health(found: Sequence[Offer], happened: Sequence[tuple[int, str]]) -> Health:
    """A health that has seen it."""
    made, by_id = Health(), {offer.id: offer for offer in found}
    for id, what in happened:
        offer = by_id.get(id)
        if offer is None or not offer.credentials:
            continue
        if what in ("fast", "slow"):
            measured(made, offer, 0.1 if what == "fast" else 3.0)
        elif what == "fails":
            for _ in range(5):
                made.begin(offer, offer.credentials[0], -1.0).failed(Fault.SERVER_ERROR, -1.0)
        else:
            fault = Fault.RATE_LIMITED if what == "limits" else Fault.AUTH
            made.begin(offer, offer.credentials[0], -1.0).failed(fault, -1.0, 20.0)
    return made


def made(
    found: Sequence[Offer], wanted: Wanted, policy: Policy, happened: Sequence[tuple[int, str]] = (), seed: int = 0
) -> Plan:
    """The plan of it all."""
    return planned([make_model(*found)], wanted, policy, health(found, happened), seed)


@given(offers(), requests(), policies, weathers(), st.integers(0, 2**32 - 1))
def test_every_offer_is_there_once_and_none_left_out_is_taken(
    found: tuple[Offer, ...], wanted: Wanted, policy: Policy, happened: list[tuple[int, str]], seed: int
) -> None:
    held = together([policy])
    planned = made(found, wanted, held, happened, seed)
    candidates = planned.candidates()
    assert sorted(one.offer.id for one in candidates) == sorted(offer.id for offer in found)
    ordered = [one for one in candidates if one.position is not None]
    assert [one.position for one in ordered] == list(range(len(ordered)))
    assert [one.offer.id for one in ordered] == [one.offer.id for one in planned.ordered()]
    assert [one.offer.id for one in planned.taken] == [one.offer.id for one in ordered[: held.max_attempts]]
    assert [one.taken for one in candidates] == [
        one.position is not None and one.position < (held.max_attempts or 1) for one in candidates
    ]
    for one in ordered:
        assert one.offer.forced != "open"
        assert one.credential in one.offer.credentials
        assert one.output_cap <= one.offer.max_output


@given(offers(), requests(), policies, weathers(), st.integers(0, 2**32 - 1), st.randoms())
def test_of_equal_arguments_equal_plans_in_whatever_order_the_offers_come(
    found: tuple[Offer, ...],
    wanted: Wanted,
    policy: Policy,
    happened: list[tuple[int, str]],
    seed: int,
    rng: Any,
) -> None:
    held = together([policy])
    first = made(found, wanted, held, happened, seed)
    assert made(found, msgspec.structs.replace(wanted), held, happened, seed).record() == first.record()
    shuffled = list(found)
    rng.shuffle(shuffled)
    assert made(shuffled, wanted, held, happened, seed).record() == first.record()


@given(offers(), requests(), policies, st.sampled_from(("only", "training", "retention", "fallback")))
def test_a_narrower_policy_never_adds_an_offer(
    found: tuple[Offer, ...], wanted: Wanted, policy: Policy, how: str
) -> None:
    # A small context is a last resort, so it may come in where a policy excludes the others.
    found = tuple(replace(offer, context_length=0) for offer in found)
    wide = together([policy])
    narrow = {
        "only": over(wide, Policy(only_providers=frozenset(SLUGS[:2]))),
        "training": replace(wide, refuses_training=True),
        "retention": replace(wide, refuses_retention=True),
        "fallback": replace(wide, fallback=True),
    }[how]
    if how == "fallback":
        wide, narrow = narrow, replace(wide, fallback=False)
    elif wide.fallback is not True:
        wide, narrow = replace(wide, fallback=True), replace(narrow, fallback=True)
    reached = {one.offer.id for one in made(found, wanted, wide).ordered()}
    assert {one.offer.id for one in made(found, wanted, narrow).ordered()} <= reached


@given(offers(), requests(), policies, weathers(), st.decimals(0, Decimal("0.01"), places=5))
def test_no_plan_is_dearer_than_the_highest_price(
    found: tuple[Offer, ...], wanted: Wanted, policy: Policy, happened: list[tuple[int, str]], most: Decimal
) -> None:
    for one in made(found, msgspec.structs.replace(wanted, max_price=most), together([policy]), happened).ordered():
        worst = one.worst.at(one.output_cap)
        assert worst is not None
        assert worst <= most


@given(offers(), requests(), wishes, st.lists(policies, min_size=1, max_size=4), weathers())
def test_no_request_gets_past_what_operators_allow(
    found: tuple[Offer, ...],
    wanted: Wanted,
    wish: Policy,
    levels: list[Policy],
    happened: list[tuple[int, str]],
) -> None:
    held = together([wish, *levels])
    for one in made(found, wanted, held, happened).ordered():
        provider = one.offer.provider
        names = {provider.slug, f"{provider.slug}/{one.offer.upstream_model}"}
        assert all(level.only_providers is None or names & level.only_providers for level in levels)
        assert not (provider.trains_on_data and any(level.refuses_training for level in levels))
        assert not (provider.retains_data and any(level.refuses_retention for level in levels))


@given(offers(), requests(), lists, weathers())
def test_an_explicit_order_is_kept(
    found: tuple[Offer, ...], wanted: Wanted, listed: tuple[str, ...] | None, happened: list[tuple[int, str]]
) -> None:
    held = together([Policy("order", "price", listed, fallback=False)])
    ordered = made(found, wanted, held, happened).ordered()
    if listed is None:
        assert len(ordered) <= 1
        return
    places = [
        min(place for place, slug in enumerate(listed) if slug.partition("/")[0] == one.offer.provider.slug)
        for one in ordered
        if one.reason == "listed"
    ]
    assert all(one.reason in ("listed", "last") for one in ordered)
    exact = not any("/" in slug for slug in listed)  # an endpoint may part the offers of one provider
    assert places == sorted(places) or not exact


@given(wishes, policies, policies, policies, policies)
def test_levels_add_up_the_same_however_they_are_grouped(
    wish: Policy, key: Policy, project: Policy, model: Policy, everything: Policy
) -> None:
    levels = [key, project, model, everything]
    assert together([wish, *levels]) == over(wish, together(levels)) == wished(wish, together(levels))


@given(st.lists(st.one_of(st.none(), policies), min_size=4, max_size=4), st.one_of(st.none(), wishes))
def test_the_first_level_that_speaks_decides(levels: list[Policy | None], wish: Policy | None) -> None:
    names = ("key", "project", "model", "global")
    key, project, model, everything = (
        None if level is None else replace(level, source=name) for name, level in zip(names, levels, strict=True)
    )
    held = Policies(
        everything,
        {} if key is None else {KEY: key},  # type: ignore[dict-item]
        {} if project is None else {PROJECT: project},  # type: ignore[dict-item]
        {} if model is None else {MODEL: model},
    ).of(KEY, PROJECT, MODEL, None if wish is None else replace(wish, source="request"))  # type: ignore[arg-type]
    said = [level for level in (wish, key, project, model, everything) if level is not None]
    for name, usual in (("fallback", True), ("max_attempts", 3)):
        words = [word for level in said if (word := getattr(level, name)) is not None]
        assert getattr(held, name) == (words[0] if words else usual)
    order = [level for level in said if level.strategy or level.providers]
    assert held.providers == (order[0].providers if order else None)
