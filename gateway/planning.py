"""Where one request may go: from the names in it and the policies over it to a `Call`.

model       by slug or alias; `model:provider` is pinned to that provider; the auto model is chosen from a pool
policy      the request's wish in its body, then in its headers, over the key's, the project's, the model's
fallback    yes, no, a provider, or a model that follows
plan        `routing.plan` over these, and what each offer takes of the parameters
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from accounts.callers import Caller
from gateway import choosing
from gateway.attribution import calling_app
from gateway.dialects import Dialect, named
from gateway.errors import Forbidden, GatewayError, InvalidRequest, UpstreamFault
from gateway.header_fields import NO_FIELDS, Fields
from gateway.naming import chats, find, find_model, pool, reachable
from gateway.parameters import check_modalities, fit, missing, supported_by
from gateway.process import Process
from gateway.protocols.openai_chat import ChatRequest, Fit
from gateway.seats import conversation
from gateway.snapshot import Snapshot
from gateway.wishes import pinned, wish
from routing.catalog import Model
from routing.choice import Chosen
from routing.faults import Fault
from routing.ordering import Reason
from routing.plan import Candidate, Plan, Wanted, plan
from routing.policy import DEFAULT, Policy, falling_back
from routing.prospect import prospect

NO_MODALITIES: frozenset[str] = frozenset()


@dataclass(slots=True)
class Call:
    """What is asked, by whom, and where it may go.

    - `model`: the one that was asked for, or chosen; a candidate says which it is of
    - `plan`: its `taken` candidates, at least one, are tried in order
    - `conversation`: where to note who answered (`gateway.seats`); None: that is of no use
    - `dialled`: the candidate that is being tried, or answers
    - `explain`: the client wants the plan told
    """

    id: str  # 32 hex digits
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
    _fits: dict[tuple[tuple[str, ...], str, str], Fit] = field(default_factory=dict)

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
        place = (offer.supported_parameters, candidate.model.slug, offer.provider.reasoning_format)
        found = self._fits.get(place)
        if found is None:
            found = self._fits[place] = fit_of(
                self.asked, candidate.model, place[0], self.dialect, thoughts=offer.provider.reasoning_format
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
    id: str,
    request_id: str = "",
    fields: Fields = NO_FIELDS,
    *,
    looking: bool = False,
) -> Call:
    """Finds where a request may go. `fields` are its headers; who is only `looking` takes no turn.

    Raises `NotFound`, `InvalidRequest`, `Forbidden` or `UpstreamFault` when that is nowhere. Nothing is dialled.
    """
    dialect = named(caller.dialect)
    wished = wish(asked, fields, dialect)
    model: Model | None = None
    if asked.model not in dialect.auto_models:
        model, provider = find(snapshot, caller, asked.model)
        if provider is not None:
            wished = pinned(wished, provider)
    others = _pool(snapshot, caller, asked, model)
    _check_providers(snapshot, wished)

    def policy_of(one: Model) -> Policy:
        return snapshot.policies.of(caller.key, caller.project, one.id, wished)

    models = others if model is None else [model, *others]
    refusals: list[InvalidRequest] = []
    wanted, seed = _wanted(asked, caller), int(id[-8:], 16)
    routes = [(one, policy_of(one)) for one in models]
    wanted.lacking = _lacking(asked, caller, routes, refusals)
    chosen: list[Chosen] = []
    policy = routes[0][1] if routes else DEFAULT
    if others:
        said = asked.model_routing
        first = reachable(snapshot, caller, said.preferred) if said is not None and said.preferred else None
        weights = snapshot.policies.weights
        chosen = choosing.choose(others, asked, wanted, policy_of, process.health, seed, weights, first)
        ranked = [one.candidate.model for one in chosen] or others[: choosing.MOST_CHOSEN]
        models = ranked if model is None else [model, *ranked]
        policy = policy_of(models[0])
    elif model is None:
        raise UpstreamFault(Fault.UNREACHABLE, "no model to choose", code="no_provider_available")
    policy, models = _following(snapshot, caller, policy, wished, models)
    if policy.strategy == "round_robin":
        turn = process.rotations.coming if looking else process.rotations.turn
        wanted.turn = turn((caller.organization, models[0].id, policy.providers))
    place = _seat(asked, caller, models[0], policy, wanted)
    if place is not None:
        wanted.seat = process.seats.offer(place, wanted.clock)
    behind = [falling_back(policy_of(one), True) for one in models[1:]]
    found = plan(models, wanted, policy, process.health, seed, behind)
    if others:
        found.choice = choosing.record(chosen, asked)
    if not found.taken:
        try:
            raise _nowhere(found, asked, refusals)
        except GatewayError as error:
            error.plan = found
            raise
    return Call(id, caller, asked, models[0], found, dialect, request_id, calling_app(fields), place)


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
    """The models to choose among, or to follow the named one; none where nothing is to be chosen."""
    said = asked.model_routing
    if said is None:
        if model is not None:
            return []
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


def _check_providers(snapshot: Snapshot, wished: Policy | None) -> None:
    """Raises `UpstreamFault` for a wished provider that nobody has."""
    for slug in (wished.providers if wished is not None else None) or ():
        if slug.partition("/")[0] not in snapshot.catalog.providers:
            raise UpstreamFault(
                Fault.UNREACHABLE,
                "no such provider",
                message=f"No provider is available: none has the name '{slug}'.",
                code="no_provider_available",
            )


def _following(
    snapshot: Snapshot, caller: Caller, policy: Policy, wished: Policy | None, models: list[Model]
) -> tuple[Policy, list[Model]]:
    """The first model's policy, and which models are asked, once its fallback is known for what it is.

    A name may be a provider's or a model's. One that the request says must be either; one that an operator wrote, and
    that is gone since, is as if there were none.
    """
    name = policy.fallback
    if not isinstance(name, str):
        return policy, models if name else models[:1]
    providers = snapshot.catalog.providers
    if name in providers:
        return policy, models[:1]
    model = reachable(snapshot, caller, name)
    if model is not None and chats(model):
        return falling_back(policy, True), models[:1] if model is models[0] else [models[0], model]
    if name.partition("/")[0] in providers:
        return policy, models[:1]
    if wished is not None and wished.fallback == name:
        raise InvalidRequest(
            "Parameter provider.fallback must be true, false, or the name of a provider or of a model that this key "
            "may use.",
            code="invalid_value",
            param="provider.fallback",
        )
    return falling_back(policy, True), models


def _seat(asked: ChatRequest, caller: Caller, model: Model, policy: Policy, wanted: Wanted) -> int | None:
    """Where the conversation's last provider is noted, if it matters who that was."""
    if len(model.offers) < 2 or policy.providers is not None:
        return None
    if not asked.thoughts and not prospect(model, policy).keeps_seats(wanted.now):
        return None
    return conversation(caller.project, model.id, asked.body["messages"])


def _lacking(
    asked: ChatRequest, caller: Caller, routes: Sequence[tuple[Model, Policy]], refusals: list[InvalidRequest]
) -> dict[tuple[int, tuple[str, ...]], int]:
    """How many parameters the offers ignore, by model and list; a strict caller's refusals are added to `refusals`."""
    found: dict[tuple[int, tuple[str, ...]], int] = {}
    for model, policy in routes:
        kinds = prospect(model, policy).kinds
        if len(routes) < 2 and len(kinds) < 2 and not caller.strict_params:
            continue  # nothing to prefer
        for kind in kinds:
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
