"""Where one request may go, as a `Call`: its routes (`gateway.request.routes`), what it needs, and the plan of both."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from math import ceil
from typing import Any

from msgspec import Struct

from accounts.callers import Caller
from billing.backbone.settlement import Settlement
from billing.pricing import service_word
from gateway.process.arrivals import Arrival
from gateway.process.keeping import Keeping
from gateway.process.process import Process
from gateway.process.seats import SEAT_SECONDS, conversation, kept_seconds
from gateway.process.snapshot import Snapshot
from gateway.protocols import PROTOCOLS, speakers
from gateway.protocols.openai_chat import ChatRequest, Fit
from gateway.protocols.openai_chat.request.checks import UNSUPPORTED, shown
from gateway.protocols.openai_chat.request.request import MOST_SEARCHES
from gateway.protocols.sides import CHATS, Sent, Spoken
from gateway.request import choosing
from gateway.request.attribution import calling_app
from gateway.request.naming import reachable
from gateway.request.parameters import MOST_STOPS, NEVER_STRICT, check_modalities, fit, missing, supported_by
from gateway.request.routes import Rules, plain
from gateway.request.sealed_ids import PARAM, gone
from gateway.request.side_effects import forgetting
from gateway.request.wishes import wish
from gateway.wire.dialects import Dialect, named
from gateway.wire.errors import Forbidden, GatewayError, InvalidRequest, NotFound, UpstreamFault
from gateway.wire.header_fields import NO_FIELDS, Fields
from routing.catalog import SEARCHES, SERVICE, Model
from routing.health.faults import Fault
from routing.health.health import State
from routing.planning.ordering import Reason
from routing.planning.plan import Candidate, Plan, Wanted, plan
from routing.planning.policy import Policy
from routing.planning.prospect import Prospect

NO_MODALITIES: frozenset[str] = frozenset()
ANYWHERE: tuple[frozenset[str], tuple[str, ...]] = (frozenset(), ())  # any protocol, and no word to be listed


class Call(Struct):
    """What is asked, by whom, and where it may go.

    - `model`: the one that was asked for, or chosen; a candidate says which it is of
    - `plan`: its `taken` candidates, at least one, are tried in order
    - `conversation`: where to note who answered (`gateway.process.seats`), for `seat_seconds`; None: that is of no use
    - `dialled`: the candidate that is being tried, or answers; `unheard`: what it was not asked, `passes`: it was sent
      the client's own body, see `sent_as`
    - `explain`: the client wants the plan told
    - `settled`: its usage row, once it has ended
    - `careful`: parameters that nobody knows are withheld, see `be_careful`
    - `arrival`: to be told of the hold
    - `keeping`: where its answer is kept, for a client that sent an Idempotency-Key
    - `budget_room`: dollars that the hard budget with the least left had before its hold; None: none binds
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
    seat_seconds: float = SEAT_SECONDS
    dialled: Candidate | None = None
    unheard: tuple[str, ...] = ()
    passes: bool = False
    explain: bool = False
    settled: Settlement | None = None
    careful: bool = False
    arrival: Arrival | None = None
    keeping: Keeping | None = None
    budget_room: Decimal | None = None
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
                self.takes(candidate),
                self.dialect,
                careful=self.careful,
                thoughts=offer.provider.reasoning_format,
                max_stops=PROTOCOLS[offer.provider.protocol].upstream.max_stops,
            )
        return found

    def takes(self, candidate: Candidate) -> tuple[str, ...]:
        """The words of an offer's list, without those that have something kept where the policy refuses that, and
        without a class of service for which the prices in force have no rates.
        """
        listed, policy = candidate.offer.supported_parameters, self.plan.policy
        if policy.refuses_retention:
            listed = permitted(listed, policy)
        if (service := self.plan.wanted.service) and not candidate.prices.knows(service):
            listed = tuple(word for word in listed if word != service_word(service))
        return listed

    def be_careful(self) -> None:
        """A hard budget applies: what nobody knows might cost, and is withheld unless the project lets it pass."""
        spoken = self.asked.spoken
        if (self.asked.unknown or (spoken and spoken.unchecked)) and not self.caller.sends_unknown_params:
            self.careful = True
            self._fits.clear()

    @property
    def ignored(self) -> tuple[str, ...]:
        """Parameters that the answer does without, as the offer that gives it takes them, in the client's words."""
        named, spoken = self.fit(self.dialled or self.plan.taken[0]).named, self.asked.spoken
        if spoken is not None:
            named = tuple(spoken.told(name) or name for name in named)
        return tuple(dict.fromkeys((*named, *self.unheard))) if self.unheard else named

    def sent_as(self, sent: Sent) -> None:
        """Notes what the dialled offer's protocol has nothing for. Raises `InvalidRequest` if the caller is strict."""
        spoken, self.passes = self.asked.spoken, sent.passing is not None
        if spoken is None and not sent.ignored:
            self.unheard = ()
            return
        if spoken is None or self.passes:
            told = {name: name for name in sent.ignored}
            self.unheard = sent.ignored
        else:
            told = {name: spoken.told(name) or name for name in sent.ignored}
            self.unheard = (*spoken.ignored, *told.values())
        lost = [name for name in told if name not in NEVER_STRICT]
        if lost and self.caller.strict_params:
            param = shown(told[lost[-1]])
            refusal = InvalidRequest(self.dialect.messages["not_supported"].format(param=param), param=param)
            refusal.code, refusal.told = UNSUPPORTED, True
            raise refusal


