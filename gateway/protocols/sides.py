"""The two sides on which a wire protocol meets the chat form, which lies between every client and every upstream.

    client    body -> `Spoken` and a chat body     `Writer`: chunks of the chat form -> events, or a body
    upstream  chat body -> `Sent`                  `Source`: events, or a body -> chunks of the chat form

Both work without I/O. Where client and upstream speak the same protocol and it is not the chat form, the client's own
body goes on and the upstream's events come back (`Passing`); the chat form is then read beside them, for what is
counted, billed and decided.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Struct

from billing.tokens import Tokens
from gateway.wire.dialects import Dialect
from gateway.wire.errors import GatewayError, InvalidRequest, UpstreamFault

if TYPE_CHECKING:
    from gateway.protocols.openai_chat import ChatRequest, Fit
    from gateway.wire.sse import Event

EVENTS = "text/event-stream; charset=utf-8"
# What a model may make, of which a chat's answer can hold some; one known to make none of it is for another endpoint.
CHATS = frozenset({"text", "audio", "image"})


class Kept(NamedTuple):
    """An answer that an upstream keeps: the account that it is in (`Offer.opens`), its id there, and how many tokens it
    is at most, with all that it goes on from.
    """

    account: str
    id: str
    tokens: int


class Spoken(Struct, frozen=True, kw_only=True):
    """What a client said in a protocol that is not the chat form.

    - `protocol`: which one, by its name in `gateway.protocols.PROTOCOLS`
    - `body`: its body, checked; `form`: what the protocol keeps of reading it, to write the answer
    - `told`: the path in it of a parameter of the chat form, as near as is known
    - `only_native`: paths in it of what only an offer of the same protocol can be asked for
    - `built_in`: words that such an offer must list, for what the provider bills, keeps or calls out for
    - `ignored`: paths of what has no effect at an offer of another protocol
    - `unchecked`: those of them that are fields of the body, and so go on to an offer of the same protocol
    - `hints`: fields of the chat form that OpenAI's protocols lack: only an offer that lists them is sent them
    - `fields`: header fields that go on to an offer of the same protocol
    - `kept`: the answer that it goes on from
    - `stream_type`: the media type of a stream
    - `makes`: what a model must make to be asked this, one of them
    """

    protocol: str
    body: Mapping[str, Any]
    form: Any
    told: Callable[[str], str | None]
    only_native: tuple[str, ...] = ()
    built_in: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    fields: Mapping[str, str] = {}
    kept: Kept | None = None
    stream_type: str = EVENTS
    makes: frozenset[str] = CHATS

    def retell(self, error: GatewayError) -> None:
        """Puts what an error names into the client's own words, if it is not told in them yet."""
        if error.param is None or error.told:
            return
        error.told = True
        param = self.told(error.param)
        if param is not None and param != error.param:
            error.message = error.message.replace(error.param, param)
            error.args = (error.message,)
            error.param = param

    def nowhere(self, model: str, param: str) -> InvalidRequest:
        """The refusal of what no offer of the same protocol is there for."""
        message = f"Parameter {param} is not supported by any provider of model {model}. Leave it out."
        refusal = InvalidRequest(message, param=param, code="unsupported_parameter")
        refusal.told = True
        return refusal


class Ours(Struct, frozen=True):
    """What is the gateway's own in an answer: its id, `created` (Unix seconds), the model's name as it is shown."""

    id: str
    created: int
    model: str


class Asking(Struct, frozen=True):
    """What a dial asks of its offer.

    - `model`: its name at the provider; `output_cap`: the cap to send, if any; `fit`: what the offer does not take
    - `prefill`: the beginning of an answer that is to be gone on with
    - `takes`: the words of the offer's list of parameters, as far as the policy lets it have them
    - `cap_field`, `ask_usage`, `variant`: the provider's columns
    - `ours`: for an answer that passes
    - `sealed`: what a client is told in place of the id of an answer that the upstream keeps
    """

    model: str
    output_cap: int | None
    fit: "Fit"
    prefill: str
    takes: tuple[str, ...]
    cap_field: str
    ask_usage: bool
    variant: str
    ours: Ours
    sealed: Callable[[str], str] = str


