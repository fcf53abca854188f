"""Embeddings as clients ask for them, and as upstreams are asked beside their chats."""

from gateway.protocols.openai_chat import sides
from gateway.protocols.openai_chat.request.request import ChatRequest
from gateway.protocols.openai_embeddings.answer import VectorReader
from gateway.protocols.openai_embeddings.request import NAME, read, upstream_body
from gateway.protocols.sides import Asking, Sent

__all__ = ["NAME", "Client", "Upstream", "VectorReader", "read"]

PATH = "/embeddings"


class Client(sides.Client):
    """Clients of embeddings, whose errors are those of a chat. A `VectorReader` writes what they are answered."""


class Upstream(sides.Upstream):
    """Upstreams of OpenAI's protocols."""

    def sent(self, asked: ChatRequest, asking: Asking) -> Sent:
        """The client's body, but for what the offer does not take."""
        path = sides.path_of(asking.variant, asking.model, PATH)
        return Sent(path, (), upstream_body(asked, asking))
