"""generateContent as clients speak it, and as upstreams do."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gateway.protocols.google_gemini import errors
from gateway.protocols.google_gemini.client_answer import ClientAnswer
from gateway.protocols.google_gemini.client_request import ChatForm, chat_form
from gateway.protocols.google_gemini.upstream_answer import UpstreamAnswer
from gateway.protocols.google_gemini.upstream_request import ORDINARY, path
from gateway.protocols.google_gemini.upstream_request import body as upstream_body
from gateway.protocols.openai_chat.request.request import ChatRequest, offered, parse
from gateway.protocols.sides import Asking, Ours, Sent, Spoken
from gateway.wire import strict_json
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError, InvalidRequest, UpstreamFault

NAME = "google_gemini"


def read(body: Any, raw_length: int, *, model: str, stream: bool, events: bool) -> ChatRequest:
    """A client's body, checked, `raw_length` bytes as it came; the rest its path says: `events`, that a stream is one
    of events and no array. Raises `InvalidRequest`, with the path as the client knows it.
    """
    form = chat_form(body, model=model, stream=stream)
    try:
        asked = parse(form.body, raw_length, STANDARD)
    except InvalidRequest as error:
        error.param = form.told(error.param)
        raise
    fields = {} if events else {"array": "true"}
    spoken = Spoken(protocol=NAME, body=body, form=form, only_native=form.only_native, fields=fields)
    return replace(asked, spoken=spoken)


class GeminiWriter(ClientAnswer):
    """Tells one answer to a client of generateContent."""

    def foreign(self, name: bytes, event: dict[str, Any]) -> bytes:
        """Nothing a client of this protocol would understand."""
        return b""

    def ending(self, chunks: Sequence[dict[str, Any]]) -> bytes:
        """What ends the stream."""
        return self.final(chunks)


class Source(UpstreamAnswer):
    """Reads an answer as the chat form. No event says that it is over: each candidate says why it ended."""

    complete = False


class Client:
    """Clients of generateContent."""

    def writer(self, asked: ChatRequest, ours: Ours) -> GeminiWriter:
        """What tells the answer."""
        assert asked.spoken is not None
        form: ChatForm = asked.spoken.form
        return GeminiWriter(form, id=ours.id, model=ours.model, events="array" not in asked.spoken.fields)

    def status(self, error: GatewayError, dialect: Dialect) -> int:
        """The HTTP status of a failed request."""
        return error.status_in(dialect)

    def error(self, error: GatewayError, dialect: Dialect, request_id: str) -> dict[str, Any]:
        """The body of a failed request."""
        return errors.envelope(error, error.param, dialect, request_id)


class Upstream:
    """Upstreams of generateContent."""

    def sent(self, asked: ChatRequest, asking: Asking) -> Sent:
        """A body made of the chat form."""
        chat = offered(
            asked,
            model=asking.model,
            output_cap=asking.output_cap,
            cap_field="max_tokens",
            ask_usage=False,
            fit=asking.fit,
            prefill=asking.prefill,
        )
        made = upstream_body(chat, output_cap=asking.output_cap, ability=ORDINARY)
        dumps = strict_json.dumps_long if asked.is_long else strict_json.dumps
        source = Source(chat, call_prefix=f"call_{asking.ours.id}_")
        return Sent(path(asking.model, asked.stream), (), dumps(made), source)

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamFault:
        """What an answer means whose status is not 2xx."""
        return errors.fault(status, headers, body)
