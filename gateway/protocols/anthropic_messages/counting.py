"""`count_tokens`: what is asked, and what is answered where no provider is there to count.

A provider of this protocol counts what its own model reads (`native.count_body`, `variants.count_call`). For others it
is an estimate, and says so.
"""

from typing import Any

from billing.tokens import estimate
from gateway.protocols.anthropic_messages.client_request import ChatForm, chat_form
from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_chat.request.text import said_bytes
from gateway.wire import strict_json

IMAGE_TOKENS = 1_600  # what Anthropic's models read a large picture as


def count_form(body: Any) -> ChatForm:
    """A client's body, which has no cap, in the chat form. Raises `InvalidRequest`."""
    return chat_form({**body, "max_tokens": 1} if type(body) is dict else body)


def estimated(request: ChatRequest, bytes_a_token: float = 4.0) -> int:
    """About how many tokens a request is."""
    return estimate(said_bytes(request.body), bytes_a_token) + request.images * IMAGE_TOKENS


def answer(tokens: int, *, is_estimate: bool) -> bytes:
    """The body of an answer; `estimated` is ours, beside what an SDK reads."""
    return strict_json.dumps({"input_tokens": tokens, **({"estimated": True} if is_estimate else {})})
