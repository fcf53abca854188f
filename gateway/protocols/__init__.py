"""Wire protocols, one folder each, both directions, without I/O. `sides` says what such a protocol must have.

A protocol is neither a vendor (a row) nor a model family (a column). Where client and upstream speak the same
one, the client's body passes with every field it had; else it goes through the chat form, which is the middle of all.
"""

from typing import NamedTuple

from gateway.protocols.anthropic_messages import sides as anthropic_messages
from gateway.protocols.google_gemini import sides as google_gemini
from gateway.protocols.openai_chat import sides as openai_chat
from gateway.protocols.openai_responses import sides as openai_responses
from gateway.protocols.sides import ClientSide, UpstreamSide


class WireProtocol(NamedTuple):
    """A protocol as it is spoken at either end."""

    client: ClientSide
    upstream: UpstreamSide


CHAT = "openai_chat"
PROTOCOLS: dict[str, WireProtocol] = {
    CHAT: WireProtocol(openai_chat.Client(), openai_chat.Upstream()),
    openai_responses.NAME: WireProtocol(openai_responses.Client(), openai_responses.Upstream()),
    anthropic_messages.NAME: WireProtocol(anthropic_messages.Client(), anthropic_messages.Upstream()),
    google_gemini.NAME: WireProtocol(google_gemini.Client(), google_gemini.Upstream()),
}
