"""Where one request may go: from the names in it and the policies over it to a `Call`.

model       by slug or alias; `model:provider` is pinned to that provider; the auto model is chosen from a pool
policy      the request's wish in its body, then in its headers, over the key's, the project's, the model's
fallback    yes, no, a provider, or a model that follows
plan        `routing.plan` over these, and what each offer takes of the parameters
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from accounts.callers import Caller
from gateway import choosing
from gateway.attribution import calling_app
from gateway.dialects import Dialect, named
from gateway.errors import Forbidden, GatewayError, InvalidRequest, UpstreamFault
from gateway.naming import chats, find, find_model, pool, reachable
from gateway.parameters import check_modalities, fit, missing, supported_by
from gateway.process import Process
from gateway.protocols.openai_chat import ChatRequest, Fit
from gateway.seats import conversation
from gateway.snapshot import Snapshot
from gateway.wishes import NO_HEADERS, pinned, wish
from routing.catalog import Model
from routing.faults import Fault
from routing.ordering import Reason
from routing.plan import Candidate, Plan, Wanted, plan
from routing.policy import Policy, falling_back
from routing.prospect import Prospect, prospect

NO_MODALITIES: frozenset[str] = frozenset()


class Call(Struct):
    """What is asked, by whom, and where it may go.

    - `model`: the one that was asked for, or chosen; a candidate says which it is of
    - `plan`: its `taken` candidates, at least one, are tried in order
    - `conversation`: where to note who answered (`gateway.seats`); None: that is of no use
    - `dialled`: the candidate that is being tried, or answers
    - `explain`: the client wants the plan told
    """

    id: UUID
    caller: Caller
    asked: ChatRequest
    model: Model
    plan: Plan
    dialect: Dialect  # the caller's
    request_id: str = ""
    app: str | None = None  # which application calls, in its own words
    conversation: int | None = None
    dialled: Candidate | None = None
    explain: bool = False
    _fits: dict[int, Fit] = {}  # by offer

    @property
    def offers(self) -> list[Candidate]:
        """The plan's taken candidates."""
        return self.plan.taken

    @property
    def input_tokens(self) -> int:
        """An upper bound, whichever offer reads them."""
        return self.plan.input_tokens

    def fit(self, candidate: Candidate) -> Fit:
        """How an offer takes the parameters."""
        offer = candidate.offer
        found = self._fits.get(offer.id)
        if found is None:
            found = self._fits[offer.id] = fit_of(
                self.asked,
                candidate.model,
                offer.supported_parameters,
                self.dialect,
                thoughts=offer.provider.reasoning_format,
            )
        return found

    @property
    def ignored(self) -> tuple[str, ...]:
        """Parameters that the answer does without, as the offer that gives it takes them."""
        return self.fit(self.dialled or self.plan.taken[0]).named


def fit_of(
    asked: ChatRequest,
    model: Model,
    parameters: tuple[str, ...],
    dialect: Dialect,
    *,
    strict: bool = False,
    thoughts: str = "",
) -> Fit:
    """How an offer of `model` that takes these parameters meets a request. Raises `InvalidRequest` if `strict`."""
    supported = supported_by(parameters, model.capabilities)
    return fit(asked, supported, dialect, strict=strict, speaks=model.output_modalities, thoughts=thoughts)


def prepare(
    process: Process,
    snapshot: Snapshot,
    caller: Caller,
    asked: ChatRequest,
    id: UUID,
    request_id: str = "",
    meta: Mapping[str, Any] = NO_HEADERS,
    *,
    looking: bool = False,
) -> Call:
    """Finds where a request may go. `meta` are its headers as WSGI spells them; who is only `looking` takes no turn.

    Raises `NotFound`, `InvalidRequest`, `Forbidden` or `UpstreamFault` when that is nowhere. Nothing is dialled.
    """
    dialect = named(caller.dialect)
    wished = wish(asked, meta, dialect)
    model: Model | None = None
    if asked.model not in dialect.auto_models:
        model, provider = find(snapshot, caller, asked.model)
        if provider is not None:
            wished = pinned(wished, provider)
    pooled = _pool(snapshot, caller, asked, model) if model is None or asked.model_routing is not None else []
    if wished is not None:
        _check_providers(snapshot, wished)

    def under_policy(one: Model) -> Prospect:
        return prospect(one, snapshot.policies.of(caller.key, caller.project, one.id, wished))

    others = list(map(under_policy, pooled))
    ways = others if model is None else [under_policy(model), *others]
    if not ways:
        raise UpstreamFault(Fault.UNREACHABLE, "no model to choose", code="no_provider_available")
    wanted, seed = _wanted(asked, caller), id.int & 0xFFFFFFFF
    refusals: list[InvalidRequest] = []
    if caller.strict_params or len(ways) > 1 or len(ways[0].kinds) > 1:
        wanted.lacking = _lacking(asked, caller, ways, refusals)
    choice: dict[str, Any] | None = None
    if others:
        said = asked.model_routing
        first = reachable(snapshot, caller, said.preferred) if said is not None and said.preferred else None
        chosen = choosing.choose(others, asked, wanted, process.health, seed, snapshot.policies.weights, first)
        ranked = [under_policy(one.candidate.model) for one in chosen] or others[: choosing.MOST_CHOSEN]
        ways = ranked if model is None else [ways[0], *ranked]
        choice = choosing.record(chosen, asked)
    if len(ways) > 1 or ways[0].policy.fallback is not True:
        ways = _following(snapshot, caller, wished, ways, under_policy)
    way = ways[0]
    if way.policy.strategy == "round_robin":
        turn = process.rotations.coming if looking else process.rotations.turn
        wanted.turn = turn((caller.organization, way.model.id, way.policy.providers))
    place = _seat(asked, caller, way, wanted) if way.seats else None
    if place is not None:
        wanted.seat = process.seats.offer(place, wanted.clock)
    found = plan(ways, wanted, process.health, seed)
    found.choice = choice
    if not found.taken:
        try:
            raise _nowhere(found, asked, refusals)
        except GatewayError as error:
            error.plan = found
            raise
    return Call(id, caller, asked, way.model, found, dialect, request_id, calling_app(meta), place)


