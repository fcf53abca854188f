"""The official SDK makes the same answer of our stream as of our whole body."""

from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.protocols.openai_chat.answers import DONE, chunk, relay, usage, whole

CITED = [
    {"type": "url_citation", "url_citation": {"title": "T", "url": "https://x/y", "start_index": 0, "end_index": 3}}
]


def pieces(*calls: tuple[str, str]) -> bytes:
    """Tool calls as the loosest servers send them: no index, no id, no type."""
    return b"".join(
        chunk({"tool_calls": [{"function": {"name": name, "arguments": part} if at == 0 else {"arguments": part}}]})
        for name, arguments in calls
        for at, part in enumerate((arguments[:3], arguments[3:]))
    )


STREAMS = {
    "text": chunk({"role": "assistant", "content": "7 "})
    + chunk({"role": "", "content": "é", "refusal": None}, "stop"),
    "reasoning": chunk({"reasoning_content": "r1"})
    + chunk({"reasoning_content": "r2"})
    + chunk({"content": "ok", "reasoning_content": None}, "stop"),
    "signed": chunk({"reasoning_details": [{"type": "reasoning.text", "text": "a"}]})
    + chunk({"reasoning_details": [{"type": "reasoning.text", "text": "b"}]})
    + chunk({"reasoning": None, "reasoning_details": [{"type": "reasoning.text", "signature": "s"}]})
    + chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "Z0FB"}]})
    + chunk({"content": "ok"}, "stop"),
    "calls": chunk({"content": "Look. "}) + pieces(("f", '{"a":1}'), ("g", '{"b":2}')) + chunk({}, "stop"),
    "citations": chunk({"content": "x", "annotations": CITED}) + chunk({"annotations": CITED}) + chunk({}, "end_turn"),
    "refusal": chunk({"refusal": "I "}) + chunk({"refusal": "won't"}, "stop"),
    "nothing": chunk({"role": "assistant"}) + chunk({}, "stop"),
}


@pytest.mark.row("B204", "B256", "B257", "B259", "B262", "B265", "B266", "B270")
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_and_a_body_are_one_answer_to_the_sdk(name: str) -> None:
    upstream = STREAMS[name] + usage(3, 9) + DONE
    chunks = relay([upstream], include_usage=True).chunks
    body = relay([upstream], stream=False)
    completion = ChatCompletion.model_validate_json(body.final)
    state: ChatCompletionStreamState[Any] = ChatCompletionStreamState()
    for made in chunks:
        list(state.handle_chunk(ChatCompletionChunk.model_validate(made)))
    drawn = state.get_final_completion()
    assert (drawn.id, drawn.created, drawn.model) == (completion.id, completion.created, completion.model)
    assert drawn.usage == completion.usage
    (ours,), (theirs,) = completion.choices, drawn.choices
    assert theirs.finish_reason == ours.finish_reason
    expected = ours.message.model_dump(exclude_unset=True)
    made_of_it = theirs.message.model_dump(exclude_unset=True)
    for call in made_of_it.get("tool_calls") or []:
        call["function"].pop("parsed_arguments", None)
        call.pop("index", None)
    assert {field: made_of_it.get(field) or None for field in expected} == {
        field: value or None for field, value in expected.items()
    }


@pytest.mark.row("B228")
def test_the_sdk_reads_a_loose_body() -> None:
    loose = {"tool_calls": [{"function": {"name": "f", "arguments": None}}], "reasoning": "r"}
    completion = ChatCompletion.model_validate_json(relay([whole(loose, "tool_use")], stream=False).final)
    (call,) = completion.choices[0].message.tool_calls or []
    assert (call.type, call.id, completion.choices[0].finish_reason) == ("function", "call_gen-1_0", "tool_calls")
