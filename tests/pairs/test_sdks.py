"""The official SDKs, with base URL and key set and nothing else, over providers of every protocol.

Each asks with a tool, streamed and whole, hears a thought, a text and two calls, and goes on with the results as its
own documentation has it: what the SDK kept of the turn goes back as it is. Each is imported where it is used: it takes
seconds, which a process that only collects tests need not spend.
"""

from typing import Any

import pytest

from tests.pairs.play import Play
from tests.pairs.providers import PROVIDERS
from tests.pairs.said import PROOF, SCHEMA, Call, Counts, Said

OSLO, TIME = Call("call_a1", "get_weather", {"city": "Zürich"}), Call("call_c3", "now", {})
THINKS = Said(
    "One moment.", "First  I think: ja.", PROOF, calls=(OSLO, TIME), finish="tool_calls", counts=Counts(50, 30, 8, 20)
)
SNOW = Said("Snow, -3 °C.")
RESULTS = {"call_a1": "snow", "call_c3": "12:00"}
every = [
    pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"]),
    pytest.mark.parametrize("provider", PROVIDERS),
]
pytestmark = every


def said(play: Play, provider: str, answer: Said, stream: bool) -> None:
    speaks = PROVIDERS[provider]
    play.says(provider, speaks.stream(answer) if stream else speaks.whole(answer), stream=stream)


def came_back(play: Play, provider: str) -> None:
    """The provider that thought was sent its turn as it had said it, with the results."""
    got, _ = play.asked(provider)
    assert [turn for turn in got.turns if turn[0] in ("said", "call", "result")] == [
        ("said", THINKS.text),
        *(("call", call.id, call.name, call.arguments) for call in THINKS.calls),
        *(("result", id, text) for id, text in RESULTS.items()),
    ]
    proofs = [turn[2] for turn in got.turns if turn[0] == "thought" and turn[2]]
    # Google's SDK holds a signature as bytes, and sends it in base64's other alphabet.
    assert [proof.translate(str.maketrans("-_", "+/")) for proof in proofs] == [PROOF]


def test_openai(play: Play, provider: str, stream: bool) -> None:
    from openai import OpenAI

    tools: Any = [
        {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True},
        {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}, "strict": False},
    ]
    asked: Any = {"tools": tools, "reasoning": {"effort": "low", "summary": "auto"}, "store": False}
    asked |= {"include": ["reasoning.encrypted_content"], "max_output_tokens": 4000}
    conversation: Any = [{"role": "user", "content": "What is the weather?"}]
    with OpenAI(base_url=f"{play.gateway.url}/v1", api_key=play.tenant.secret, max_retries=0) as client:

        def ask() -> Any:
            if not stream:
                return client.responses.create(model=play.model, input=conversation, **asked)
            with client.responses.stream(model=play.model, input=conversation, **asked) as told:
                kinds = [event.type for event in told]
            assert kinds[0] == "response.created"
            assert kinds[-1] == "response.completed"
            return told.get_final_response()

        said(play, provider, THINKS, stream)
        answer = ask()
        assert answer.status == "completed"
        assert answer.output_text == THINKS.text
        thoughts = [item for item in answer.output if item.type == "reasoning"]
        told = [part for item in thoughts for part in item.summary or item.content or ()]
        assert "".join(part.text for part in told) == THINKS.thought
        calls = [item for item in answer.output if item.type == "function_call"]
        assert [(call.call_id, call.name) for call in calls] == [(call.id, call.name) for call in THINKS.calls]
        assert [call.arguments for call in calls] == ['{"city":"Zürich"}', "{}"]
        usage = answer.usage
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (50, 30, 80)
        assert usage.input_tokens_details.cached_tokens == 8
        assert usage.output_tokens_details.reasoning_tokens == 20
        conversation += answer.output
        conversation += [
            {"type": "function_call_output", "call_id": call.call_id, "output": RESULTS[call.call_id]} for call in calls
        ]
        said(play, provider, SNOW, stream)
        assert ask().output_text == SNOW.text
    came_back(play, provider)


