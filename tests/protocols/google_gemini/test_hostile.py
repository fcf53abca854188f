"""Whatever a client or a provider sends: it is read, or refused in one of our own ways, never by an accident."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.google_gemini.client_answer import ClientAnswer
from gateway.protocols.google_gemini.client_request import chat_form
from gateway.protocols.google_gemini.sides import read_counted
from gateway.protocols.google_gemini.upstream_answer import UpstreamAnswer
from gateway.protocols.google_gemini.upstream_request import Ability, body
from gateway.protocols.openai_chat import parse
from gateway.wire import sse, strict_json
from gateway.wire.errors import InvalidRequest, UpstreamFault
from tests.protocols.google_gemini.talk import ASKED, NOW, STREAMS, WEATHER, form, opened, reader, stream_of
from tests.protocols.google_gemini.test_round_trip import FULL

FULLER = FULL | {
    "labels": {"a": "b"},
    "safetySettings": [{"category": "C", "threshold": "OFF"}],
    "serviceTier": "flex",
    "store": False,
    "cachedContent": "",
}
ENTRY = {"type": "reasoning.encrypted", "data": "QQ==", "format": "google-gemini-v1", "index": 0, "span": [0, 1]}
CHAT: dict[str, Any] = {
    "model": "m-1",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "s"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
        {
            "role": "assistant",
            "content": "ab",
            "refusal": "r",
            "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
            "reasoning_details": [
                ENTRY,
                ENTRY | {"image": 0},
                ENTRY | {"id": "a"},
                {"type": "reasoning.text", "text": "t"},
            ],
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "get_w", "arguments": "{}"},
                    "extra_content": {"google": {"thought_signature": "QQ=="}},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        {"role": "user", "content": "hi"},
    ],
    "tools": [WEATHER, NOW, {"type": "custom", "custom": {"name": "sh", "format": {"type": "grammar", "grammar": {}}}}],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NOW]}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": {"type": "object"}}},
    "web_search_options": {},
    "modalities": ["text"],
    "reasoning": {"effort": "low"},
    "stop": ["a"],
    "safety_settings": [],
}
junk = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)),
    *(st.just([]), st.just({}), st.just([[]]), st.just([None]), st.just({"": {}}), st.just([{"type": "text"}])),
    *(st.just("data:,"), st.just({"$ref": "#"}), st.just({"text": None}), st.just({"parts": {"text": "x"}})),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    return [path, *(place for name, one in inner for place in places(one, (*path, name)))]


@st.composite
def mutated(draw: st.DrawFn, whole: Any) -> Any:
    """The same with one or two values that are something else, or gone."""
    made = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from([place for place in places(made) if place]))
        holder = made
        for name in place[:-1]:
            holder = holder[name]
        if draw(st.integers(0, 4)):
            holder[place[-1]] = copy.deepcopy(draw(junk))
        else:
            del holder[place[-1]]
        if not places(made)[1:]:
            break
    return made


@settings(deadline=None)
@given(mutated(FULLER))
def test_a_clients_body(sent: Any) -> None:
    for counts in (False, True):
        try:
            form = None if counts else chat_form(sent, model="m-1", stream=False)
            asked = read_counted(sent, 1000, model="m-1") if form is None else parse(form.body, 1000)
            body(asked.body)
        except InvalidRequest as error:
            assert error.message


@settings(deadline=None)
@given(mutated(CHAT))
def test_a_chat_body(sent: Any) -> None:
    try:
        parse(sent, 1000)
        body(sent)
        body(sent, output_cap=100, ability=Ability(levels=("low",), signs=True, json_schemas=False))
    except InvalidRequest as error:
        assert error.message


EVENTS = [event for case in STREAMS for event in opened(stream_of(case))]


@settings(deadline=None)
@given(st.sampled_from(EVENTS).flatmap(mutated), st.booleans())
def test_a_providers_event(event: Any, whole: bool) -> None:
    asked = {**ASKED, "web_search_options": {}, "logprobs": True}
    answer, read = UpstreamAnswer(asked, call_prefix="c"), reader(not whole, logprobs=True)
    event = json.loads(json.dumps(event))
    try:
        chunks = [answer.whole(event)] if whole else [*answer.event("", event), *answer.rest()]
        frames: list[bytes] = []
        for chunk in chunks:
            frames += read.feed(strict_json.dumps(chunk) if whole else sse.encode(strict_json.dumps(chunk)))
        read.end()
    except UpstreamFault:
        return
    shown = form(tools=[{"googleSearch": {}}])
    writer = ClientAnswer(shown, id="g", model="m")
    if whole:
        json.loads(writer.whole(json.loads(read.final())))
    else:
        early = [writer.chunk(chunk) for chunk in opened(b"".join(frames))]
        opened(b"".join(early) + writer.final(opened(read.final())))