def permitted(parameters: tuple[str, ...], policy: Policy) -> tuple[str, ...]:
    """What of an offer's list a policy lets it have."""
    return forgetting(parameters) if policy.refuses_retention else parameters


def fit_of(
    asked: ChatRequest,
    model: Model,
    parameters: tuple[str, ...],
    dialect: Dialect,
    *,
    strict: bool = False,
    careful: bool = False,
    thoughts: str = "",
    max_stops: int = MOST_STOPS,
) -> Fit:
    """How an offer of `model` that takes these parameters meets a request. Raises `InvalidRequest` if `strict`."""
    supported = supported_by(parameters, model.capabilities)
    speaks = model.output_modalities
    return fit(
        asked,
        supported,
        dialect,
        strict=strict,
        careful=careful,
        speaks=speaks,
        max_stops=max_stops,
        thoughts=thoughts,
    )


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
    wanted, seed = _wanted(asked, caller), int(id[-8:], 16)
    refusals: list[InvalidRequest] = []
    choice: dict[str, Any] | None = None
    auto = asked.model in dialect.auto_models and asked.makes is CHATS
    if wished is None and asked.model_routing is None and not auto:
        routes = plain(snapshot, caller, asked.model, asked.makes)
    else:
        rules = Rules(snapshot, caller, wished, asked.makes)
        model = None if auto else rules.model(asked.model)
        pool = rules.pool(asked, model)
        rules.check_providers()
        routes = [] if model is None else [rules.route(model)]
        others = [rules.route(one) for one in pool]
        if others:
            wanted.lacking = _lacking(asked, caller, [*routes, *others], refusals)
            chosen, choice = _chosen(process, rules, asked, wanted, seed, others)
            routes += chosen
        elif not routes:
            raise UpstreamFault(Fault.UNREACHABLE, "no model to choose", code="no_provider_available")
        routes = rules.following(routes)
    first = routes[0]
    if wanted.account and first.policy.refuses_retention:
        raise gone()  # who wants nothing kept goes on from nothing that is
    if caller.strict_params or first.mixed or len(routes) > 1:
        wanted.lacking = _lacking(asked, caller, routes, refusals)
    if first.policy.strategy == "round_robin":
        turn = process.rotations.coming if looking else process.rotations.turn
        wanted.turn = turn((caller.organization, first.model.id, first.policy.providers))
    kept = kept_seconds(asked.body, asked.cache_control)
    wanted.stays = kept > SEAT_SECONDS
    place = _seat(asked, caller, first, wanted) if first.seats else None
    if place is not None:
        wanted.seat = process.seats.offer(place, wanted.clock)
    found = plan(routes, wanted, process.health, seed)
    found.choice = choice
    if not found.taken:
        try:
            raise _nowhere(found, asked, refusals)
        except GatewayError as error:
            error.plan = found
            raise
    return Call(id, caller, asked, first.model, found, dialect, request_id, calling_app(fields), place, kept)


