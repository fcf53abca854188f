"""The endpoints that list models, to OpenAI's, Anthropic's and Google's clients, each in the shape it knows."""

import hashlib
from collections.abc import Hashable
from datetime import UTC, datetime
from typing import ClassVar

from django.http import HttpRequest
from django.utils.http import parse_etags

from accounts.callers import Caller
from gateway.door.answers import JSON, Answer
from gateway.door.view import ApiView
from gateway.endpoints.model_lists import ANTHROPIC, NEVER, OPENAI, Listed, Shape, next_change, usable
from gateway.process import process
from gateway.process.snapshot import Snapshot
from gateway.wire import strict_json
from gateway.wire.dialects import Dialect
from gateway.wire.errors import NotFound
from routing.catalog import Catalog

MOST_LISTS = 16  # kept; a list of two thousand models is 2 MB and 50 ms of the event loop


class ModelView(ApiView):
    """A view of models. The answer has a strong ETag; a client that has it already is sent 304.

    Without a `shape` of its own it is OpenAI's, or Anthropic's for a request that carries `anthropic-version`.
    """

    endpoint = "models"
    shape: Shape | None = None

    def respond(self, body: bytes) -> Answer:
        """A JSON body, or 304."""
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        # Another key on the same URL has another answer: it must not be used again without a question.
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        if _names(self.fields.get(b"if-none-match", b"").decode("latin-1"), etag):
            return Answer(b"", None, 304, headers)
        return Answer(body, JSON, headers=headers)

    def shape_wanted(self) -> Shape:
        """The shape of this answer."""
        if self.shape is not None:
            return self.shape
        return ANTHROPIC if b"anthropic-version" in self.fields else OPENAI


class KeptLists:
    """Lists as they were rendered, while the catalog is the same and no further tariff version has taken effect."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._until = NEVER
        self._bodies: dict[Hashable, bytes] = {}

    def list(self, snapshot: Snapshot, shape: Shape, caller: Caller, dialect: Dialect) -> bytes:
        """The list in `shape` of what a key may use now, at the prices of its organization."""
        now, catalog, allowed = datetime.now(UTC), snapshot.catalog, caller.allowed_models
        if catalog is not self._catalog or now >= self._until:
            self._catalog, self._until = catalog, next_change(catalog.by_id.values(), now)
            self._bodies.clear()
        name = (shape, allowed, dialect.name, snapshot.terms.get(caller.organization))
        if name not in self._bodies:
            if len(self._bodies) >= MOST_LISTS:
                self._bodies.clear()
            models = [snapshot.priced(model, caller.organization) for model in catalog.by_id.values()]
            self._until = min(self._until, next_change(models, now))
            content = shape.whole([shape.entry(one) for one in usable(models, allowed, now)])
            if shape.takes_extras:
                content.update(dialect.models_envelope)
            self._bodies[name] = strict_json.dumps(content)
        return self._bodies[name]


class Models(ModelView):
    """GET /v1/models, /anthropic/v1/models and /v1beta/models."""

    kept: ClassVar = KeptLists()

    async def get(self, request: HttpRequest) -> Answer:
        """The models this key may use, by slug."""
        snapshot = process.current().snapshots.current
        return self.respond(self.kept.list(snapshot, self.shape_wanted(), self.caller, self.dialect))


class OneModel(ModelView):
    """The same paths with a model's name behind them: author/slug, or any other name it has."""

    async def get(self, request: HttpRequest, name: str) -> Answer:
        """One model. Raises `NotFound`, also for one that this key may not use."""
        return self.respond(strict_json.dumps(self.shape_wanted().entry(self._find(name))))

    def _find(self, name: str) -> Listed:
        snapshot = process.current().snapshots.current
        model = snapshot.catalog.by_name.get(name)
        priced = [snapshot.priced(model, self.caller.organization)] if model else []
        found = usable(priced, self.caller.allowed_models, datetime.now(UTC))
        if not found:
            raise NotFound(self.dialect.messages["model_invalid"].format(model=name), code="model_not_found")
        return found[0]


def _names(if_none_match: str, etag: str) -> bool:
    """Whether the header names this tag, weakly compared (RFC 9110, 13.1.2)."""
    tags = [tag.removeprefix("W/") for tag in parse_etags(if_none_match)]
    return "*" in tags or etag in tags
