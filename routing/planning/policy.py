"""What decides the route of a request: policies of five levels, added up. Pure.

    request  >  key  >  project  >  model  >  everything  >  `DEFAULT`

The first level that speaks of a thing decides it. Strategy, factor and providers are one thing: a level that names a
strategy or providers sets all three, so that nobody's factor is applied to another's list. Three are not given up by
a higher level: `only_providers` (those that every level names) and the two refusals (any level's word).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from uuid import UUID

# A row for each policy. Few: they are read together whenever one changes.
QUERY = """
select level, key_id, project_id, model_id, nullif(strategy, ''), nullif(factor, ''), providers, only_providers,
       nullif(fallback, ''), max_attempts, first_byte_timeout, total_timeout, refuses_training, refuses_retention,
       continues_streams
  from routing_policy
"""
WEIGHTS_QUERY = "select word, term, weight from routing_choiceweight"
TABLES = ("routing_policy", "routing_choiceweight")


@dataclass(frozen=True, slots=True)
class Policy:
    """One level's word, or several levels' together; None: nothing said.

    - `strategy`: `priority` (by priority; by `factor` if there is one), `order` (exactly as `providers` lists them),
      `round_robin`, `least_latency`
    - `factor`: `price`, `latency`, `throughput`, `quality`
    - `providers`: slugs, each `provider` or `provider/endpoint`; None: all
    - `only_providers`: slugs nobody gets past; None: all
    - `fallback`: whether others than the first (or than `providers`) may follow; or the slug of a provider or model
    - `max_attempts`: dials at most; timeouts in seconds, the provider's own where that is less
    - `continues_streams`: a text stream that broke is continued elsewhere
    - `source`: the level whose word the order is: `request`, `key`, `project`, `model`, `global`, `default`
    """

    strategy: str | None = None
    factor: str | None = None
    providers: tuple[str, ...] | None = None
    only_providers: frozenset[str] | None = None
    fallback: bool | str | None = None
    max_attempts: int | None = None
    first_byte_timeout: float | None = None
    total_timeout: float | None = None
    refuses_training: bool = False
    refuses_retention: bool = False
    continues_streams: bool | None = None
    source: str = "default"

    def said(self) -> dict[str, Any]:
        """What it says, as plain JSON, without what everybody gets who says nothing."""
        found = {name: value for name in _SAID if (value := getattr(self, name)) != getattr(DEFAULT, name)}
        if self.only_providers is not None:
            found["only_providers"] = sorted(self.only_providers)
        return found


DEFAULT = Policy(strategy="priority", fallback=True, max_attempts=3, continues_streams=False)
NOTHING_SAID = Policy()
_SAID = tuple(name for name in Policy.__dataclass_fields__ if name != "source")


def together(levels: Iterable[Policy | None]) -> Policy:
    """The word of several levels, the most important first, over `DEFAULT`."""
    sum = NOTHING_SAID
    for level in (*levels, DEFAULT):
        if level is not None:
            sum = level if sum is NOTHING_SAID else over(sum, level)
    return sum


def over(upper: Policy, lower: Policy) -> Policy:
    """The word of two levels, of which the upper one is the more important."""
    order: Mapping[str, Any] = {}
    if upper.strategy is None and upper.providers is None:
        # A factor alone sharpens the strategy below.
        order = {
            "strategy": lower.strategy,
            "factor": upper.factor or lower.factor,
            "providers": lower.providers,
        }
    elif upper.strategy is None:
        order = {"strategy": lower.strategy if lower.strategy != "order" else "priority"}
    silent = upper.strategy is None and upper.providers is None and upper.factor is None
    only = upper.only_providers
    if lower.only_providers is not None:
        only = lower.only_providers if only is None else only & lower.only_providers
    return replace(
        upper,
        **order,
        only_providers=only,
        fallback=lower.fallback if upper.fallback is None else upper.fallback,
        max_attempts=upper.max_attempts or lower.max_attempts,
        first_byte_timeout=upper.first_byte_timeout or lower.first_byte_timeout,
        total_timeout=upper.total_timeout or lower.total_timeout,
        refuses_training=upper.refuses_training or lower.refuses_training,
        refuses_retention=upper.refuses_retention or lower.refuses_retention,
        continues_streams=lower.continues_streams if upper.continues_streams is None else upper.continues_streams,
        source=lower.source if silent else upper.source,
    )


@lru_cache(maxsize=1024)
def wished(request: Policy, stored: Policy) -> Policy:
    """What a request says, over what operators say; of equal arguments the same object, so that what is made of it
    keeps.
    """
    return over(request, stored)


@lru_cache(maxsize=1024)
def falling_back(policy: Policy, fallback: bool) -> Policy:
    """A policy with another word on its fallback; of equal arguments the same object."""
    return replace(policy, fallback=fallback)


class Policies:
    """Every policy, by its subject; and the weights of the choice of a model, by word and term (`choice`)."""

    __slots__ = ("_together", "by_key", "by_model", "by_project", "everything", "weights")

    def __init__(
        self,
        everything: Policy | None = None,
        by_key: Mapping[UUID, Policy] | None = None,
        by_project: Mapping[UUID, Policy] | None = None,
        by_model: Mapping[int, Policy] | None = None,
        weights: Mapping[tuple[str, str], float] | None = None,
    ) -> None:
        self.everything = everything
        self.by_key = by_key or {}
        self.by_project = by_project or {}
        self.by_model = by_model or {}
        self.weights = weights or {}
        self._together: dict[tuple[int, ...], Policy] = {}

    def of(self, key: UUID, project: UUID, model: int, request: Policy | None = None) -> Policy:
        """What holds for a request. The same object as long as the same levels speak."""
        levels = (self.by_key.get(key), self.by_project.get(project), self.by_model.get(model), self.everything)
        place = tuple(map(id, levels))  # they live as long as this does
        stored = self._together.get(place)
        if stored is None:
            stored = self._together[place] = together(levels)
        return stored if request is None else wished(request, stored)


def from_rows(rows: Iterable[Sequence[Any]], weights: Iterable[Sequence[Any]] = ()) -> Policies:
    """Policies from rows of `QUERY` and of `WEIGHTS_QUERY`."""
    everything: Policy | None = None
    by_key: dict[UUID, Policy] = {}
    by_project: dict[UUID, Policy] = {}
    by_model: dict[int, Policy] = {}
    for level, key, project, model, *said in rows:
        policy = _policy(level, said)
        if level == "key":
            by_key[key] = policy
        elif level == "project":
            by_project[project] = policy
        elif level == "model":
            by_model[model] = policy
        else:
            everything = policy
    return Policies(everything, by_key, by_project, by_model, {(word, term): weight for word, term, weight in weights})


def _policy(level: str, said: Sequence[Any]) -> Policy:
    strategy, factor, providers, only, fallback, attempts, first_byte, total, training, retention, continues = said
    return Policy(
        strategy,
        factor,
        None if providers is None else tuple(providers),
        None if only is None else frozenset(only),
        None if fallback is None else {"true": True, "false": False}.get(fallback, fallback),
        attempts,
        first_byte,
        total,
        training,
        retention,
        continues,
        level,
    )
