"""An answer in which nothing was said is free if its provider says that it read and wrote nothing; what has anything in
it, or zeros that come before its end, was not counted.
"""

from typing import Any

import pytest

from gateway.protocols.openai_chat import AnswerReader
from tests.pairs.bare import MODEL, told
from tests.pairs.clients import CLIENTS
from tests.pairs.providers import PROVIDERS
from tests.pairs.said import Question, stream, written

Zeros = dict[str, Any] | None
FILTERED = "content_filter"


def chat(said: dict[str, Any], zeros: Zeros, streamed: bool) -> bytes:
    if not streamed:
        message = {"role": "assistant", "content": None, **said}
        return written(
            {"choices": [{"index": 0, "message": message, "finish_reason": FILTERED}], "usage": zeros}
        ).encode()
    head, end = {"index": 0, "finish_reason": None}, {"index": 0, "delta": {}, "finish_reason": FILTERED}
    delta = {"role": "assistant", "content": "", **said}
    chunks: list[Any] = [{"choices": [{**head, "delta": delta}], "usage": zeros}, {"choices": [end]}]
    return stream(*chunks, {"choices": [], "usage": zeros}, "[DONE]", named=False)


def responses(said: dict[str, Any], zeros: Zeros, streamed: bool) -> bytes:
    texts = [{"type": "output_text", "text": said["content"]}] if "content" in said else []
    items = [{"type": "message", "role": "assistant", "content": texts}] if texts else []
    calls = [
        {"type": "function_call", "call_id": call["id"], "name": "now", "arguments": ""}
        for call in said.get("tool_calls", ())
    ]
    pictures = [{"type": "image_generation_call", "result": "AA=="} for _ in said.get("images", ())]
    output: list[Any] = [*items, *calls, *pictures]
    response = {"id": "r", "status": "incomplete", "incomplete_details": {"reason": FILTERED}, "usage": zeros}
    if not streamed:
        return written({**response, "output": output}).encode()
    done = [{"type": "response.output_item.done", "output_index": at, "item": item} for at, item in enumerate(output)]
    begun = {"type": "response.created", "response": {"id": "r", "usage": zeros}}
    return stream(begun, *done, {"type": "response.incomplete", "response": {**response, "output": output}})


def anthropic(said: dict[str, Any], zeros: Zeros, streamed: bool) -> bytes:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": said["content"]}] if "content" in said else []
    blocks += [
        {"type": "tool_use", "id": call["id"], "name": "now", "input": {}} for call in said.get("tool_calls", ())
    ]
    message = {"type": "message", "role": "assistant", "content": blocks, "stop_reason": "refusal", "usage": zeros}
    if not streamed:
        return written(message).encode()
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "content": []}}]
    for at, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": at, "content_block": block})
        events.append({"type": "content_block_stop", "index": at})
    end = {"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": zeros}
    return stream(*events, end, {"type": "message_stop"})


def google(said: dict[str, Any], zeros: Zeros, streamed: bool) -> bytes:
    parts: list[dict[str, Any]] = [{"text": said["content"]}] if "content" in said else []
    parts += [{"functionCall": {"name": "now", "args": {}}} for _ in said.get("tool_calls", ())]
    parts += [{"inlineData": {"mimeType": "image/png", "data": "AA=="}} for _ in said.get("images", ())]
    answer = {"candidates": [{"content": {"parts": parts}, "finishReason": "SAFETY"}], "usageMetadata": zeros}
    return stream(answer, named=False) if streamed else written(answer).encode()