def _wanted(asked: ChatRequest, caller: Caller) -> Wanted:
    return Wanted(
        asked.text_bytes,
        asked.output_cap if asked.output_cap is not None else caller.default_output_cap,
        asked.n,
        caller.max_request_price,
        datetime.now(UTC),
        clock=time.monotonic(),
        images=asked.images,
        audios=asked.audios,
        files=asked.files,
        modalities=frozenset(asked.modalities) if asked.modalities else NO_MODALITIES,
        strict=caller.strict_params,
        formats=asked.thoughts,
    )


def _pool(snapshot: Snapshot, caller: Caller, asked: ChatRequest, model: Model | None) -> list[Model]:
    """The models to choose among, or to follow the named one."""
    said = asked.model_routing
    if said is None:
        if caller.strict_params:
            raise InvalidRequest(
                named(caller.dialect).messages["auto_without_config"].format(model=asked.model),
                code="missing_required_parameter",
                param="model_routing_config",
            )
        return pool(snapshot, caller, None)
    if said.preferred is not None:
        find_model(snapshot, caller, said.preferred, "model_routing_config.preference")
    found = pool(snapshot, caller, said.models)
    return [one for one in found if one is not model]


def _check_providers(snapshot: Snapshot, wished: Policy) -> None:
    """Raises `UpstreamFault` for a wished provider that nobody has."""
    for slug in wished.providers or ():
        if slug.partition("/")[0] not in snapshot.catalog.providers:
            raise UpstreamFault(
                Fault.UNREACHABLE,
                "no such provider",
                message=f"No provider is available: none has the name '{slug}'.",
                code="no_provider_available",
            )


def _following(
    snapshot: Snapshot,
    caller: Caller,
    wished: Policy | None,
    ways: list[Prospect],
    under_policy: Callable[[Model], Prospect],
) -> list[Prospect]:
    """The ways that are gone, once the first one's fallback is known for what it is.

    A name may be a provider's or a model's. One that the request says must be either; one that an operator wrote, and
    that is gone since, is as if there were none.
    """
    first, name = ways[0], ways[0].policy.fallback
    if isinstance(name, str):
        providers = snapshot.catalog.providers
        if name in providers:
            return [first]
        model = reachable(snapshot, caller, name)
        if model is not None and chats(model):
            ways = [first] if model is first.model else [first, under_policy(model)]
        elif name.partition("/")[0] in providers:
            return [first]
        elif wished is not None and wished.fallback == name:
            raise InvalidRequest(
                "Parameter provider.fallback must be true, false, or the name of a provider or of a model that this "
                "key may use.",
                code="invalid_value",
                param="provider.fallback",
            )
        first = prospect(first.model, falling_back(first.policy, True))
    elif not name:
        return [first]
    return [first, *(prospect(other.model, falling_back(other.policy, True)) for other in ways[1:])]


def _seat(asked: ChatRequest, caller: Caller, way: Prospect, wanted: Wanted) -> int | None:
    """Where the conversation's last provider is noted, if it matters who that was."""
    if not asked.thoughts and not way.keeps_seats(wanted.now):
        return None
    return conversation(caller.project, way.model.id, asked.body["messages"])


def _lacking(
    asked: ChatRequest, caller: Caller, ways: Sequence[Prospect], refusals: list[InvalidRequest]
) -> dict[tuple[int, tuple[str, ...]], int]:
    """How many parameters the offers ignore, by model and list; a strict caller's refusals are added to `refusals`."""
    found: dict[tuple[int, tuple[str, ...]], int] = {}
    for way in ways:
        model = way.model
        for kind in way.kinds:
            place = (model.id, kind.parameters)
            if caller.strict_params:
                try:
                    fit_of(asked, model, kind.parameters, named(caller.dialect), strict=True)
                except InvalidRequest as refusal:
                    refusals.append(refusal)
                    found[place] = 1
            elif lacks := len(
                missing(asked, supported_by(kind.parameters, model.capabilities), model.output_modalities)
            ):
                found[place] = lacks
    return found


def _nowhere(found: Plan, asked: ChatRequest, refusals: list[InvalidRequest]) -> Exception:
    """What the client is told when no offer is left."""
    candidates = found.candidates()
    reasons = {candidate.reason for candidate in candidates}
    if Reason.COOLING in reasons:
        seconds = found.retry_after(found.wanted.clock) or 0.0
        return UpstreamFault(Fault.RATE_LIMITED, "every offer cools", retry_after=max(1, -int(-seconds // 1)))
    if reasons & {Reason.TOO_DEAR, Reason.UNPRICED}:
        return Forbidden(
            "At its worst this request costs more than the key's highest price a request. "
            "Ask for fewer output tokens, or raise it.",
            code="request_too_expensive",
        )
    if Reason.MODALITY in reasons:
        for candidate in candidates:
            if candidate.reason is Reason.MODALITY:
                check_modalities(asked, candidate.offer.input_modalities)
    if Reason.PARAMETERS in reasons:
        return refusals[0]
    slugs = sorted({candidate.model.slug for candidate in candidates})
    return UpstreamFault(Fault.UNREACHABLE, f"no usable offer of {', '.join(slugs)}", code="no_provider_available")
