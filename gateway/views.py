"""The API's endpoints. What happens inside a chat completion is told in `gateway/relay.py`."""

import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse, HttpResponseBase
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from rest_framework.request import Request

from billing.batches import DatabaseAway
from billing.ids import new_id
from gateway import process, strict_json, telemetry
from gateway.errors import InvalidRequest, NotFound, Unavailable
from gateway.protocols.openai_chat import parse
from gateway.relay import prepare, relay
from gateway.rest import ApiView, EventStream, json_response
from gateway.strict_json import BadJson
from routing.catalog import Model

STALE_SNAPSHOT_SECONDS = 60


class ChatCompletions(ApiView):
    """POST /v1/chat/completions."""

    endpoint = "chat/completions"

    async def post(self, request: Request) -> HttpResponseBase:
        """Answers a chat completion, streamed or whole."""
        here = process.current()
        snapshot = here.snapshots.current  # once: the whole request sees one configuration
        id = new_id()
        body = self.body()
        try:
            asked = parse(strict_json.loads(body), len(body))
        except BadJson as error:
            raise InvalidRequest(str(error), code="invalid_json", param=error.param) from error
        call = prepare(snapshot, self.caller, asked, id)
        parts = relay(here, call)
        try:
            first = await anext(parts)
        except BaseException:
            await parts.aclose()
            raise
        response: HttpResponseBase
        if asked.stream:
            response = EventStream(first, parts)
        else:
            await parts.aclose()
            response = HttpResponse(first, "application/json")
        response["x-generation-id"] = id.hex
        return response


class Models(ApiView):
    """GET /v1/models."""

    endpoint = "models"

    async def get(self, request: Request) -> HttpResponse:
        """The models this key may use."""
        catalog = process.current().snapshots.current.catalog
        models = [model for model in catalog.by_id.values() if _may_use(self, model)]
        models.sort(key=lambda model: model.slug)
        return json_response({"object": "list", "data": [_model(model) for model in models]})


class OneModel(ApiView):
    """GET /v1/models/{author}/{slug}, or any of a model's other names."""

    endpoint = "models"

    async def get(self, request: Request, name: str) -> HttpResponse:
        """One model, by its slug or an alias."""
        model = process.current().snapshots.current.catalog.by_name.get(name)
        if model is None or not _may_use(self, model):
            raise NotFound(f"The model '{name}' does not exist, or this key may not use it.", code="model_not_found")
        return json_response(_model(model))


def _may_use(view: ApiView, model: Model) -> bool:
    allowed = view.caller.allowed_models
    return bool(model.offers) and (not allowed or model.slug in allowed)


def _model(model: Model) -> dict[str, Any]:
    published = model.published_on
    created = int(datetime(published.year, published.month, published.day, tzinfo=UTC).timestamp()) if published else 0
    return {
        "id": model.slug,
        "object": "model",
        "created": created,
        "owned_by": model.slug.partition("/")[0],
        "display_name": model.name,
        "aliases": model.aliases,
        "context_length": model.context_length or None,
        "max_output": model.max_output,
        "input_modalities": model.input_modalities,
        "output_modalities": model.output_modalities,
        "supported_parameters": model.supported_parameters,
        "capabilities": model.capabilities,
    }


class Generations(ApiView):
    """GET /v1/generation?id=…: what one generation used and cost, for its own organization alone."""

    endpoint = "generation"

    QUERY = """
        select row_to_json(u) from (
            select id, model, provider, status, error, finish_reason, native_finish_reason, stream, attempts, ttft_ms,
                   duration_ms, prompt_tokens, completion_tokens, cached_tokens, cache_write_5m_tokens,
                   cache_write_1h_tokens, audio_input_tokens, image_input_tokens, reasoning_tokens,
                   audio_output_tokens, web_searches, basis, end_user, metadata, charge::text, overrun::text,
                   arithmetic, created_at
              from billing_usage where id = %s and organization = %s) u
    """

    async def get(self, request: Request) -> HttpResponse:
        """The generation, or 404: also for another organization's, and for one that is still running."""
        text = request.GET.get("id", "")
        try:
            id = UUID(hex=text)
        except ValueError as error:
            raise InvalidRequest("Give the id of a generation: ?id=…", param="id") from error
        try:
            rows = await process.current().backbone.connections.call(self.QUERY, [id, self.caller.organization])
        except DatabaseAway as error:
            raise Unavailable("Generations cannot be read just now.", retry_after=1) from error
        if not rows:
            raise NotFound("There is no such generation.", code="generation_not_found", param="id")
        found = rows[0][0]
        lines = [
            {"item": line["item"], "quantity": line["quantity"], "rate": line["charge"]} for line in found["arithmetic"]
        ]
        return json_response({**found, "id": id.hex, "object": "generation", "arithmetic": lines})


class Health(ApiView):
    """GET /healthz: the process answers."""

    public = True

    async def get(self, request: Request) -> HttpResponse:
        """200 as long as the event loop turns."""
        return json_response({"status": "ok"})


class Readiness(ApiView):
    """GET /readyz: the process can take paid work."""

    public = True

    async def get(self, request: Request) -> HttpResponse:
        """200, or 503 naming what is missing. `configuration` is the last change it follows."""
        here = process.current()
        snapshots, spool = here.snapshots, here.backbone.spool
        age = time.monotonic() - snapshots.read_at if snapshots.read_at else None
        missing = []
        if age is None or age > STALE_SNAPSHOT_SECONDS:
            missing.append("configuration")
        try:
            await here.backbone.connections.call("select 1", [])
        except DatabaseAway:
            missing.append("database")
        if spool.full:
            missing.append("disk")
        state = {
            "status": "unready" if missing else "ready",
            "missing": missing,
            "configuration": snapshots.last_change,
            "spooled": spool.lines,
        }
        return json_response(state, 503 if missing else 200)


class Metrics(ApiView):
    """GET /metrics, in Prometheus' text format."""

    public = True

    async def get(self, request: Request) -> HttpResponse:
        """The process's metrics."""
        here = process.current()
        telemetry.spooled.set(here.backbone.spool.lines)
        telemetry.snapshot_age.set(time.monotonic() - here.snapshots.read_at)
        return HttpResponse(generate_latest(), CONTENT_TYPE_LATEST)
