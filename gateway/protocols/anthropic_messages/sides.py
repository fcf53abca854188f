"""Messages as clients speak it, and as upstreams do."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gateway.protocols.anthropic_messages import faults, native, variants
from gateway.protocols.anthropic_messages.client_answer import ClientAnswer, whole
from gateway.protocols.anthropic_messages.client_request import ChatForm, chat_form
from gateway.protocols.anthropic_messages.forms.takes import Takes
from gateway.protocols.anthropic_messages.upstream_answer import UpstreamAnswer
from gateway.protocols.anthropic_messages.upstream_request import body as upstream_body
from gateway.protocols.openai_chat.request.foreign_forms import names_of_speakers
from gateway.protocols.openai_chat.request.passing import passes, withheld, without
from gateway.protocols.openai_chat.request.request import ChatRequest, offered, parse
from gateway.protocols.sides import Asking, Counting, Ours, Passing, Sent, Spoken
from gateway.wire import sse
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError, InvalidRequest, UpstreamFault

NAME = "anthropic_messages"
# Where an offer does not take these, the chat form is what they are easily left out of.
CHAT_FIRST = frozenset({"web_search_options", "response_format", "cache_control"})
# Of another protocol's lists of parameters, as this one has them: what such an offer is not asked for by name.
HINTS = ("top_k", "cache_control")


def read(body: Any, raw_length: int, fields: Mapping[bytes, bytes]) -> ChatRequest:
    """A client's body, checked, `raw_length` bytes as it came; `fields` are the header fields of its request.

    Raises `InvalidRequest`, with the path as the client knows it.
    """
    form = chat_form(body)
    try:
        asked = parse(_told_to_the_end(form.body), raw_length, STANDARD)
    except InvalidRequest as error:
        error.param = form.param(error.param)
        raise
    spoken = Spoken(
        protocol=NAME,
        body=body,
        form=form,
        told=form.param,
        only_native=form.only_native,
        built_in=(
            *native.built_in(body),
            *(name for name in form.only_native if name in body and name != "max_tokens"),
        ),
        ignored=form.ignored,
        unchecked=tuple(name for name in form.ignored if name in body),
        hints=tuple(name for name in HINTS if name in form.body or (name == "cache_control" and asked.cache_control)),
        fields={
            name: fields[name.encode()].decode("latin-1")
            for name in ("anthropic-beta", "anthropic-version")
            if name.encode() in fields
        },
    )
    return replace(asked, spoken=spoken)


def _told_to_the_end(body: dict[str, Any]) -> dict[str, Any]:
    """A stream of this protocol ends with usage always."""
    return body | {"stream_options": {"include_usage": True}} if body.get("stream") is True else body


class MessagesWriter:
    """Tells one answer to a client of Messages. `names`: its names of tools by those of the chat form."""

    keep_alive = sse.comment("keep-alive")

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._stream = ClientAnswer(self._names)

    def chunk(self, chunk: dict[str, Any]) -> bytes:
        """The events of a chunk."""
        return self._stream.chunk(chunk)

    def foreign(self, name: bytes, event: dict[str, Any]) -> bytes:
        """Nothing a client of this protocol would understand."""
        return b""

    def ending(self, chunks: Sequence[dict[str, Any]]) -> bytes:
        """The events that end the stream."""
        return b"".join(map(self._stream.chunk, chunks)) + self._stream.final()

    def whole(self, answer: dict[str, Any]) -> bytes:
        """The body of a message."""
        return whole(answer, self._names)

    def error_event(self, error: GatewayError, dialect: Dialect, request_id: str) -> bytes:
        """The event that ends a stream which failed."""
        return faults.error_event(error, dialect, request_id)


class PassingMessages(native.Passing):
    """Hands an answer on."""

    def whole(self, answer: dict[str, Any], usage: Mapping[str, Any] | None) -> bytes:
        """A whole message."""
        return native.whole(answer, id=self._id, model=self._model, counts=usage)

    def error_event(self, error: GatewayError, dialect: Dialect, request_id: str) -> bytes:
        """The event that ends a stream which failed."""
        return faults.error_event(error, dialect, request_id)


class Source(UpstreamAnswer):
    """Reads an answer as the chat form."""

    def rest(self) -> tuple[()]:
        """Nothing: what comes says what it says at once."""
        return ()


class Client:
    """Clients of Messages."""

    def writer(self, asked: ChatRequest, ours: Ours) -> MessagesWriter:
        """What tells the answer."""
        form = asked.spoken.form if asked.spoken is not None else None
        return MessagesWriter(form.names if isinstance(form, ChatForm) else {})

    def status(self, error: GatewayError, dialect: Dialect) -> int:
        """The HTTP status of a failed request."""
        return faults.status_of(error)

    def error(self, error: GatewayError, dialect: Dialect, request_id: str) -> dict[str, Any]:
        """The body of a failed request."""
        return faults.envelope(error, dialect, request_id)


class Upstream:
    """Upstreams of Messages, by the variants of the services that sell it."""

    names_cap = True
    max_stops = 4096  # any number

    def sent(self, asked: ChatRequest, asking: Asking) -> Sent:
        """The client's own body where it speaks Messages itself, else one made of the chat form."""
        variant, spoken = _variant(asking), asked.spoken
        passing: Passing | None = None
        source = Source()
        if passes(asked, asking, NAME, chat_first=CHAT_FIRST):
            assert spoken is not None
            own = native.upstream_body(spoken.body, model=asking.model, output_cap=asking.output_cap)
            body = without(own.body, withheld(spoken, asking.fit))
            betas, unlisted = variants.allowed(variants.read_betas(spoken.fields.get("anthropic-beta")), asking.takes)
            ignored = (*own.ignored, *(f"anthropic-beta.{beta}" for beta in unlisted))
            version = variants.read_version(spoken.fields.get("anthropic-version"))
            passing = PassingMessages(id=asking.ours.id, model=asking.ours.model)
        else:
            chat = offered(
                asked, model=asking.model, output_cap=asking.output_cap, cap_field="max_tokens", ask_usage=False,
                fit=asking.fit, prefill=asking.prefill,
            )  # fmt: skip
            made = upstream_body(
                chat,
                model=asking.model,
                output_cap=asking.output_cap,
                stream=asked.stream,
                takes=_takes(variant, asking),
            )
            body, ignored = made.body, (*made.ignored, *names_of_speakers(chat["messages"]))
            source, betas, version = Source(made.reading), (), None
        call = variants.call(variant, body, betas=betas, version=version)
        events = variants.FramedEvents() if variant.framed and asked.stream else None
        return Sent(
            call.path,
            call.headers,
            asked.encoded(call.body),
            source,
            events,
            passing,
            ignored,
            stream_type=variant.stream_type,
        )

    def counting(self, asked: ChatRequest, asking: Asking) -> Counting | None:
        """The client's own body, at a service that counts."""
        variant, spoken = _variant(asking), asked.spoken
        if spoken is None or spoken.protocol != NAME or asked.file_ids:
            return None
        body = without(native.count_body(spoken.body, model=asking.model), withheld(spoken, asking.fit))
        betas, _ = variants.allowed(variants.read_betas(spoken.fields.get("anthropic-beta")), asking.takes)
        call = variants.count_call(variant, body, betas=betas)
        return None if call is None else Counting(call.path, call.headers, asked.encoded(call.body), "input_tokens")

    def chat_path(self, param: str) -> str:
        """As it is: its errors name none."""
        return param

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamFault:
        """What an answer means whose status is not 2xx."""
        return faults.fault(status, headers, body)


def _variant(asking: Asking) -> variants.Variant:
    return variants.VARIANTS.get(asking.variant) or variants.VARIANTS["plain"]


def _takes(variant: variants.Variant, asking: Asking) -> Takes:
    """What the offer takes, as its list of parameters and its provider's variant say."""
    takes = asking.takes
    return Takes("adaptive_thinking" in takes, formats="no_output_format" not in takes, urls=variant.urls)
