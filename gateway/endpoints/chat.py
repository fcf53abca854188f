"""POST /v1/chat/completions, whose story `gateway/relay.py` tells, and POST /v1/route, which only looks."""

from functools import partial
from typing import Any, ClassVar

from django.http import HttpRequest

from billing.ids import new_hex
from gateway.door.answers import JSON, STREAM_HEADERS, Answer, EventStream, json_answer, raw
from gateway.door.view import ApiView, failure
from gateway.endpoints import idempotency
from gateway.endpoints.queueing import Queue
from gateway.files.named import look_up_files
from gateway.generation import counting, explaining
from gateway.generation.estimate import prompt_tokens
from gateway.process import process
from gateway.process.heavy_bodies import is_light
from gateway.protocols.openai_chat import ChatRequest, parse
from gateway.relay import relay
from gateway.request.naming import find
from gateway.request.parameters import IGNORED_HEADER, header_value
from gateway.request.planning import Call, prepare
from gateway.wire import strict_json
from gateway.wire.errors import GatewayError, InvalidRequest, RateLimited, let_go
from gateway.wire.strict_json import BadJson

queue = Queue()


class Chat(ApiView):
    """A view that takes the body of a chat completion, or of another generation, with at most so many values."""

    most_values: ClassVar[int] = strict_json.MAX_VALUES

    async def asked(self, here: process.Process, **path: str) -> ChatRequest:
        """What is asked, checked, its files looked up; `path` is what its path says. Raises `InvalidRequest`."""
        body = self.body()
        try:
            if is_light(body):
                value = strict_json.loads(body)
            else:
                value = await here.parser.loads(self.caller.organization, body, self.most_values)
            asked = self.read(value, len(body), **path)
        except BadJson as error:
            raise InvalidRequest(str(error), code="invalid_json", param=error.param) from error
        try:
            return await look_up_files(here.files, self.caller, asked)
        except GatewayError as error:
            retell(error, asked)
            raise

    def read(self, body: Any, raw_length: int, **path: str) -> ChatRequest:
        """A parsed body, checked. Raises `InvalidRequest`."""
        return parse(body, raw_length, self.dialect)


class ChatCompletions(Chat):
    """POST /v1/chat/completions."""

    endpoint = "chat/completions"
    refusal: Answer | None = None  # what the client is told, where that is kept

    async def post(self, request: HttpRequest, **path: str) -> Answer:
        """Answers a chat completion, streamed or whole; or tells again what a request before it was told."""
        here = process.current()
        snapshot = here.snapshots.current  # once: the whole request sees one configuration
        id = new_hex()
        asked = await self.asked(here, **path)
        keeping, kept = None, None
        if idempotency.FIELD in self.fields:
            tell = partial(self._refuse, asked=asked)
            found = await idempotency.claimed(self, here, id, path, self._head, tell)
            if isinstance(found, Answer):
                return found
            keeping = found
        try:
            call = prepare(here, snapshot, self.caller, asked, id, self.request_id, self.fields)
            self.call = call
            call.explain, call.arrival, call.keeping = explaining.wished(self.fields), self.arrival, keeping
            if self.caller.payload_days:
                kept = here.payloads.begin(self.caller, call, self.request.body)
            parts = relay(here, call)
            try:
                first = await anext(parts)
            except RateLimited as refused:
                first, parts = await queue.wait(here, call, refused)
            if kept is not None:
                kept.take(first)
                parts = kept.through(parts)
        except GatewayError as error:
            if kept is not None:
                kept.take((self.refusal or self._refuse(error, asked)).body)
                kept.end()
            if self.refusal is not None:
                return self.refusal
            self._explain(error, asked)
            raise
        finally:
            if keeping is not None and not keeping.held:
                here.backbone.claims.give_back(keeping.claim)
                keeping.drop()
            if kept is not None and not kept.begun:
                kept.end()
        answer: Answer
        if asked.stream:
            answer = EventStream(first, parts)
        else:
            await parts.aclose()
            answer = Answer(first, JSON)
        answer.headers |= _named(call)
        return answer

    def _head(self) -> tuple[int, dict[bytes, bytes]]:
        """The status and the headers of an answer that goes well."""
        assert self.call is not None
        headers = STREAM_HEADERS if self.call.asked.stream else {b"content-type": JSON}
        return 200, headers | _named(self.call)

    def _refuse(self, error: GatewayError, asked: ChatRequest) -> Answer:
        """What the client is told of an error before its answer has begun, made once."""
        self._explain(error, asked)
        self.refusal = failure(error, self.request_id, self.dialect, self.protocol)
        return self.refusal

    def _explain(self, error: GatewayError, asked: ChatRequest) -> None:
        """In the client's own words, and with the plan if it wants that."""
        retell(error, asked)
        if explaining.wished(self.fields) and (plan := self.call.plan if self.call else error.plan):
            error.more.setdefault(explaining.FIELD, explaining.told(plan))


def _named(call: Call) -> dict[bytes, bytes]:
    """What the headers of an answer say of its call."""
    headers = {b"x-generation-id": call.id.encode()}
    if (room := call.budget_room) is not None:
        headers[b"x-gateway-budget-remaining"] = f"{room.normalize():f}".encode()
    if call.asked.stream and call.asked.spoken is not None:
        headers[b"content-type"] = call.asked.spoken.stream_type.encode()
    if ignored := call.ignored:
        headers |= raw({IGNORED_HEADER: header_value(ignored)})
    return headers


class Count(Chat):
    """A view that counts the tokens of what it is asked, which costs nothing and is no more than a request of its key.

    Nothing is held, billed or written.
    """

    field: ClassVar[str]  # of its answer, that is the count

    async def counted(self, **path: str) -> Answer:
        """What the provider counts that would be asked, where that speaks the client's protocol, else an estimate,
        which says so. Raises `GatewayError`.
        """
        here = process.current()
        snapshot = here.snapshots.current
        asked = await self.asked(here, **path)
        try:
            model, _ = find(snapshot, self.caller, asked.model)
        except GatewayError as error:
            retell(error, asked)
            raise
        try:
            call = prepare(here, snapshot, self.caller, asked, new_hex(), self.request_id, self.fields, looking=True)
        except GatewayError as error:  # who could not ask it now may still know how long it is
            let_go(error)
        else:
            if (counted := await counting.counted(here, call)) is not None:
                return json_answer({self.field: counted})
        estimated = prompt_tokens(asked, model, here.tokenizers.bytes_a_token(model.slug))
        return json_answer({self.field: estimated, "estimated": True})


def retell(error: GatewayError, asked: ChatRequest) -> None:
    """An error names what the client said as the client said it."""
    if asked.spoken is not None:
        asked.spoken.retell(error)


class Route(Chat):
    """POST /v1/route: where a chat completion of this body would go, without going there."""

    endpoint = "route"

    async def post(self, request: HttpRequest) -> Answer:
        """The plan. Nothing is dialled, held, billed or written.

        What would be refused before its hold is refused alike, with the plan beside the error once there is one.
        """
        here = process.current()
        asked = await self.asked(here)
        try:
            call = prepare(
                here, here.snapshots.current, self.caller, asked, new_hex(), self.request_id, self.fields,
                looking=True,
            )  # fmt: skip
        except GatewayError as error:
            if error.plan:
                error.more[explaining.FIELD] = explaining.told(error.plan)
            raise
        return json_answer({"object": "route", explaining.FIELD: explaining.told(call.plan)})
