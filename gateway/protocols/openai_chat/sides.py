"""The chat form spoken as it is, by clients and by upstreams."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gateway.protocols.openai_chat import faults
from gateway.protocols.openai_chat.answer.writer import CHAT
from gateway.protocols.openai_chat.request.passing import unasked
from gateway.protocols.openai_chat.request.request import ChatRequest, upstream_body
from gateway.protocols.sides import Asking, Ours, Sent, Writer
from gateway.wire.dialects import Dialect
from gateway.wire.errors import GatewayError, UpstreamFault

PATH = "/chat/completions"
DEPLOYMENTS = "deployments"  # Azure's variant: a model is a deployment, and its name stands in the path


def path_of(variant: str, model: str, path: str = PATH) -> str:
    """Where a model is asked, behind the base URL of a service of this variant."""
    return f"/deployments/{quote(model, safe='')}{path}" if variant == DEPLOYMENTS else path


class Client:
    """Clients of the chat form, each of whose dialects is a row of `gateway.wire.dialects`."""

    def writer(self, asked: ChatRequest, ours: Ours) -> Writer:
        """What tells the answer."""
        return CHAT

    def status(self, error: GatewayError, dialect: Dialect) -> int:
        """The HTTP status of a failed request."""
        return error.status_in(dialect)

    def error(self, error: GatewayError, dialect: Dialect, request_id: str) -> dict[str, Any]:
        """The body of a failed request."""
        return error.body(dialect, request_id)


class Upstream:
    """Upstreams of the chat form, of any vendor."""

    names_cap = False
    max_stops = 4

    def sent(self, asked: ChatRequest, asking: Asking) -> Sent:
        """The body as it is, but for what the offer does not take."""
        ignored = unasked(asked, asking) if asked.spoken is not None else ()
        body = upstream_body(
            asked,
            model=asking.model,
            output_cap=asking.output_cap,
            cap_field=asking.cap_field,
            ask_usage=asking.ask_usage,
            fit=asking.fit.without(ignored) if ignored else asking.fit,
            prefill=asking.prefill,
        )
        return Sent(path_of(asking.variant, asking.model), (), body, ignored=ignored)

    def counting(self, asked: ChatRequest, asking: Asking) -> None:
        """Not at all: no client of this protocol asks for it."""

    def chat_path(self, param: str) -> str:
        """As it is."""
        return param

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamFault:
        """What an answer means whose status is not 2xx."""
        return faults.fault_from_response(status, headers, body)
