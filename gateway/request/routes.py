"""Which models a request may go to, each under the policy that holds for it: its routes, in order.

model       by slug or alias; `model:provider` is pinned to that provider; the auto model is chosen from a pool
policy      the request's wish in its body, then in its headers, over the key's, the project's, the model's
fallback    yes, no, a provider, or a model that follows
"""

from collections.abc import Sequence

from accounts.callers import Caller
from gateway.process.snapshot import Snapshot
from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.sides import CHATS
from gateway.request.naming import find, find_model, pool, reachable, serves
from gateway.request.shortlist import shortlist
from gateway.request.wishes import pinned
from gateway.wire.dialects import named
from gateway.wire.errors import InvalidRequest, UpstreamFault
from routing.catalog import Model
from routing.health.faults import Fault
from routing.planning.policy import Policy, falling_back
from routing.planning.prospect import Prospect, prospect

MOST_KEPT = 10_000  # with a snapshot; more are worked out for each request


def plain(snapshot: Snapshot, caller: Caller, name: str, makes: frozenset[str] = CHATS) -> Sequence[Prospect]:
    """The routes of a request that wishes nothing: they depend on its key, the name of its model and what that is to
    make alone.

    So they are kept with the snapshot, for keys that are in it. Raises `NotFound` or `UpstreamFault`.
    """
    place = caller.digest, name, makes
    routes = snapshot.routes.get(place)
    if routes is None:
        rules = Rules(snapshot, caller, None, makes)
        model = rules.model(name)
        rules.check_providers()
        routes = rules.following([rules.route(model)])
        if snapshot.keys.get(caller.digest) is caller and len(snapshot.routes) < MOST_KEPT:
            snapshot.routes[place] = routes
    return routes


class Rules:
    """What decides the routes of one request: the snapshot, who calls, what the request itself wishes, and what its
    model is to make.
    """

    __slots__ = ("caller", "makes", "snapshot", "wished")

    def __init__(
        self, snapshot: Snapshot, caller: Caller, wished: Policy | None, makes: frozenset[str] = CHATS
    ) -> None:
        self.snapshot = snapshot
        self.caller = caller
        self.wished = wished
        self.makes = makes

    def model(self, name: str) -> Model:
        """The model of a name; a pin to a provider in it is a wish of the request from then on. Raises `NotFound`."""
        model, provider = find(self.snapshot, self.caller, name, self.makes)
        if provider is not None:
            self.wished = pinned(self.wished, provider)
        return model

    def pool(self, asked: ChatRequest, but: Model | None) -> list[Model]:
        """The models to choose among, or to follow `but`, which is not one of them.

        Raises `NotFound`, or `InvalidRequest` when the caller must say what to choose among and does not.
        """
        snapshot, caller, said = self.snapshot, self.caller, asked.model_routing
        if said is None:
            if but is not None:
                return []
            if caller.strict_params:
                raise InvalidRequest(
                    named(caller.dialect).messages["auto_without_config"].format(model=asked.model),
                    code="missing_required_parameter",
                    param="model_routing_config",
                )
        elif said.preferred is not None:
            find_model(snapshot, caller, said.preferred, "model_routing_config.preference")
        if said is None or said.models is None:
            models = shortlist(snapshot, caller, asked, self.wished)
        else:
            models = pool(snapshot, caller, said.models)
        return [model for model in models if model is not but]

    def route(self, model: Model) -> Prospect:
        """A model under the policy that holds for it."""
        policies, caller = self.snapshot.policies, self.caller
        return prospect(model, policies.of(caller.key, caller.project, model.id, self.wished))

    def check_providers(self) -> None:
        """Raises `UpstreamFault` for a wished provider that nobody has."""
        for slug in (self.wished.providers if self.wished is not None else None) or ():
            if slug.partition("/")[0] not in self.snapshot.catalog.providers:
                raise UpstreamFault(
                    Fault.UNREACHABLE,
                    "no such provider",
                    message=f"No provider is available: none has the name '{slug}'.",
                    code="no_provider_available",
                )

    def following(self, routes: list[Prospect]) -> list[Prospect]:
        """The routes that are gone, once the fallback of the first one is known for what it is.

        A name may be a provider's or a model's. One that the request says must be either; one that an operator wrote,
        and that is gone since, is as if there were none.
        """
        first, name = routes[0], routes[0].policy.fallback
        if isinstance(name, str):
            providers = self.snapshot.catalog.providers
            if name in providers:
                return [first]
            model = reachable(self.snapshot, self.caller, name)
            if model is not None and self._stands_in(model):
                routes = [first] if model is first.model else [first, self.route(model)]
            elif name.partition("/")[0] in providers:
                return [first]
            elif self.wished is not None and self.wished.fallback == name:
                raise InvalidRequest(
                    "Parameter provider.fallback must be true, false, or the name of a provider or of a model that "
                    "this key may use.",
                    code="invalid_value",
                    param="provider.fallback",
                )
            first = prospect(first.model, falling_back(first.policy, True))
        elif not name:
            return [first]
        return [first, *(prospect(other.model, falling_back(other.policy, True)) for other in routes[1:])]

    def _stands_in(self, model: Model) -> bool:
        """Whether a model may answer for another. The vectors of two models have nothing to do with each other."""
        return "embeddings" not in self.makes and serves(model, self.makes)