def test_anthropic(play: Play, provider: str, stream: bool) -> None:
    from anthropic import Anthropic

    tools: Any = [
        {"name": "get_weather", "input_schema": SCHEMA},
        {"name": "now", "input_schema": {"type": "object", "properties": {}}},
    ]
    asked: Any = {"tools": tools, "max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}}
    conversation: Any = [{"role": "user", "content": "What is the weather?"}]
    with Anthropic(base_url=play.gateway.url, api_key=play.tenant.secret, max_retries=0) as client:

        def ask() -> Any:
            if not stream:
                return client.messages.create(model=play.model, messages=conversation, **asked)
            with client.messages.stream(model=play.model, messages=conversation, **asked) as told:
                said = [event for event in told if event.type in ("text", "thinking")]
                answer = told.get_final_message()
            texts = {kind: "".join(getattr(event, kind) for event in said if event.type == kind) for kind in
                     ("text", "thinking")}  # fmt: skip
            for block in answer.content:
                assert block.type not in texts or getattr(block, block.type) == texts[block.type]
            return answer

        said(play, provider, THINKS, stream)
        answer = ask()
        assert answer.stop_reason == "tool_use"
        assert [block.text for block in answer.content if block.type == "text"] == [THINKS.text]
        thoughts = [block for block in answer.content if block.type == "thinking"]
        assert "".join(block.thinking for block in thoughts) == THINKS.thought
        calls = [block for block in answer.content if block.type == "tool_use"]
        assert tuple(Call(call.id, call.name, call.input) for call in calls) == THINKS.calls
        usage = answer.usage
        assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (42, 8, 30)
        conversation.append({"role": "assistant", "content": answer.content})
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": RESULTS[call.id]} for call in calls]
        conversation.append({"role": "user", "content": results})
        said(play, provider, SNOW, stream)
        (block,) = ask().content
        assert block.text == SNOW.text
    came_back(play, provider)


def test_google(play: Play, provider: str, stream: bool) -> None:
    from google import genai
    from google.genai import types

    declared = [
        types.FunctionDeclaration(name="get_weather", parameters_json_schema=SCHEMA),
        types.FunctionDeclaration(name="now"),
    ]
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=declared)],
        max_output_tokens=4000,
        thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=2000),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    options = types.HttpOptions(base_url=play.gateway.url)
    client = genai.Client(api_key=play.tenant.secret, http_options=options)
    conversation: Any = [types.Content(role="user", parts=[types.Part(text="What is the weather?")])]

    def ask() -> list[Any]:
        if not stream:
            return [client.models.generate_content(model=play.model, contents=conversation, config=config)]
        return list(client.models.generate_content_stream(model=play.model, contents=conversation, config=config))

    said(play, provider, THINKS, stream)
    answers = ask()
    contents = [candidate.content for answer in answers for candidate in answer.candidates]
    parts = [part for content in contents for part in content.parts]
    assert "".join(part.text for part in parts if part.text and part.thought) == THINKS.thought
    assert "".join(part.text for part in parts if part.text and not part.thought) == THINKS.text
    calls = [call for answer in answers for call in answer.function_calls or ()]
    assert tuple(Call(call.id, call.name, call.args) for call in calls) == THINKS.calls
    assert answers[-1].candidates[0].finish_reason == types.FinishReason.STOP
    usage = answers[-1].usage_metadata
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (50, 8)
    assert (usage.candidates_token_count, usage.thoughts_token_count, usage.total_token_count) == (10, 20, 80)
    conversation += contents
    results = [
        types.Part(
            function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": RESULTS[call.id]})
        )
        for call in calls
    ]
    conversation.append(types.Content(role="user", parts=results))
    said(play, provider, SNOW, stream)
    assert "".join(answer.text or "" for answer in ask()) == SNOW.text
    came_back(play, provider)
