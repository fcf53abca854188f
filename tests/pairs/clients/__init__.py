"""How a client of each protocol asks, hears an answer, and is told of a failure."""

from typing import Any

from tests.pairs.clients import anthropic_messages, google_gemini, openai_chat, openai_responses

CLIENTS: dict[str, Any] = {
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "anthropic_messages": anthropic_messages,
    "google_gemini": google_gemini,
}
