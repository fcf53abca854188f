"""Responses as clients speak it, and as upstreams do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gateway.protocols.openai_chat import faults
from gateway.protocols.openai_chat.request.foreign_forms import names_of_speakers
from gateway.protocols.openai_chat.request.passing import not_taken, passes, unasked
from gateway.protocols.openai_chat.request.reasoning import SPELLINGS
from gateway.protocols.openai_chat.request.request import ChatRequest, offered, parse
from gateway.protocols.openai_responses import native
from gateway.protocols.openai_responses.client_answer import AnswerWriter
from gateway.protocols.openai_responses.client_request import ChatForm, chat_form
from gateway.protocols.openai_responses.upstream_answer import AnswerReader, whole
from gateway.protocols.openai_responses.upstream_request import body as upstream_body
from gateway.protocols.openai_responses.upstream_request import chat_path
from gateway.protocols.sides import Asking, Kept, Ours, Sent, Spoken
from gateway.wire import sse
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError, InvalidRequest, UpstreamFault

NAME = "openai_responses"
PATH = "/responses"
PAID = frozenset({"moderation", "access_programs"})  # another model reads along


def read(body: Any, raw_length: int, opened: Callable[[str], Kept], *, carries: bool = False) -> ChatRequest:
    """A client's body, checked, `raw_length` bytes as it came.

    `opened` gives what a `previous_response_id` stands for, or raises `InvalidRequest`; `carries`: the client is one
    that needs `carried` items. Raises `InvalidRequest`, with the path as the client knows it.
    """
    form = chat_form(body, carries=carries)
    try:
        asked = parse(form.body, raw_length, STANDARD)
    except InvalidRequest as error:
        raise form.retold(error) from None
    kept = opened(form.previous) if form.previous is not None else None
    spoken = Spoken(
        protocol=NAME,
        body=body,
        form=form,
        told=form.path,
        only_native=form.only_native,
        built_in=(
            *form.built_in,
            *(name for name in form.only_native if name in PAID),
            *(("store",) if kept is not None else ()),
        ),
        ignored=form.ignored,
        unchecked=tuple(name for name in form.ignored if name in body),
        kept=kept,
    )
    return replace(asked, spoken=spoken)


class ResponsesWriter:
    """Tells one answer to a client of Responses."""

    keep_alive = sse.comment("keep-alive")

    def __init__(self, asked: Mapping[str, Any], ours: Ours, carries: bool) -> None:
        id = f"resp_{ours.id}"
        self._writer = AnswerWriter(asked, id=id, created=ours.created, model=ours.model, carries=carries)

    def chunk(self, chunk: dict[str, Any]) -> bytes:
        """The events of a chunk."""
        return self._writer.chunk(chunk)

    def foreign(self, name: bytes, event: dict[str, Any]) -> bytes:
        """Nothing a client of this protocol would understand."""
        return b""

    def ending(self, chunks: Sequence[dict[str, Any]]) -> bytes:
        """The events that end the stream."""
        return b"".join(map(self._writer.chunk, chunks)) + self._writer.final()

    def whole(self, answer: dict[str, Any]) -> bytes:
        """The body of a response."""
        return self._writer.whole(answer)

    def error_event(self, error: GatewayError, dialect: Dialect, request_id: str) -> bytes:
        """The events that end a stream which failed."""
        return self._writer.error_event(error, dialect, request_id)


class PassingResponses(native.AnswerWriter):
    """Hands an answer on."""

    def whole(self, answer: Mapping[str, Any], usage: Mapping[str, Any] | None = None) -> bytes:  # type: ignore[override]
        """A whole response."""
        super().whole(answer)
        return self.final(usage)


class Source:
    """Reads an answer as the chat form."""

    def __init__(self) -> None:
        self._reader = AnswerReader()

    @property
    def complete(self) -> bool:
        """The upstream has said that it is done."""
        return self._reader.completed is not None

    def event(self, name: str, event: dict[str, Any]) -> list[dict[str, Any]]:
        """What an event says."""
        return self._reader.event(name, event)

    def rest(self) -> tuple[()]:
        """Nothing: what comes says what it says at once."""
        return ()

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        """What a body says."""
        return whole(answer)


class Client:
    """Clients of Responses, whose errors have the form of OpenAI's."""

    def writer(self, asked: ChatRequest, ours: Ours) -> ResponsesWriter:
        """What tells the answer."""
        assert asked.spoken is not None
        form: ChatForm = asked.spoken.form
        return ResponsesWriter(asked.spoken.body, ours, form.carries)

    def status(self, error: GatewayError, dialect: Dialect) -> int:
        """The HTTP status of a failed request."""
        return error.status_in(dialect)

    def error(self, error: GatewayError, dialect: Dialect, request_id: str) -> dict[str, Any]:
        """The body of a failed request."""
        return error.body(dialect, request_id)


class Upstream:
    """Upstreams of Responses. The account is shared by all tenants, so what is kept there is named by sealed ids alone,
    and nothing is unless the offer lists `store`.
    """

    names_cap = False
    max_stops = 0

    def sent(self, asked: ChatRequest, asking: Asking) -> Sent:
        """The client's own body where it speaks Responses itself, else one made of the chat form."""
        spoken, fit = asked.spoken, asking.fit
        reasons = not set(SPELLINGS).isdisjoint(asking.takes) if asking.takes else asked.reasoning is not None
        passing: PassingResponses | None = None
        ignored: tuple[str, ...] = ()
        if passes(asked, asking, NAME):
            assert spoken is not None
            form: ChatForm = spoken.form
            store = "store" in asking.takes and spoken.body.get("store") is not False
            made = native.body(
                spoken.body,
                model=asking.model,
                output_cap=asking.output_cap,
                stream=asked.stream,
                store=store,
                reasons=reasons,
                previous=spoken.kept.id if spoken.kept is not None else None,
                withheld=not_taken(fit),
                referred=form.referred,
            )
            passing = PassingResponses(
                id=f"resp_{asking.ours.id}",
                created=asking.ours.created,
                model=asking.ours.model,
                previous=form.previous,
                sealed=asking.sealed if store else None,
                carries=form.carries,
            )
        else:
            ignored = unasked(asked, asking)
            chat = offered(
                asked,
                model=asking.model,
                output_cap=asking.output_cap,
                cap_field="max_completion_tokens",
                ask_usage=False,
                fit=fit.without(ignored),
                prefill=asking.prefill,
            )
            cap = asking.output_cap if asking.output_cap is not None else asked.output_cap
            made = upstream_body(chat, model=asking.model, output_cap=cap, stream=asked.stream, reasons=reasons)
            ignored += names_of_speakers(chat["messages"])
        return Sent(PATH, (), asked.encoded(made), Source(), None, passing, ignored)

    def counting(self, asked: ChatRequest, asking: Asking) -> None:
        """Not at all: no client of this protocol asks for it."""

    def chat_path(self, param: str) -> str:
        """A parameter's path in the chat form."""
        return chat_path(param)

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamFault:
        """What an answer means whose status is not 2xx."""
        return faults.fault_from_response(status, headers, body)


__all__ = ["NAME", "ChatForm", "Client", "Upstream", "read"]
