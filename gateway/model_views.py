"""The endpoints that list models, to OpenAI's, Anthropic's and Google's clients, each in the shape it knows."""

import hashlib
from datetime import UTC, datetime

from django.http import HttpResponse
from django.utils.http import parse_etags
from rest_framework.request import Request

from gateway import process, strict_json
from gateway.errors import NotFound
from gateway.model_lists import ANTHROPIC, OPENAI, Listed, Shape, usable
from gateway.rest import ApiView


class ModelView(ApiView):
    """A view of models. The answer has a strong ETag; a client that has it already is sent 304.

    Without a `shape` of its own it is OpenAI's, or Anthropic's for a request that carries `anthropic-version`.
    """

    endpoint = "models"
    shape: Shape | None = None

    def respond(self, content: object) -> HttpResponse:
        """`content` as JSON, or 304."""
        body = strict_json.dumps(content)
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        # Another key on the same URL has another answer: it must not be used again without a question.
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        if not _names(self.request.META.get("HTTP_IF_NONE_MATCH", ""), etag):
            return HttpResponse(body, "application/json", headers=headers)
        response = HttpResponse(status=304, headers=headers)
        del response["Content-Type"]
        return response

    def shape_wanted(self) -> Shape:
        """The shape of this answer."""
        if self.shape is not None:
            return self.shape
        return ANTHROPIC if "HTTP_ANTHROPIC_VERSION" in self.request.META else OPENAI


class Models(ModelView):
    """GET /v1/models, /anthropic/v1/models and /v1beta/models."""

    async def get(self, request: Request) -> HttpResponse:
        """The models this key may use, by slug."""
        catalog, shape = process.current().snapshots.current.catalog, self.shape_wanted()
        listed = usable(catalog.by_id.values(), self.caller.allowed_models, datetime.now(UTC))
        content = shape.whole([shape.entry(entry) for entry in listed])
        return self.respond(content | self.dialect.models_envelope if shape.takes_extras else content)


class OneModel(ModelView):
    """The same paths with a model's name behind them: author/slug, or any other name it has."""

    async def get(self, request: Request, name: str) -> HttpResponse:
        """One model. Raises `NotFound`, also for one that this key may not use."""
        return self.respond(self.shape_wanted().entry(self._find(name)))

    def _find(self, name: str) -> Listed:
        model = process.current().snapshots.current.catalog.by_name.get(name)
        found = usable([model] if model else [], self.caller.allowed_models, datetime.now(UTC))
        if not found:
            raise NotFound(self.dialect.messages["model_invalid"].format(model=name), code="model_not_found")
        return found[0]


def _names(if_none_match: str, etag: str) -> bool:
    """Whether the header names this tag, weakly compared (RFC 9110, 13.1.2)."""
    tags = [tag.removeprefix("W/") for tag in parse_etags(if_none_match)]
    return "*" in tags or etag in tags
