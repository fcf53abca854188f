"""Google's own SDK: what it sends is read, and what it is sent it reads. Only the network between is ours."""

import json
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import httpx
import pytest
from django.utils.functional import SimpleLazyObject

from gateway.protocols.google_gemini.client_answer import ClientAnswer
from gateway.protocols.google_gemini.client_request import ChatForm, chat_form
from gateway.protocols.google_gemini.errors import envelope
from gateway.protocols.google_gemini.upstream_request import Ability, body
from gateway.protocols.openai_chat import parse
from gateway.wire.errors import RateLimited, UpstreamFault
from routing.health.faults import Fault
from tests.protocols.google_gemini.talk import STREAMS, opened, stream_of
from tests.protocols.google_gemini.test_hostile import CHAT

# Read when a test asks for it: it is large, and every process that runs tests has collected this file.
genai: Any = SimpleLazyObject(partial(import_module, "google.genai"))
types: Any = SimpleLazyObject(partial(import_module, "google.genai.types"))

CALL = {"id": "a", "type": "function", "function": {"name": "get_w", "arguments": '{"city":"Oslo"}'}}
THOUGHT = {"type": "reasoning.text", "text": "Hm.", "signature": "+/8=", "format": "anthropic-claude-v1", "index": 0}


class Gateway:
    """Answers the SDK with what `answer` makes of its form; keeps the forms."""

    def __init__(self) -> None:
        self.forms: list[ChatForm] = []
        self.paths: list[str] = []
        self.answers: list[Any] = []
        transport = httpx.MockTransport(self._handle)
        options = types.HttpOptions(httpx_client=httpx.Client(transport=transport), base_url="http://gateway.test")
        self.client = genai.Client(api_key="key", http_options=options)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(str(request.url))
        form = chat_form(json.loads(request.content), model="m-1", stream="stream" in request.url.path)
        parse(form.body, len(request.content))
        self.forms.append(form)
        answer = self.answers.pop(0)
        return answer(ClientAnswer(form, id="gen-1", model="acme/m-1"))  # type: ignore[no-any-return]


