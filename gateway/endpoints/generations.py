"""GET /v1/management/generation?id=…: what one generation used and cost, for its own organization alone."""

from uuid import UUID

from django.http import HttpRequest

from accounts.models import Scope
from gateway.door.answers import NO_HEADERS, Answer, json_answer
from gateway.door.authentication import require
from gateway.door.view import ApiView
from gateway.endpoints.generation_lookup import generation
from gateway.endpoints.read_limit import count_read, read
from gateway.generation.explaining import wished
from gateway.wire.errors import InvalidRequest, NotFound

# RFC 9745: the moment (Unix seconds) since when the path is deprecated; it goes on working.
DEPRECATED = {
    "Deprecation": "@1795824000",
    "Link": '</api/v1/management/generation>; rel="successor-version"',
}


class EitherScope(ApiView):
    """A view for inference and management keys alike."""

    def check_rights(self) -> None:
        """Raises `Forbidden` unless the key has either scope and may call the endpoint."""
        may_manage = Scope.MANAGEMENT in self.caller.scopes
        require(self.caller, Scope.MANAGEMENT if may_manage else Scope.INFERENCE, self.endpoint)


class Generations(EitherScope):
    """GET /v1/management/generation, and the older /v1/generation, which says that it is `deprecated`.

    An inference key, too, sees all of its organization's generations, whichever key made them. The plan is there
    without providers' names, unless `X-Gateway-Explain` asks for them.
    """

    endpoint = "generation"
    deprecated = False

    # Attempts are partitioned by their own ids' time; the hour more is for clocks that disagree.
    QUERY = """
        select row_to_json(u),
               (select coalesce(json_agg(json_build_object(
                           'number', a.number, 'status', a.status, 'fault', a.fault, 'duration_ms', a.duration_ms,
                           'ttft_ms', a.ttft_ms, 'model', a.model, 'provider', a.provider,
                           'upstream_model', a.upstream_model) order by a.number), '[]')
                  from billing_attempt a
                 where a.generation = u.id and a.id >= billing_first_id(u.created_at - interval '1 hour')
                   and a.id < billing_first_id(u.settled_at + interval '1 hour'))
          from (
            select id, model, status, error, finish_reason, native_finish_reason, stream, attempts, ttft_ms,
                   duration_ms, prompt_tokens, completion_tokens, cached_tokens, cache_write_5m_tokens,
                   cache_write_1h_tokens, audio_input_tokens, image_input_tokens, reasoning_tokens,
                   audio_output_tokens, web_searches, video_input_tokens, image_output_tokens, images, seconds,
                   service_tier, basis, end_user, metadata, app, charge::text, overrun::text,
                   arithmetic, tariff_version, created_at, settled_at, plan
              from billing_usage where id = %s and organization = %s) u
    """

    async def get(self, request: HttpRequest) -> Answer:
        """The generation `id` (or `generate_id`), or one 404: for none, another organization's, and a running one."""
        await count_read(self.caller, "generation")
        text = request.GET.get("id") or request.GET.get("generate_id")
        if not text:
            raise InvalidRequest("Give the id of a generation: ?id=…", param="id")
        try:
            id = UUID(hex=text)
        except ValueError as error:
            raise _no_such_generation() from error
        rows = await read(self.caller, self.QUERY, [id, self.caller.organization])
        if not rows:
            raise _no_such_generation()
        found = generation(*rows[0], named=wished(self.fields))
        return json_answer(found, headers=DEPRECATED if self.deprecated else NO_HEADERS)


def _no_such_generation() -> NotFound:
    return NotFound("There is no such generation.", code="generation_not_found", param="id")
