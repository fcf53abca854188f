"""What becomes of each kind of content between each two protocols, as docs/content.md says: a table that is walked.

Each row of it is a kind that clients of a protocol can send; `SENT` is how they do, and what of it a provider must see.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.wire.errors import InvalidRequest
from tests.pairs.bare import MODEL, read, send, told
from tests.pairs.clients import CLIENTS
from tests.pairs.providers import PROVIDERS
from tests.pairs.said import PNG, SCHEMA, Question, stream

Body = dict[str, Any]
DOCUMENT = Path(__file__).parents[2] / "docs/content.md"
PDF, WAV, MP4 = "JVBERi0xLjQKJQ==", "UklGRiQAAABXQVZFZm10IBAAAAABAAEA", "AAAAGGZ0eXBtcDQy"
PAGE, PICTURE, FILM = "https://example.com/a.pdf", "https://example.com/a.png", "https://example.com/a.mp4"
CACHE = {"type": "ephemeral"}
CAP = {"model": MODEL, "max_tokens": 100}
USER, CLOSING = "Look.", "Go on."


def data(kind: str, value: str) -> str:
    return f"data:{kind};base64,{value}"


def chat(*parts: Body, **more: Any) -> Body:
    content = [{"type": "text", "text": USER}, *parts]
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **more}


def responses(*parts: Body, **more: Any) -> Body:
    content = [{"type": "input_text", "text": USER}, *parts]
    return {"model": MODEL, "input": [{"role": "user", "content": content}], **more}


def messages(*blocks: Body, **more: Any) -> Body:
    content = [{"type": "text", "text": USER}, *blocks]
    return {**CAP, "messages": [{"role": "user", "content": content}], **more}


def gemini(*parts: Body, **more: Any) -> Body:
    return {"contents": [{"role": "user", "parts": [{"text": USER}, *parts]}], **more}


def chat_said(**said: Any) -> Body:
    body = chat()
    body["messages"] += [{"role": "assistant", **said}, {"role": "user", "content": CLOSING}]
    return body


def responses_said(*items: Body) -> Body:
    body = responses()
    body["input"] += [*items, {"role": "user", "content": CLOSING}]
    return body


def messages_said(*blocks: Body, after: Any = CLOSING) -> Body:
    body = messages()
    body["messages"] += [{"role": "assistant", "content": [*blocks]}, {"role": "user", "content": after}]
    return body


def gemini_said(*parts: Body, after: Body | None = None) -> Body:
    body = gemini()
    body["contents"] += [{"role": "model", "parts": [*parts]}, {"role": "user", "parts": [after or {"text": CLOSING}]}]
    return body


def blob(kind: str, value: str) -> Body:
    return {"inlineData": {"mimeType": kind, "data": value}}


def file(kind: str, uri: str) -> Body:
    return {"fileData": {"mimeType": kind, "fileUri": uri}}


def source(kind: str, value: str) -> Body:
    return {"type": "base64", "media_type": kind, "data": value}


def image(url: str) -> Body:
    return {"type": "image_url", "image_url": {"url": url}}


def chat_file(name: str, value: str) -> Body:
    return {"type": "file", "file": {"filename": name, "file_data": value}}


def sound(value: str) -> Body:
    return {"type": "input_audio", "input_audio": {"data": value, "format": "wav"}}


CITED = {"url": "https://example.com", "title": "A page", "start_index": 0, "end_index": 4}
SAID = {"type": "output_text", "text": "Said."}
SEARCHED = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_result", "url": "https://example.com", "title": "A page", "encrypted_content": "x"}
CALL = {"type": "function_call", "call_id": "c1", "name": "t", "arguments": "{}"}
# By kind and client: the body, and what of it a provider must see, in one of these forms.
SENT: dict[tuple[str, str], tuple[Body, tuple[str, ...]]] = {
    ("an image in base64", "openai_chat"): (chat(image(data("image/png", PNG))), (PNG,)),
    ("an image in base64", "openai_responses"): (
        responses({"type": "input_image", "image_url": data("image/png", PNG)}),
        (PNG,),
    ),
    ("an image in base64", "anthropic_messages"): (
        messages({"type": "image", "source": source("image/png", PNG)}),
        (PNG,),
    ),
    ("an image in base64", "google_gemini"): (gemini(blob("image/png", PNG)), (PNG,)),
    ("an image by its address", "openai_chat"): (chat(image(PICTURE)), (PICTURE,)),
    ("an image by its address", "openai_responses"): (
        responses({"type": "input_image", "image_url": PICTURE}),
        (PICTURE,),
    ),
    ("an image by its address", "anthropic_messages"): (
        messages({"type": "image", "source": {"type": "url", "url": PICTURE}}),
        (PICTURE,),
    ),
    ("an image by its address", "google_gemini"): (gemini(file("image/png", PICTURE)), (PICTURE,)),
    ("an image that a tool gave", "openai_responses"): (
        responses_said(
            CALL,
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [{"type": "input_image", "image_url": data("image/png", PNG)}],
            },
        ),
        (PNG,),
    ),
    ("an image that a tool gave", "anthropic_messages"): (
        messages_said(
            {"type": "tool_use", "id": "c1", "name": "t", "input": {}},
            after=[
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "image", "source": source("image/png", PNG)}],
                }
            ],
        ),
        (PNG,),
    ),
    ("an image that a tool gave", "google_gemini"): (
        gemini_said(
            {"functionCall": {"id": "c1", "name": "t", "args": {}}},
            after={
                "functionResponse": {"id": "c1", "name": "t", "response": {}, "parts": [blob("image/png", PNG)]},
            },
        ),
        (PNG,),
    ),
    ("a sound", "openai_chat"): (chat(sound(WAV)), (WAV,)),
    ("a sound", "openai_responses"): (responses(sound(WAV)), (WAV,)),
    ("a sound", "google_gemini"): (gemini(blob("audio/wav", WAV)), (WAV,)),
    ("a PDF in base64", "openai_chat"): (chat(chat_file("a.pdf", data("application/pdf", PDF))), (PDF,)),
    ("a PDF in base64", "openai_responses"): (
        responses({"type": "input_file", "filename": "a.pdf", "file_data": data("application/pdf", PDF)}),
        (PDF,),
    ),
    ("a PDF in base64", "anthropic_messages"): (
        messages({"type": "document", "source": source("application/pdf", PDF)}),
        (PDF,),
    ),
    ("a PDF in base64", "google_gemini"): (gemini(blob("application/pdf", PDF)), (PDF,)),
    ("a PDF by its address", "openai_chat"): (chat(chat_file("a.pdf", PAGE)), (PAGE,)),
    ("a PDF by its address", "openai_responses"): (responses({"type": "input_file", "file_url": PAGE}), (PAGE,)),
    ("a PDF by its address", "anthropic_messages"): (
        messages({"type": "document", "source": {"type": "url", "url": PAGE}}),
        (PAGE,),
    ),
    ("a PDF by its address", "google_gemini"): (gemini(file("application/pdf", PAGE)), (PAGE,)),
    ("a file of text", "openai_chat"): (
        chat(chat_file("a.txt", data("text/plain", "aGVsbG8="))),
        ("aGVsbG8=", "hello"),
    ),
    ("a file of text", "openai_responses"): (
        responses({"type": "input_file", "filename": "a.txt", "file_data": data("text/plain", "aGVsbG8=")}),
        ("aGVsbG8=", "hello"),
    ),
    ("a file of text", "anthropic_messages"): (
        messages({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hello"}}),
        ("hello",),
    ),
    ("a file of text", "google_gemini"): (gemini(blob("text/plain", "aGVsbG8=")), ("aGVsbG8=", "hello")),
    ("a film in base64", "openai_chat"): (
        chat({"type": "video_url", "video_url": {"url": data("video/mp4", MP4)}}),
        (MP4,),
    ),
    ("a film in base64", "google_gemini"): (gemini(blob("video/mp4", MP4)), (MP4,)),
    ("a film by its address", "openai_chat"): (chat({"type": "video_url", "video_url": {"url": FILM}}), (FILM,)),
    ("a film by its address", "google_gemini"): (gemini(file("video/mp4", FILM)), (FILM,)),
    ("a film's piece", "google_gemini"): (
        gemini({**blob("video/mp4", MP4), "videoMetadata": {"endOffset": "9s"}}),
        ("endOffset",),
    ),
    ("a cache breakpoint", "openai_chat"): (
        chat({"type": "text", "text": "Long.", "cache_control": CACHE}),
        ("cache_control", "prompt_cache_breakpoint"),
    ),
    ("a cache breakpoint", "openai_responses"): (
        responses({"type": "input_text", "text": "Long.", "prompt_cache_breakpoint": {"mode": "explicit"}}),
        ("cache_control", "prompt_cache_breakpoint"),
    ),
    ("a cache breakpoint", "anthropic_messages"): (
        messages({"type": "text", "text": "Long.", "cache_control": CACHE}),
        ("cache_control", "prompt_cache_breakpoint"),
    ),
    ("a search of the web", "openai_chat"): (chat(web_search_options={}), ("web_search", "googleSearch")),
    ("a search of the web", "openai_responses"): (
        responses(tools=[{"type": "web_search"}]),
        ("web_search", "googleSearch"),
    ),
    ("a search of the web", "anthropic_messages"): (
        messages(tools=[{"type": "web_search_20250305", "name": "web_search"}]),
        ("web_search", "googleSearch"),
    ),
    ("a search of the web", "google_gemini"): (gemini(tools=[{"googleSearch": {}}]), ("web_search", "googleSearch")),
    ("a search among some pages", "openai_responses"): (
        responses(tools=[{"type": "web_search", "filters": {"allowed_domains": ["example.com"]}}]),
        ("allowed_domains",),
    ),
    ("a search among some pages", "anthropic_messages"): (
        messages(tools=[{"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["example.com"]}]),
        ("allowed_domains",),
    ),
    ("results of a search", "anthropic_messages"): (
        messages(
            {
                "type": "search_result",
                "source": "https://example.com",
                "title": "A page",
                "content": [{"type": "text", "text": "found"}],
            }
        ),
        ("found",),
    ),
    ("a wish for citations", "anthropic_messages"): (
        messages(
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "hello"},
                "citations": {"enabled": True},
            }
        ),
        ("citations",),
    ),
    ("a structured answer", "openai_chat"): (
        chat(response_format={"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}),
        ('"city"',),
    ),
    ("a structured answer", "openai_responses"): (
        responses(text={"format": {"type": "json_schema", "name": "place", "schema": SCHEMA}}),
        ('"city"',),
    ),
    ("a structured answer", "anthropic_messages"): (
        messages(output_config={"format": {"type": "json_schema", "schema": SCHEMA}}),
        ('"city"',),
    ),
    ("a structured answer", "google_gemini"): (
        gemini(generationConfig={"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}),
        ('"city"',),
    ),
    ("code that the provider runs", "openai_responses"): (
        responses(tools=[{"type": "code_interpreter", "container": {"type": "auto"}}]),
        ("code_interpreter",),
    ),
    ("code that the provider runs", "anthropic_messages"): (
        messages(tools=[{"type": "code_execution_20250825", "name": "code_execution"}]),
        ("code_execution",),
    ),
    ("code that the provider runs", "google_gemini"): (gemini(tools=[{"codeExecution": {}}]), ("codeExecution",)),
    ("a sound for an answer", "openai_chat"): (
        chat(modalities=["text", "audio"], audio={"voice": "v", "format": "wav"}),
        ('"audio"', "AUDIO"),
    ),
    ("a sound for an answer", "google_gemini"): (
        gemini(generationConfig={"responseModalities": ["AUDIO"]}),
        ("AUDIO",),
    ),
    ("a picture for an answer", "openai_chat"): (chat(modalities=["text", "image"]), ('"image"', "IMAGE")),
    ("a picture for an answer", "openai_responses"): (
        responses(tools=[{"type": "image_generation"}]),
        ("image_generation",),
    ),
    ("a picture for an answer", "google_gemini"): (
        gemini(generationConfig={"responseModalities": ["TEXT", "IMAGE"]}),
        ('"image"', "IMAGE"),
    ),
    ("a refusal of before", "openai_chat"): (chat_said(content=None, refusal="I won't."), ("I won't.",)),
    ("a refusal of before", "openai_responses"): (
        responses_said(
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I won't."}]}
        ),
        ("I won't.",),
    ),
    ("a picture of before", "openai_chat"): (
        chat_said(content="Said.", images=[image(data("image/png", PNG))]),
        (PNG,),
    ),
    ("a picture of before", "openai_responses"): (
        responses_said({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PNG}),
        (PNG,),
    ),
    ("a picture of before", "google_gemini"): (gemini_said({"text": "Said."}, blob("image/png", PNG)), (PNG,)),
    ("a sound of before", "openai_chat"): (chat_said(content=None, audio={"id": "a1"}), ("a1",)),
    ("a search of before", "openai_responses"): (
        responses_said(
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {"type": "message", "role": "assistant", "content": [SAID]},
        ),
        ("ws_1",),
    ),
    ("a search of before", "anthropic_messages"): (
        messages_said(
            SEARCHED,
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [FOUND]},
            {"type": "text", "text": "Said."},
        ),
        ("encrypted_content",),
    ),
    ("code of before", "google_gemini"): (
        gemini_said(
            {"executableCode": {"language": "PYTHON", "code": "1"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        ),
        ("executableCode",),
    ),
    ("who speaks, by name", "openai_chat"): (
        {"model": MODEL, "messages": [{"role": "user", "name": "alice", "content": USER}]},
        ("alice",),
    ),
}
# The words of an offer's list that a kind needs: its provider bills it or calls out for it, or might refuse a hint.
LISTED = {
    "a cache breakpoint": ("cache_control",),
    "a search of the web": ("web_search_options", "web_search"),
    "a sound for an answer": ("audio", "modalities"),
}


def fate(kind: str, client: str, provider: str) -> str:
    """In the words of the document."""
    body, needles = SENT[kind, client]
    asked = read(client, body)
    try:
        sent = send(asked, provider, *LISTED.get(kind, ()))
    except InvalidRequest as refusal:
        assert refusal.param
        return f"`{refusal.param}`"
    raw = json.dumps(json.loads(sent.body), ensure_ascii=False)
    assert USER in raw
    if any(needle in raw for needle in needles):
        return "carried"
    named = (*sent.ignored, *(asked.spoken.ignored if asked.spoken is not None and sent.passing is None else ()))
    assert named, (kind, client, provider)
    return f"left out: `{named[0]}`"


def table() -> dict[tuple[str, str], dict[str, str]]:
    """The rows of docs/content.md."""
    lines = [line for line in DOCUMENT.read_text().partition("\n## ")[0].split("\n") if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(row[0], row[1]): dict(zip(head[2:], row[2:], strict=True)) for row in rows}


def test_every_kind_has_its_row() -> None:
    assert list(table()) == list(SENT)


@pytest.mark.parametrize(("kind", "client"), SENT)
def test_content_is_carried_or_named(kind: str, client: str) -> None:
    assert {provider: fate(kind, client, provider) for provider in PROVIDERS} == table()[kind, client]


# What a provider says besides text, and what of it each client must be told.
RECORDED = {
    ("a picture", "openai_responses", "iVBORw0KGgo="): "openai_responses/image.sse",
    ("a picture", "google_gemini", "iVBORw0KGgo="): "google_gemini/picture.sse",
    ("a cited page", "openai_responses", "https://weather.example/oslo"): "openai_responses/search.sse",
    ("a cited page", "anthropic_messages", "https://weather.example/oslo"): "anthropic_messages/search.sse",
    ("a cited page", "google_gemini", "https://w.test/a"): "google_gemini/grounded.sse",
}
RECORDINGS = Path(__file__).parents[1] / "recordings"


def chat_stream(**delta: Any) -> bytes:
    begun = {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]}
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return stream(begun, ended, "[DONE]", named=False)


ANSWERS: dict[tuple[str, str, str], bytes] = {
    ("a picture", "openai_chat", PNG): chat_stream(content="See:", images=[image(data("image/png", PNG))]),
    ("a cited page", "openai_chat", "https://example.com"): chat_stream(
        content="Said.", annotations=[{"type": "url_citation", "url_citation": CITED}]
    ),
    ("a sound", "openai_chat", "Good day."): chat_stream(audio={"id": "a1", "data": WAV, "transcript": "Good day."}),
    **{key: (RECORDINGS / name).read_bytes() for key, name in RECORDED.items()},
}


@pytest.mark.parametrize("asks", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("kind", "provider", "needle"), ANSWERS)
def test_what_an_answer_holds_reaches_every_client(
    kind: str, provider: str, needle: str, client: str, asks: bool
) -> None:
    body = CLIENTS[client].body(Question(), MODEL, asks)
    answer = told(client, provider, body, [ANSWERS[kind, provider, needle]], stream=asks)
    assert (answer.fault, needle in answer.text) == (None, True)
