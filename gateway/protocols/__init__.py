"""Wire protocols, one module each, both directions, without I/O. This page is what such a module must have.

A protocol is neither a vendor (a row) nor a model family (a column). Where client and upstream speak the same
one, the client's body passes with every field it had.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Protocol

from billing.tokens import Tokens
from gateway.protocols import openai_chat
from gateway.protocols.openai_chat import ChatRequest, Fit
from gateway.wire.dialects import Dialect
from gateway.wire.errors import GatewayError, UpstreamFault


class Answer(Protocol):
    """An upstream's answer while its bytes come. It never waits, so it is neither sync nor async."""

    meaningful: bool  # Something to show has been read. Before that another offer may be tried.
    complete: bool  # The upstream said that it is done.
    upstream_id: str  # The answer's id at the provider, for its bill; empty if it gave none.
    abandoned: GatewayError | None  # Why nobody wants it any more: it keeps nothing, and what follows is only counted.
    fault: UpstreamFault | None  # Waits while frames that came before it are sent; check after each `feed`.

    @property
    def usage(self) -> Tokens | None:
        """Its counts; None if it sent none that can be believed. A half that is 0 may only not have been counted."""

    @property
    def usage_suspect(self) -> bool:
        """It sent counts that cannot be believed, or do not add up."""

    @property
    def begun(self) -> bool:
        """Whether an answer is under way, and not just a connection."""

    @property
    def relayed_bytes(self) -> int:
        """UTF-8 bytes of text read, shown or not, for an estimate and for the bound of an answer's length."""

    @property
    def unread(self) -> int:
        """Bytes that wait for the rest of their event or body. Work on them may take its time."""

    @property
    def kept(self) -> int:
        """Bytes that it keeps until its end."""

    @property
    def finish_reason(self) -> str | None:
        """In OpenAI's words."""

    @property
    def native_finish_reason(self) -> str | None:
        """In the upstream's word."""

    def feed(self, data: bytes) -> list[bytes]:
        """Frames for a streaming client, never the terminal part. Raises `UpstreamFault`."""

    def end(self) -> None:
        """The upstream's body ended. Raises `UpstreamFault` if the answer is not whole."""

    def set_usage(self, tokens: Tokens) -> None:
        """Show these counts, which are what is billed."""

    def set_cost(self, dollars: Decimal | None) -> None:
        """What the answer is charged, for a client that asked to see it."""

    def final(self) -> bytes:
        """After settlement, once: the terminal part of a stream, or the whole body."""


class WireProtocol(Protocol):
    """What a protocol module has."""

    def parse(self, body: Any, raw_length: int, dialect: Dialect) -> ChatRequest:
        """Check a client's body. Raises `InvalidRequest`."""

    def upstream_body(
        self,
        request: ChatRequest,
        *,
        model: str,
        output_cap: int | None,
        cap_field: str,
        ask_usage: bool,
        fit: Fit,
    ) -> bytes:
        """What is sent to an upstream of this protocol."""

    def AnswerReader(
        self,
        request: ChatRequest,
        *,
        id: str,
        created: int,
        model: str,
        dialect: Dialect,
        output_cap: int | None,
        stops: tuple[str, ...],
    ) -> Answer:
        """A reader of one 2xx body; `id`, `created` (Unix seconds), `model` are what the client is shown."""

    def fault_from_response(self, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamFault:
        """What a non-2xx answer means."""

    def error_event(self, error: GatewayError, dialect: Dialect, request_id: str) -> bytes:
        """How a stream that has begun tells of a failure."""


PROTOCOLS: dict[str, WireProtocol] = {"openai_chat": openai_chat}
