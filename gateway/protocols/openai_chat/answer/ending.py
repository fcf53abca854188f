"""The terminal part of a stream: what could not go out before the answer was settled."""

from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from billing.tokens import Tokens, estimate
from gateway.protocols.openai_chat.answer.choice import Choice
from gateway.protocols.openai_chat.usage.reported import Reported
from gateway.protocols.openai_chat.usage.shown import show
from gateway.protocols.sides import Writer
from gateway.wire.dialects import Dialect

if TYPE_CHECKING:
    from gateway.protocols.openai_chat.request.request import ChatRequest


class Ending:
    """Keeps it, and writes it once.

    - `late`: frames that only the end could make
    - `beside_usage`: the chunk that the upstream's usage came in
    - `billed`: the counts to show, if they are not those reported; `cost`: what the tenant is charged, in dollars
    """

    __slots__ = ("_dialect", "_ours", "_request", "beside_usage", "billed", "cost", "late")

    def __init__(self, request: "ChatRequest", dialect: Dialect, ours: dict[str, Any]) -> None:
        self._request, self._dialect, self._ours = request, dialect, ours
        self.late: list[bytes] = []
        self.beside_usage: dict[str, Any] = {}
        self.billed: Tokens | None = None
        self.cost: Decimal | None = None

    def usage(self, reported: Reported, reasoning_bytes: int) -> dict[str, Any] | None:
        """The usage object: of what is billed, with the fields that the upstream sent where its counts are that."""
        counted = reported.tokens
        tokens = counted if self.billed is None else self.billed
        if tokens is None:
            return None
        sent = reported.sent if tokens is counted or tokens == counted else {}
        cost = self.cost if self._request.wants_cost else None
        thought = estimate(reasoning_bytes) if reasoning_bytes else 0
        return show(tokens, sent, extras=self._dialect.usage_extras, thought=thought, cost=cost)

    def written(self, writer: Writer, choices: Iterable[Choice], usage: dict[str, Any] | None) -> bytes:
        """The last events: of each choice its finish reason, then usage if it is to be shown."""
        chunks = [choice.envelope | self._ours | {"choices": [choice.closing()]} for choice in choices]
        if usage and (self._request.include_usage or self._dialect.always_reports_usage):
            chunks.append(self.beside_usage | self._ours | {"choices": [], "usage": usage})
        return b"".join((*self.late, writer.ending(chunks)))
