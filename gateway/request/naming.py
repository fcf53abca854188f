"""Which models a key reaches by which names: slugs, aliases, a pin to a provider, and pools of several."""

from accounts.callers import Caller
from gateway.process.snapshot import Snapshot
from gateway.protocols.sides import CHATS
from gateway.wire.dialects import named
from gateway.wire.errors import NotFound
from routing.catalog import Model


def find(snapshot: Snapshot, caller: Caller, name: str, makes: frozenset[str] = CHATS) -> tuple[Model, str | None]:
    """The model of a name, and the slug of the provider it is pinned to (`model:provider`), or None.

    Raises `NotFound` for a model that is not there, that the key may not use, or that makes none of what is asked.
    """
    if ":" in name and name not in snapshot.catalog.by_name:
        base, _, provider = name.rpartition(":")
        if provider and reachable(snapshot, caller, base):
            return find_model(snapshot, caller, base, makes=makes), provider
    return find_model(snapshot, caller, name, makes=makes), None


def find_model(
    snapshot: Snapshot, caller: Caller, name: str, param: str = "model", makes: frozenset[str] = CHATS
) -> Model:
    """The model of a slug or alias. Raises `NotFound` as `find` does."""
    model = reachable(snapshot, caller, name)
    if model is None:
        # One answer for both: a key does not learn what others may use.
        raise NotFound(
            named(caller.dialect).messages["model_invalid"].format(model=name), code="model_not_found", param=param
        )
    if not serves(model, makes):
        wanted = "chat" if makes is CHATS else f"make {' or '.join(sorted(makes))}"
        made = ", ".join(model.output_modalities) or "what is not known"
        raise NotFound(
            f"The model '{name}' does not {wanted}: it makes {made}.", code="model_not_supported", param=param
        )
    return model


def reachable(snapshot: Snapshot, caller: Caller, name: str) -> Model | None:
    """The model of a slug or alias, if the key may use it, at the prices of its organization."""
    model = snapshot.catalog.by_name.get(name)
    if model is None or (caller.allowed_models and model.slug not in caller.allowed_models):
        return None
    return snapshot.priced(model, caller.organization)


def serves(model: Model, makes: frozenset[str] = CHATS) -> bool:
    """Whether it makes any of this. Of a model of which nothing is known a chat may be tried, and nothing else."""
    if not model.output_modalities:
        return makes is CHATS
    return not makes.isdisjoint(model.output_modalities)


def pool(snapshot: Snapshot, caller: Caller, names: tuple[str, ...] | None) -> list[Model]:
    """The models of these names, each once; without names all that the key may use for a chat, by slug.

    Raises `NotFound`.
    """
    if names is not None:
        param = "model_routing_config.available_models"
        found = {model.id: model for model in (find_model(snapshot, caller, name, param) for name in names)}
        return list(found.values())
    allowed = caller.allowed_models
    models = (
        snapshot.priced(model, caller.organization)
        for model in snapshot.catalog.by_id.values()
        if model.offers and serves(model) and (not allowed or model.slug in allowed)
    )
    return sorted(models, key=lambda model: model.slug)
