"""Wire protocols, one folder each, both directions, without I/O. `sides` says what such a protocol must have.

A protocol is neither a vendor (a row) nor a model family (a column). Where client and upstream speak the same
one, the client's body passes with every field it had; else it goes through the chat form, which is the middle of all.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gateway.protocols.anthropic_messages import sides as anthropic_messages
from gateway.protocols.google_gemini import embeddings as google_embeddings
from gateway.protocols.google_gemini import sides as google_gemini
from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_chat import sides as openai_chat
from gateway.protocols.openai_completions import sides as openai_completions
from gateway.protocols.openai_embeddings import sides as openai_embeddings
from gateway.protocols.openai_responses import sides as openai_responses
from gateway.protocols.sides import ClientSide, UpstreamSide


class WireProtocol(NamedTuple):
    """A protocol as it is spoken at either end; `beside`: what else its providers are asked, by the name of the
    protocol whose clients ask for it.
    """

    client: ClientSide
    upstream: UpstreamSide
    beside: Mapping[str, UpstreamSide] = {}


CHAT = "openai_chat"
_OPENAI: Mapping[str, UpstreamSide] = {
    openai_embeddings.NAME: openai_embeddings.Upstream(),
    openai_completions.NAME: openai_completions.Upstream(),
}
# What a provider's row may name.
PROTOCOLS: dict[str, WireProtocol] = {
    CHAT: WireProtocol(openai_chat.Client(), openai_chat.Upstream(), _OPENAI),
    openai_responses.NAME: WireProtocol(openai_responses.Client(), openai_responses.Upstream(), _OPENAI),
    anthropic_messages.NAME: WireProtocol(anthropic_messages.Client(), anthropic_messages.Upstream()),
    google_gemini.NAME: WireProtocol(
        google_gemini.Client(), google_gemini.Upstream(), {openai_embeddings.NAME: google_embeddings.Upstream()}
    ),
}
CLIENTS: dict[str, ClientSide] = {
    **{name: protocol.client for name, protocol in PROTOCOLS.items()},
    openai_embeddings.NAME: openai_embeddings.Client(),
    openai_completions.NAME: openai_completions.Client(),
}
_SPEAKERS: dict[str, frozenset[str]] = {
    said: frozenset(name for name, protocol in PROTOCOLS.items() if said == name or said in protocol.beside)
    for said in CLIENTS
}


def speakers(said: str) -> frozenset[str]:
    """The protocols of the providers that can be asked what only a client of one can say."""
    return _SPEAKERS[said]


def upstream(protocol: str, asked: ChatRequest) -> UpstreamSide:
    """How a provider of a protocol is asked this."""
    spoken = PROTOCOLS[protocol]
    return spoken.upstream if asked.spoken is None else spoken.beside.get(asked.spoken.protocol, spoken.upstream)