def _chosen(
    process: Process, rules: Rules, asked: ChatRequest, wanted: Wanted, seed: int, pool: list[Prospect]
) -> tuple[list[Prospect], dict[str, Any]]:
    """The routes of the models that are chosen from a pool, best first, and what is kept of the choice.

    Where none of them can take the request the first of the pool stand for all, so that a plan says why.
    """
    snapshot, said = rules.snapshot, asked.model_routing
    preferred = reachable(snapshot, rules.caller, said.preferred) if said is not None and said.preferred else None
    chosen = choosing.choose(pool, asked, wanted, process.health, seed, snapshot.policies.weights, preferred)
    routes = [rules.route(one.candidate.model) for one in chosen] or pool[: choosing.MOST_CHOSEN]
    return routes, choosing.record(chosen, asked)


def _wanted(asked: ChatRequest, caller: Caller) -> Wanted:
    spoken = asked.spoken
    native, built_in = ANYWHERE if spoken is None else _native(spoken, caller)
    kept = None if spoken is None else spoken.kept
    service = asked.body.get(SERVICE)
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
        file_bytes=asked.file_bytes,
        searches=MOST_SEARCHES if built_in and not SEARCHES.isdisjoint(built_in) else asked.searches,
        modalities=frozenset(asked.modalities) if asked.modalities else NO_MODALITIES,
        strict=caller.strict_params,
        formats=asked.thoughts,
        tenant=caller.organization,
        protocols=native,
        built_in=built_in,
        account=kept.account if kept is not None else "",
        kept_tokens=kept.tokens if kept is not None else 0,
        service=service.lower() if service and service != "auto" else "",
    )


def _native(spoken: Spoken, caller: Caller) -> tuple[frozenset[str], tuple[str, ...]]:
    """The protocols of which an offer must speak one, and the words that it must list, for what only they can say.

    A strict caller's request is not to be left without anything, either.
    """
    if not (spoken.only_native or (caller.strict_params and spoken.ignored)):
        return ANYWHERE
    return speakers(spoken.protocol), spoken.built_in if spoken.only_native else ()


def _seat(asked: ChatRequest, caller: Caller, route: Prospect, wanted: Wanted) -> int | None:
    """Where the conversation's last provider is noted, if it matters who that was."""
    if not asked.thoughts and not wanted.stays and not route.keeps_seats(wanted.now):
        return None
    return conversation(caller.project, route.model.id, asked.body["messages"])


def _lacking(
    asked: ChatRequest, caller: Caller, routes: Sequence[Prospect], refusals: list[InvalidRequest]
) -> dict[tuple[int, tuple[str, ...]], int]:
    """How many parameters the offers ignore, by model and list; a strict caller's refusals are added to `refusals`."""
    found: dict[tuple[int, tuple[str, ...]], int] = {}
    for route in routes:
        model = route.model
        for kind in route.kinds:
            place = (model.id, kind.parameters)
            takes = permitted(kind.parameters, route.policy)
            if caller.strict_params:
                try:
                    fit_of(asked, model, takes, named(caller.dialect), strict=True)
                except InvalidRequest as refusal:
                    refusals.append(refusal)
                    found[place] = 1
            elif lacks := len(missing(asked, supported_by(takes, model.capabilities), model.output_modalities)):
                found[place] = lacks
    return found


def _nowhere(found: Plan, asked: ChatRequest, refusals: list[InvalidRequest]) -> Exception:
    """What the client is told when no offer is left."""
    candidates = found.candidates()
    reasons = {candidate.reason for candidate in candidates}
    if cooling := [one.standing for one in candidates if one.standing and one.standing.state is State.COOLING]:
        # Why the first of them rests that may be asked again.
        first = min(cooling, key=lambda standing: standing.until)
        wait = None if first.cause is Fault.AUTH else max(1, ceil(first.until - found.wanted.clock))
        return UpstreamFault(first.cause or Fault.RATE_LIMITED, "every offer rests", retry_after=wait)
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
    if found.wanted.account and not any(one.offer.opens(found.wanted.account) for one in candidates):
        return gone()
    if asked.spoken is not None and reasons & {Reason.PROTOCOL, Reason.BUILT_IN}:
        if asked.makes is not CHATS:
            message = f"No provider of the model '{asked.model}' is known to take such a request. Choose another model."
            return NotFound(message, code="model_not_supported", param="model")
        if asked.spoken.only_native == (PARAM,):
            return gone()
        return asked.spoken.nowhere(asked.model, (*asked.spoken.only_native, *asked.spoken.ignored)[0])
    slugs = sorted({candidate.model.slug for candidate in candidates})
    return UpstreamFault(Fault.UNREACHABLE, f"no usable offer of {', '.join(slugs)}", code="no_provider_available")
