"""How a provider of each protocol says a scene, streamed and whole, fails, and is asked."""

from typing import Any

from tests.pairs.providers import anthropic_messages, google_gemini, openai_chat, openai_responses

PROVIDERS: dict[str, Any] = {
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "anthropic_messages": anthropic_messages,
    "google_gemini": google_gemini,
}
