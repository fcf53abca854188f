"""What counts cost in dollars, to the last digit, in whatever protocol a provider tells them, streamed and whole."""

from decimal import Decimal
from typing import Any

import pytest

from billing.pricing import Rate, by_size
from tests.pairs.bare import MODEL, told
from tests.pairs.clients import CLIENTS
from tests.pairs.said import Question, stream, written

# Dollars a million tokens.
RATES = {
    "input": "3",
    "output": "15",
    "cached_input": "0.30",
    "cache_write_5m": "3.75",
    "cache_write_1h": "6",
    "audio_input": "40",
    "audio_output": "80",
    "video_input": "5",
    "image_output": "40",
    "second": "0.0001",
}
LONG, LONGER = {"input": "2", "output": "12"}, {"input": "4", "output": "18"}
VOICE = {"input": "2.50", "output": "10", "audio_input": "40", "audio_output": "80"}
STEPS = {"input": "6", "output": "22.5"}  # of a prompt above 200,000


def messages(usage: dict[str, Any]) -> tuple[bytes, bytes]:
    block = {"type": "text", "text": "Hello."}
    whole = {"type": "message", "content": [block], "stop_reason": "end_turn", "usage": usage}
    begun = {name: count for name, count in usage.items() if name != "output_tokens"}
    return written(whole).encode(), stream(
        {"type": "message_start", "message": {**whole, "content": [], "usage": begun | {"output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"input_tokens": 0, "output_tokens": usage["output_tokens"]},
        },
        {"type": "message_stop"},
    )


def gemini(usage: dict[str, Any]) -> tuple[bytes, bytes]:
    candidate = {"content": {"parts": [{"text": "Hello."}]}, "index": 0}
    early = {"candidates": [candidate], "usageMetadata": usage | {"candidatesTokenCount": 1}}
    last = {"candidates": [{"content": {"parts": []}, "index": 0, "finishReason": "STOP"}], "usageMetadata": usage}
    whole = {"candidates": [{**candidate, "finishReason": "STOP"}], "usageMetadata": usage}
    return written(whole).encode(), stream(early, last, named=False)


def chat(usage: dict[str, Any]) -> tuple[bytes, bytes]:
    choice = {"index": 0, "message": {"content": "Hello."}, "finish_reason": "stop"}
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hello."}, "finish_reason": "stop"}]}
    counted = {"choices": [], "usage": usage}
    return written({"choices": [choice], "usage": usage}).encode(), stream(chunk, counted, "[DONE]", named=False)


def responses(usage: dict[str, Any]) -> tuple[bytes, bytes]:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
    response = {"id": "r", "status": "completed", "output": [item], "usage": usage}
    return written(response).encode(), stream(
        {"type": "response.created", "response": {**response, "output": [], "usage": None}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    )


SAYS = {
    "openai_chat": chat,
    "openai_responses": responses,
    "anthropic_messages": messages,
    "google_gemini": gemini,
}
READ = {"cache_read_input_tokens": 30_000}
WRITTEN = {"cache_creation_input_tokens": 9000}
SPLIT = {"cache_creation": {"ephemeral_5m_input_tokens": 4000, "ephemeral_1h_input_tokens": 5000}}
FILM = [{"modality": "TEXT", "tokenCount": 20}, {"modality": "VIDEO", "tokenCount": 600}]
PICTURE = [{"modality": "IMAGE", "tokenCount": 1290}]
SOUND = [{"modality": "TEXT", "tokenCount": 12}, {"modality": "AUDIO", "tokenCount": 300}]
# By name: the protocol, the counts as it tells them, and what they come to.
AMOUNTS: dict[str, tuple[str, dict[str, Any], str]] = {
    # 20 x 3 + 30,000 x 0.30 + 100 x 15: what was read is beside the others, and never taken from them
    "read from the cache": ("anthropic_messages", {"input_tokens": 20, **READ, "output_tokens": 100}, "0.01056"),
    # 5 x 3 + 4,000 x 3.75 + 5,000 x 6 + 10 x 15
    "written for two times": (
        "anthropic_messages",
        {"input_tokens": 5, **WRITTEN, **SPLIT, "output_tokens": 10},
        "0.045165",
    ),
    # the rest of a split that does not add up, and all without one, lives five minutes
    "written, and split in part": (
        "anthropic_messages",
        {
            "input_tokens": 5,
            **WRITTEN,
            "cache_creation": {"ephemeral_1h_input_tokens": 5000},
            "output_tokens": 10,
        },
        "0.045165",
    ),
    "written, and not split": ("anthropic_messages", {"input_tokens": 5, **WRITTEN, "output_tokens": 10}, "0.033915"),
    # 30 x 3 + (12 + 400) x 15
    "thoughts beside the answer": (
        "google_gemini",
        {"promptTokenCount": 30, "candidatesTokenCount": 12, "thoughtsTokenCount": 400, "totalTokenCount": 442},
        "0.00627",
    ),
    # 30 x 3 + 412 x 15: there they are in it
    "thoughts in the answer": (
        "openai_chat",
        {"prompt_tokens": 30, "completion_tokens": 412, "completion_tokens_details": {"reasoning_tokens": 400}},
        "0.00627",
    ),
    "thoughts in a response": (
        "openai_responses",
        {"input_tokens": 30, "output_tokens": 412, "output_tokens_details": {"reasoning_tokens": 400}},
        "0.00627",
    ),
    "thoughts in a message": (
        "anthropic_messages",
        {"input_tokens": 30, "output_tokens": 412, "output_tokens_details": {"thinking_tokens": 400}},
        "0.00627",
    ),
    # 20 x 3 + 12 x 15 + 300 x 80
    "a sound": (
        "openai_chat",
        {"prompt_tokens": 20, "completion_tokens": 312, "completion_tokens_details": {"audio_tokens": 300}},
        "0.02424",
    ),
    "a sound of Google's": (
        "google_gemini",
        {"promptTokenCount": 20, "candidatesTokenCount": 312, "candidatesTokensDetails": SOUND},
        "0.02424",
    ),
    # 20 x 3 + 600 x 5 + 1,290 x 40
    "a film that is read and a picture that is made": (
        "google_gemini",
        {"promptTokenCount": 620, "promptTokensDetails": FILM}
        | {"candidatesTokenCount": 1290, "candidatesTokensDetails": PICTURE},
        "0.05466",
    ),
    "a picture in a chat": (
        "openai_chat",
        {"prompt_tokens": 620, "prompt_tokens_details": {"video_tokens": 600}}
        | {"completion_tokens": 1290, "completion_tokens_details": {"image_tokens": 1290}},
        "0.05466",
    ),
    # 20 x 3 + 10 x 15, and 61 seconds
    "seconds that are heard": (
        "openai_chat",
        {"prompt_tokens": 20, "completion_tokens": 10, "prompt_audio_seconds": 61},
        "0.00631",
    ),
    # 200,000 x 3 + 1,000 x 15; one token more, and all are dearer
    "at the border": ("openai_chat", {"prompt_tokens": 200_000, "completion_tokens": 1000}, "0.615"),
    "past the border": ("openai_chat", {"prompt_tokens": 200_001, "completion_tokens": 1000}, "1.222506"),
    # 20,000 x 6 + 190,000 x 0.30 + 1,000 x 22.5: what was cached counts for the size
    "past it with what was cached": (
        "anthropic_messages",
        {"input_tokens": 20_000, "cache_read_input_tokens": 190_000, "output_tokens": 1000},
        "0.1995",
    ),
}


# What others were seen to charge wrongly. By name: the protocol, the counts, rates, rates of prompts above 200,000, and
# what is right.
SEEN: dict[str, tuple[str, dict[str, Any], dict[str, str], dict[str, str], str]] = {
    # 20 x 3 + 40,000 x 0.30 + 100 x 15, not with 20 - 40,000 of input
    "less was read anew than from the cache": (
        "anthropic_messages",
        {"input_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 40_000, "output_tokens": 100},
        RATES,
        {},
        "0.01356",
    ),
    # 5 x 3 + 4,000 x 3.75 + 6,000 x 6 + 10 x 15, not all for five minutes
    "an hour of cache": (
        "anthropic_messages",
        {"input_tokens": 5, "cache_creation_input_tokens": 10_000, "cache_read_input_tokens": 0, "output_tokens": 10}
        | {"cache_creation": {"ephemeral_5m_input_tokens": 4000, "ephemeral_1h_input_tokens": 6000}},
        RATES,
        {},
        "0.051165",
    ),
    "without a split all is for five minutes": (
        "anthropic_messages",
        {"input_tokens": 5, "cache_creation_input_tokens": 10_000, "output_tokens": 10},
        RATES,
        {},
        "0.037665",
    ),
    # 30 x 0.30 + 412 x 2.50, not 12 x 2.50
    "thoughts that are left out of the answer": (
        "google_gemini",
        {"promptTokenCount": 30, "candidatesTokenCount": 12, "thoughtsTokenCount": 400, "totalTokenCount": 442},
        {"input": "0.30", "output": "2.50"},
        {},
        "0.001039",
    ),
    # 50 x 3 + 15 x 15, of which the stream tells less before: the last total counts
    "a running total": (
        "google_gemini",
        {"promptTokenCount": 50, "candidatesTokenCount": 15, "totalTokenCount": 65},
        RATES,
        {},
        "0.000375",
    ),
    # 10 x 3 + 900 x 15, of which 20 are text
    "thoughts that nobody sees": (
        "openai_chat",
        {"prompt_tokens": 10, "completion_tokens": 900, "completion_tokens_details": {"reasoning_tokens": 880}},
        RATES,
        {},
        "0.01353",
    ),
    # 250,000 x 4 + 1,000 x 18, the whole request
    "a long prompt": (
        "google_gemini",
        {"promptTokenCount": 250_000, "candidatesTokenCount": 1000, "totalTokenCount": 251_000},
        LONG,
        LONGER,
        "1.018",
    ),
    "a prompt at the border": (
        "openai_chat",
        {"prompt_tokens": 200_000, "completion_tokens": 1000},
        LONG,
        LONGER,
        "0.412",
    ),
    "a prompt of one token more": (
        "openai_chat",
        {"prompt_tokens": 200_001, "completion_tokens": 1000},
        LONG,
        LONGER,
        "0.818004",
    ),
    # 20 x 2.50 + 100 x 10 + 400 x 80, not 500 x 10
    "sound at its own price": (
        "openai_chat",
        {"prompt_tokens": 20, "completion_tokens": 500, "prompt_tokens_details": {"text_tokens": 20, "audio_tokens": 0}}
        | {"completion_tokens_details": {"text_tokens": 100, "audio_tokens": 400}},
        VOICE,
        {},
        "0.03305",
    ),
    "sound without a count of text": (
        "openai_chat",
        {"prompt_tokens": 20, "completion_tokens": 500, "completion_tokens_details": {"audio_tokens": 400}},
        VOICE,
        {},
        "0.03305",
    ),
    # one token at 0.02 a million is not nothing
    "a single token": (
        "openai_chat",
        {"prompt_tokens": 1, "completion_tokens": 1},
        {"input": "0.02", "output": "0"},
        {},
        "0.00000002",
    ),
}


def amount_of(
    provider: str, usage: dict[str, Any], streamed: bool, rows: list[tuple[str, int, Rate]]
) -> Decimal | None:
    """What a chat client's answer is charged when its provider tells this usage."""
    body = CLIENTS["openai_chat"].body(Question(), MODEL, streamed)
    answer = told("openai_chat", provider, body, [SAYS[provider](usage)[streamed]], stream=streamed)
    assert (answer.fault, answer.reader.usage_suspect) == (None, False)
    tokens = answer.reader.usage
    assert tokens is not None
    return by_size(rows).price(tokens).charge


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", SEEN)
def test_what_others_charged_wrongly(name: str, streamed: bool) -> None:
    provider, usage, rates, longer, amount = SEEN[name]
    rows = [(item, 0, Rate(None, Decimal(rate))) for item, rate in rates.items()]
    rows += [(item, 200_000, Rate(None, Decimal(rate))) for item, rate in longer.items()]
    assert amount_of(provider, usage, streamed, rows) == Decimal(amount)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", AMOUNTS)
def test_counts_cost_exactly(name: str, streamed: bool) -> None:
    provider, usage, amount = AMOUNTS[name]
    rows = [(item, 0, Rate(None, Decimal(rate))) for item, rate in RATES.items()]
    rows += [(item, 200_000, Rate(None, Decimal(rate))) for item, rate in STEPS.items()]
    assert amount_of(provider, usage, streamed, rows) == Decimal(amount)
