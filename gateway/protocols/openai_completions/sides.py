"""Completions as clients ask for them, and as upstreams are asked beside their chats."""

from gateway.protocols.openai_chat import sides
from gateway.protocols.openai_chat.request.request import ChatRequest
from gateway.protocols.openai_completions.answer import CompletionsWriter, Source
from gateway.protocols.openai_completions.request import NAME, Completions, read, upstream_body
from gateway.protocols.sides import Asking, Ours, Sent

__all__ = ["NAME", "Client", "Upstream", "read"]

PATH = "/completions"
WRITER = CompletionsWriter()


class Client(sides.Client):
    """Clients of completions, whose errors are those of a chat."""

    def writer(self, asked: ChatRequest, ours: Ours) -> CompletionsWriter:
        """What tells the answer."""
        return WRITER


class Upstream(sides.Upstream):
    """Upstreams of OpenAI's protocols that have completions, too."""

    def sent(self, asked: ChatRequest, asking: Asking) -> Sent:
        """The client's body, but for what the offer does not take."""
        assert asked.spoken is not None
        form: Completions = asked.spoken.form
        path = sides.path_of(asking.variant, asking.model, PATH)
        return Sent(path, (), upstream_body(asked, asking), Source(form.choices))