class Answer(Protocol):
    """An upstream's answer while its bytes come. It never waits, so it is neither sync nor async."""

    meaningful: bool  # Something to show has been read. Before that another offer may be tried.
    complete: bool  # The upstream said that it is done.
    stopped: bool  # The gateway has ended it: what follows is only counted.
    skipped: int  # Events ignored as keep-alives.
    upstream_id: str  # The answer's id at the provider, for its bill; empty if it gave none.
    tier: str  # The class of service that it said it served; empty if it did not.
    abandoned: GatewayError | None  # Why nobody wants it any more: it keeps nothing, and what follows is only counted.
    fault: UpstreamFault | None  # Waits while frames that came before it are sent; check after each `feed`.

    @property
    def usage(self) -> Tokens | None:
        """Its counts; None if it sent none that can be believed. A half that is 0 may only not have been counted."""

    @property
    def usage_suspect(self) -> bool:
        """It sent counts that cannot be believed, or do not add up."""

    def disbelieve(self) -> None:
        """Its counts cannot be, as somebody found who knows what was asked: `usage` is none from now on."""

    @property
    def usage_claim(self) -> dict[str, Any] | None:
        """What it sent, where that is suspect: see `openai_chat.usage.claim`."""

    @property
    def counted(self) -> bool:
        """Whether `usage` counts the whole answer: nothing more was to come when it did."""

    @property
    def counted_as_nothing(self) -> bool:
        """Whether the upstream said that it read nothing and wrote nothing, and the whole answer has nothing in it."""

    @property
    def empty(self) -> bool:
        """Whether nothing was written so far that a completion counts: no text, thought, call, picture or sound."""

    @property
    def passes(self) -> bool:
        """Whether the client's own body was sent, and what comes goes on as it is."""

    @property
    def begun(self) -> bool:
        """Whether an answer is under way, and not just a connection."""

    @property
    def relayed_bytes(self) -> int:
        """UTF-8 bytes of text read, shown or not, for an estimate and for the bound of an answer's length."""

    @property
    def calls(self) -> int:
        """How many calls of tools have begun."""

    @property
    def reasoning_bytes(self) -> int:
        """How many of them are reasoning."""

    @property
    def said(self) -> str:
        """The text so far, where another offer may go on with it; else empty."""

    @property
    def unread(self) -> int:
        """Bytes that wait for the rest of their event or body. Work on them may take its time."""

    @property
    def kept(self) -> int:
        """Bytes that it keeps until its end."""

    @property
    def unread_body(self) -> int:
        """Bytes of a whole body that says nothing before its end, and whose length tells how much was written."""

    @property
    def finish_reason(self) -> str | None:
        """In OpenAI's words."""

    @property
    def native_finish_reason(self) -> str | None:
        """In the upstream's word."""

    def understand(self, sent: "Sent") -> None:
        """What comes is the answer to this. To be called before `feed`."""

    def feed(self, data: bytes) -> list[bytes]:
        """Frames for a streaming client, never the terminal part. Raises `UpstreamFault`."""

    def end(self) -> None:
        """The upstream's body ended. Raises `UpstreamFault` if the answer is not whole."""

    def conclude(self) -> None:
        """Nothing more is wanted of a `stopped` answer: it is whole as it is."""

    def abandon(self, reason: GatewayError) -> bool:
        """Nobody wants it any more, for a `reason`. False: what is kept is needed to read on."""

    def set_usage(self, tokens: Tokens) -> None:
        """Show these counts, which are what is billed."""

    def set_cost(self, dollars: Decimal | None) -> None:
        """What the answer is charged, for a client that asked to see it."""

    def final(self) -> bytes:
        """After settlement, once: the terminal part of a stream, or the whole body."""

    def error_event(self, error: GatewayError, request_id: str) -> bytes:
        """How the stream tells that it failed; nothing follows."""