SAYS = {
    "openai_chat": chat,
    "openai_responses": responses,
    "anthropic_messages": anthropic,
    "google_gemini": google,
}
ZEROS: dict[str, dict[str, Any]] = {
    "openai_chat": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    "openai_responses": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
    "anthropic_messages": {"input_tokens": 0, "output_tokens": 0},
    "google_gemini": {"promptTokenCount": 0, "totalTokenCount": 0},
}
# What is told of the counts where nobody says that the prompt has none.
UNSAID: dict[str, list[Zeros]] = {
    "openai_chat": [None, {}, {"prompt_tokens": None, "completion_tokens": 0}, {"total_tokens": 0}],
    "openai_responses": [None, {}, {"output_tokens": 0}],
    "anthropic_messages": [None, {}, {"output_tokens": 0}, {"input_tokens": None, "output_tokens": 0}],
    "google_gemini": [None, {}, {"trafficType": "ON_DEMAND"}],
}
ANYTHING: dict[str, dict[str, Any]] = {
    "text": {"content": "hello"},
    "tool": {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "now", "arguments": ""}}]},
    "picture": {"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
}
every_way = [
    pytest.mark.parametrize("asks", [False, True], ids=["asked whole", "asked streamed"]),
    pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"]),
    pytest.mark.parametrize("provider", PROVIDERS),
]


def reader(provider: str, data: bytes, asks: bool) -> AnswerReader:
    body = CLIENTS["openai_chat"].body(Question(), MODEL, asks)
    return told("openai_chat", provider, body, [data], stream=asks).reader


def in_every_way(test: Any) -> Any:
    for mark in every_way:
        test = mark(test)
    return test


@in_every_way
def test_nothing_said_and_nothing_counted_is_nothing(provider: str, streamed: bool, asks: bool) -> None:
    read = reader(provider, SAYS[provider]({}, ZEROS[provider], streamed), asks)
    assert (read.complete, read.finish_reason) == (True, FILTERED)
    assert (read.counted_as_nothing, read.usage, read.usage_suspect) == (True, None, False)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_client_may_ask(client: str, provider: str) -> None:
    body = CLIENTS[client].body(Question(), MODEL, False)
    data = SAYS[provider]({}, ZEROS[provider], False)
    assert told(client, provider, body, [data], stream=False).reader.counted_as_nothing


@in_every_way
@pytest.mark.parametrize("said", ANYTHING)
def test_what_has_anything_in_it_was_not_counted(provider: str, streamed: bool, asks: bool, said: str) -> None:
    if (provider, said) == ("anthropic_messages", "picture"):
        return  # it has none
    read = reader(provider, SAYS[provider](ANYTHING[said], ZEROS[provider], streamed), asks)
    assert (read.complete, read.counted_as_nothing, read.usage) == (True, False, None)


@in_every_way
def test_nobody_s_zero_is_no_count(provider: str, streamed: bool, asks: bool) -> None:
    for zeros in UNSAID[provider]:
        read = reader(provider, SAYS[provider]({}, zeros, streamed), asks)
        assert (read.complete, read.counted_as_nothing, read.usage) == (True, False, None), zeros


def test_zeros_before_the_end_are_placeholders() -> None:
    """Of an answer that is cut off, or whose end says nothing more."""
    zeros = ZEROS["openai_chat"]
    begun = stream({"choices": [{"index": 0, "delta": {"role": "assistant"}}], "usage": zeros}, named=False)
    ended = stream({"choices": [{"index": 0, "delta": {}, "finish_reason": FILTERED}]}, "[DONE]", named=False)
    assert reader("openai_chat", begun, True).counted_as_nothing is False
    assert reader("openai_chat", begun + ended, True).counted_as_nothing is False
    last = stream({"choices": [], "usage": zeros}, named=False)
    assert reader("openai_chat", begun + ended.replace(b"data: [DONE]\n\n", last), True).counted_as_nothing is True


def test_who_lies_elsewhere_is_not_believed() -> None:
    zeros = ZEROS["openai_chat"]
    for more in ({"x_vendor": {"usage": {"prompt_tokens": -1}}}, {"x_vendor": {"usage": {"cached_tokens": 9}}}):
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": FILTERED}], **more, "usage": zeros}
        read = reader("openai_chat", stream(end, "[DONE]", named=False), True)
        assert (read.complete, read.counted_as_nothing, read.usage_suspect) == (True, False, True)
