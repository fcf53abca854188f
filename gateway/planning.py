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
from uuid import UUID

from accounts.callers import Caller
from gateway.dialects import Dialect, named
from gateway.errors import Fault, Forbidden, InvalidRequest, NotFound, UpstreamFault
from gateway.parameters import check_modalities, fit, missing, supported_by
from gateway.process import Process
from gateway.protocols.openai_chat import ChatRequest, Fit
from gateway.snapshot import Snapshot
from routing.catalog import Model
from routing.ordering import Reason
from routing.plan import Candidate, Plan, Wanted, plan
from routing.policy import Policy, falling_back
from routing.prospect import prospect

# What a chat's answer can hold; a model known to make nothing of it is for another endpoint.
ANSWERS = frozenset({"text", "audio", "image"})
NO_MODALITIES: frozenset[str] = frozenset()


@dataclass(slots=True)
class Call:
    """What is asked, by whom, and where it may go.

    - `model`: the one that was asked for, or chosen; a candidate says which it is of
    - `plan`: its `taken` candidates, at least one, are tried in order
    - `dialled`: the candidate that is being tried, or answers
    """

    id: UUID
    caller: Caller
    asked: ChatRequest
    model: Model
    plan: Plan
    request_id: str = ""
    dialled: Candidate | None = None
    _fits: dict[tuple[tuple[str, ...], str], Fit] = field(default_factory=dict)

    @property
    def offers(self) -> list[Candidate]:
        """The plan's taken candidates."""
        return self.plan.taken

    @property
    def input_tokens(self) -> int:
        """An upper bound, whichever offer reads them."""
        return self.plan.input_tokens

    @property
    def dialect(self) -> Dialect:
        """The caller's."""
        return named(self.caller.dialect)

    def fit(self, candidate: Candidate) -> Fit:
        """How an offer takes the parameters."""
        model, parameters = candidate.model, candidate.offer.supported_parameters
        place = (parameters, model.slug)
        found = self._fits.get(place)
        if found is None:
            found = self._fits[place] = fit_of(self.asked, model, parameters, self.dialect)
        return found

    @property
    def ignored(self) -> tuple[str, ...]:
        """Parameters that the answer does without, as the offer that gives it takes them."""
        return self.fit(self.dialled or self.plan.taken[0]).named


def fit_of(
    asked: ChatRequest, model: Model, parameters: tuple[str, ...], dialect: Dialect, *, strict: bool = False
) -> Fit:
    """How an offer of `model` that takes these parameters meets a request. Raises `InvalidRequest` if `strict`."""
    supported = supported_by(parameters, model.capabilities)
    return fit(asked, supported, dialect, strict=strict, speaks=model.output_modalities)


def prepare(
    process: Process, snapshot: Snapshot, caller: Caller, asked: ChatRequest, id: UUID, request_id: str = ""
) -> Call:
    """Finds where a request may go.

    Raises `NotFound`, `InvalidRequest`, `Forbidden` or `UpstreamFault` when that is nowhere. Nothing is dialled.
    """
    model = _model(snapshot, caller, asked)
    policy = snapshot.policies.of(caller.key, caller.project, model.id, _wish(asked))
    if isinstance(policy.fallback, str) and policy.fallback not in snapshot.catalog.providers:
        policy = falling_back(policy, True)
    refusals: list[InvalidRequest] = []
    wanted = Wanted(
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
        lacking=_lacking(asked, caller, (model,), policy, refusals),
        strict=caller.strict_params,
    )
    found = plan((model,), wanted, policy, process.health, id.int & 0xFFFFFFFF)
    if not found.taken:
        raise _nowhere(found, asked, refusals)
    return Call(id, caller, asked, model, found, request_id)


def _model(snapshot: Snapshot, caller: Caller, asked: ChatRequest) -> Model:
    model = snapshot.catalog.by_name.get(asked.model)
    if model is None or (caller.allowed_models and model.slug not in caller.allowed_models):
        # One answer for both: a key does not learn what others may use.
        raise NotFound(
            named(caller.dialect).messages["model_invalid"].format(model=asked.model),
            code="model_not_found",
            param="model",
        )
    if model.output_modalities and ANSWERS.isdisjoint(model.output_modalities):
        raise NotFound(
            f"The model '{asked.model}' does not chat: it makes {', '.join(model.output_modalities)}.",
            code="model_not_supported",
            param="model",
        )
    return model


def _wish(asked: ChatRequest) -> Policy | None:
    wish = asked.routing
    if wish is None:
        return None
    return Policy(wish.strategy, wish.factor, wish.providers, fallback=wish.fallback, source="request")


def _lacking(
    asked: ChatRequest, caller: Caller, models: Sequence[Model], policy: Policy, refusals: list[InvalidRequest]
) -> dict[tuple[str, ...], int]:
    """How many parameters the offers ignore, by the lists they have; a strict caller's refusals are added to."""
    found: dict[tuple[str, ...], int] = {}
    for model in models:
        kinds = prospect(model, policy).kinds
        if len(kinds) < 2 and not caller.strict_params:
            continue  # nothing to prefer
        for kind in kinds:
            parameters = kind.parameters
            if caller.strict_params:
                try:
                    fit_of(asked, model, parameters, named(caller.dialect), strict=True)
                except InvalidRequest as refusal:
                    refusals.append(refusal)
                    found[parameters] = 1
            elif lacks := len(missing(asked, supported_by(parameters, model.capabilities), model.output_modalities)):
                found[parameters] = lacks
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