def whole(message: dict[str, Any], finish: str = "stop") -> Any:
    completion = {
        "choices": [{"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 2}},
    }
    return lambda answer: httpx.Response(200, json=json.loads(answer.whole(completion)))


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


class Stream(httpx.SyncByteStream):
    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames

    def __iter__(self) -> Iterator[bytes]:
        yield from self._frames


@pytest.mark.parametrize("ability", [Ability(signs=True), Ability(levels=("low", "high"), json_schemas=False)])
def test_a_provider_is_sent_what_its_types_know(ability: Ability) -> None:
    made = body(CHAT, output_cap=500, ability=ability)
    for content in made.pop("contents"):
        types.Content.model_validate(content)
    types.Content.model_validate(made.pop("systemInstruction"))
    for tool in made.pop("tools"):
        types.Tool.model_validate(tool)
    types.GenerationConfig.model_validate(made.pop("generationConfig"))
    assert made == {}


@pytest.mark.parametrize("case", STREAMS)
def test_our_recordings_are_what_its_types_know(case: str) -> None:
    for event in opened(stream_of(case)):
        if "error" not in event:
            types.GenerateContentResponse.model_validate(event)


def test_a_text() -> None:
    gateway = Gateway()
    gateway.answers = [whole({"content": "Hei."})]
    config = types.GenerateContentConfig(system_instruction="Be brief.", max_output_tokens=9, stop_sequences=["X"])
    said = gateway.client.models.generate_content(model="m-1", contents="hi", config=config)
    assert (said.text, said.candidates[0].finish_reason, said.response_id) == ("Hei.", "STOP", "gen-1")
    assert (said.usage_metadata.candidates_token_count, said.usage_metadata.thoughts_token_count) == (3, 2)
    assert gateway.paths[0].endswith("/models/m-1:generateContent")
    assert gateway.forms[0].body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]


def test_a_stream_with_signs_of_life() -> None:
    gateway = Gateway()

    def stream(answer: ClientAnswer) -> httpx.Response:
        frames = [
            answer.keep_alive,
            answer.chunk(chunk({"role": "assistant", "reasoning": "Hm\u2028."})),
            answer.keep_alive,
            answer.chunk(chunk({"content": "He"})),
            answer.chunk(chunk({"content": "i."})),
            answer.final([chunk({}, "length")]),
        ]
        return httpx.Response(200, stream=Stream(frames))

    gateway.answers = [stream]
    thinking = types.ThinkingConfig(include_thoughts=True, thinking_budget=100)
    config = types.GenerateContentConfig(thinking_config=thinking)
    events = list(gateway.client.models.generate_content_stream(model="m-1", contents="hi", config=config))
    parts = [part for event in events for part in event.candidates[0].content.parts]
    assert [(part.text, bool(part.thought)) for part in parts] == [
        ("Hm\u2028.", True), ("He", False), ("i.", False), ("", False),
    ]  # fmt: skip
    assert events[-1].candidates[0].finish_reason == "MAX_TOKENS"
    assert gateway.paths[0].endswith(":streamGenerateContent?alt=sse")
    assert gateway.forms[0].body["reasoning"] == {"enabled": True, "max_tokens": 100}


def test_functions_are_called_and_thoughts_come_back() -> None:
    """Its own loop: it calls the function, sends the result and the signature, and ends with the text."""
    gateway = Gateway()
    gateway.answers = [
        whole({"content": None, "tool_calls": [CALL], "reasoning_details": [THOUGHT]}, "tool_calls"),
        whole({"content": "Cold."}),
    ]

    def get_w(city: str, days: int = 1) -> dict[str, str]:
        """Weather of a city."""
        return {"w": f"cold in {city}"}

    config = types.GenerateContentConfig(tools=[get_w])
    said = gateway.client.models.generate_content(model="m-1", contents="weather?", config=config)
    assert said.text == "Cold."
    function = gateway.forms[0].body["tools"][0]["function"]
    assert function["name"] == "get_w"
    assert function["parameters"]["properties"]["city"]["type"] == "string"
    _, model, tool = gateway.forms[1].body["messages"]
    assert model["reasoning_details"] == [THOUGHT]
    assert model["tool_calls"][0]["function"] == CALL["function"]
    assert tool["tool_call_id"] == model["tool_calls"][0]["id"]
    assert tool["content"] == '{"result":{"w":"cold in Oslo"}}'


def test_a_picture_and_a_schema() -> None:
    pydantic = pytest.importorskip("pydantic")
    point = pydantic.create_model("Point", x=(int, ...), label=(str | None, None))
    gateway = Gateway()
    gateway.answers = [whole({"content": '{"x":1}'})]
    config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=point)
    picture = types.Part.from_bytes(data=b"\xff\xd8\xff\xfb\xef", mime_type="image/jpeg")
    said = gateway.client.models.generate_content(model="m-1", contents=["look", picture], config=config)
    assert said.parsed.x == 1
    (message,) = gateway.forms[0].body["messages"]
    assert message["content"][1]["image_url"]["url"] == "data:image/jpeg;base64,/9j/++8="
    schema = gateway.forms[0].body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["x"]["type"] == "integer"
    assert schema["properties"]["label"]["type"] == ["string", "null"]


def test_errors_before_and_after_the_start() -> None:
    gateway = Gateway()
    limited = envelope(RateLimited("Slow down.", retry_after=7), None, id="req-1")

    def breaks(answer: ClientAnswer) -> httpx.Response:
        told = answer.error_event(UpstreamFault(Fault.TRUNCATED), request_id="req-1")
        return httpx.Response(200, stream=Stream([answer.chunk(chunk({"content": "He"})), told]))

    gateway.answers = [lambda answer: httpx.Response(429, json=limited), breaks]
    with pytest.raises(genai.errors.ClientError) as caught:
        gateway.client.models.generate_content(model="m-1", contents="hi")
    assert (caught.value.code, caught.value.status, caught.value.message) == (429, "RESOURCE_EXHAUSTED", "Slow down.")
    heard = []
    with pytest.raises(genai.errors.ServerError) as broken:
        for event in gateway.client.models.generate_content_stream(model="m-1", contents="hi"):
            heard.append(event.text)
    assert (heard, broken.value.code, broken.value.status) == (["He"], 502, "UNAVAILABLE")