class Source(Protocol):
    """Reads one answer of an upstream that speaks another protocol, as chunks or a completion of the chat form.

    A failure is told as the chat form tells it, as an object with `error`, or raised.
    """

    @property
    def complete(self) -> bool:
        """The upstream has said that it is done."""

    def event(self, name: str, event: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """What one event of its stream says. Raises `UpstreamFault` for one that cannot be."""

    def rest(self) -> Sequence[dict[str, Any]]:
        """What it has held back, once its stream has ended or is left."""

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        """What its whole body says. Raises `UpstreamFault`."""


class Events(Protocol):
    """Takes events out of bytes, as `gateway.wire.sse.EventReader` does."""

    @property
    def pending(self) -> int:
        """Bytes of an event that is not whole yet."""

    def feed(self, data: bytes) -> "list[Event]":
        """The events that `data` completes. Raises ValueError."""

    def close(self) -> "list[Event]":
        """What is left when the stream has ended. Raises ValueError."""


class Writer(Protocol):
    """Tells one answer to a client, as `openai_chat.AnswerReader` shows it: normalised, with the gateway's own id."""

    keep_alive: bytes  # What a client that waits is sent, and understands as nothing.

    def chunk(self, chunk: dict[str, Any]) -> bytes:
        """The events that a chunk of a stream becomes; maybe none."""

    def foreign(self, name: bytes, event: dict[str, Any]) -> bytes:
        """An event of an upstream of the chat form that is no chunk."""

    def ending(self, chunks: Sequence[dict[str, Any]]) -> bytes:
        """The events that end a stream, of its closing chunks: one a choice, with its finish reason, then usage."""

    def whole(self, answer: dict[str, Any]) -> bytes:
        """The body for a client that does not stream."""

    def error_event(self, error: GatewayError, dialect: Dialect, request_id: str) -> bytes:
        """How the stream tells that it failed."""


class Passing(Protocol):
    """Hands an answer on to a client of the same protocol; `usage` is as the chat form shows it."""

    def event(self, name: str, event: dict[str, Any], raw: bytes) -> bytes:
        """An event, which was read from `raw`, as it goes on; empty for what waits for the end."""

    def final(self, usage: Mapping[str, Any] | None) -> bytes:
        """What ends the stream."""

    def whole(self, answer: dict[str, Any], usage: Mapping[str, Any] | None) -> bytes:
        """A whole body as it goes on."""

    def error_event(self, error: GatewayError, dialect: Dialect, request_id: str) -> bytes:
        """How the stream tells that it failed."""


class Vectors(NamedTuple):
    """The names under which an `answer` has its list of vectors, and an item of that its `vector`."""

    answer: str = "data"
    vector: str = "embedding"


class Sent(Struct, frozen=True):
    """What an upstream is sent, and how it is understood.

    - `path`: behind its base URL; `headers`: beside those of every call
    - `source`: reads its answer; None: it speaks the chat form. `events`: takes its events out of the bytes; None: they
      are an event stream of the web
    - `passing`: of the answer, where the client speaks the same protocol and its body was passed on
    - `stream_type`: the media type of its streams
    - `ignored`: parameters that this upstream has nothing for
    - `vectors`: where an answer of vectors has them
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    source: Source | None = None
    events: Events | None = None
    passing: Passing | None = None
    ignored: tuple[str, ...] = ()
    stream_type: str = "text/event-stream"
    vectors: Vectors = Vectors()


class Counting(NamedTuple):
    """How an upstream is asked to count the tokens of a request: `path` behind its base URL, `headers` beside those of
    every call, and the `field` of its answer that is the count.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    field: str


class ClientSide(Protocol):
    """How clients of a protocol ask and are answered."""

    def writer(self, asked: "ChatRequest", ours: Ours) -> Writer:
        """What tells the answer to `asked`."""

    def status(self, error: GatewayError, dialect: Dialect) -> int:
        """The HTTP status of a failed request."""

    def error(self, error: GatewayError, dialect: Dialect, request_id: str) -> dict[str, Any]:
        """The body of a failed request."""


class UpstreamSide(Protocol):
    """How upstreams of a protocol are asked and understood.

    - `names_cap`: they demand an output cap
    - `max_stops`: how many stop sequences they take, if their offer says nothing else
    """

    names_cap: bool
    max_stops: int

    def sent(self, asked: "ChatRequest", asking: Asking) -> Sent:
        """What such an upstream is sent. Raises `InvalidRequest` for what it cannot be, by its path."""

    def counting(self, asked: "ChatRequest", asking: Asking) -> Counting | None:
        """How such an upstream counts what a client of its own protocol asks; None: it does not, or not this."""

    def chat_path(self, param: str) -> str:
        """The path of what such an upstream faults, as the chat form calls it, as far as that is known."""

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamFault:
        """What an answer means whose status is not 2xx."""
