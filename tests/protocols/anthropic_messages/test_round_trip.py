"""A conversation of the Messages protocol through the chat form and back, also where others had a part in it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.anthropic_messages import client_answer, native
from gateway.protocols.anthropic_messages.client_request import chat_form
from gateway.protocols.anthropic_messages.forms.takes import Takes
from gateway.protocols.anthropic_messages.upstream_request import body as upstream_body
from gateway.protocols.openai_chat import parse
from tests.protocols.anthropic_messages.messages import chunks, completion, events, recorded, shown, told

PNG = "iVBORw0KGgo="
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).map(lambda text: f"a{text}b")
values = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | texts, lambda inner: st.lists(inner, max_size=2))
caches = st.sampled_from(
    [{}, {"cache_control": {"type": "ephemeral"}}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]
)
said = st.builds(lambda text, cache: {"type": "text", "text": text, **cache}, texts, caches)
pictures = st.sampled_from(
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "https://pictures.example/1.png"}},
    ]
)
proofs = st.text("ABCDEFGHxyz0189+/=", min_size=4, max_size=40)
thought = st.builds(
    lambda text, proof: {"type": "thinking", "thinking": text, "signature": proof}, texts | st.just(""), proofs
)
hidden = st.builds(lambda data: {"type": "redacted_thinking", "data": data}, proofs)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns in the one form that this protocol's own requests and ours agree on: every call with its result."""
    made: list[dict[str, Any]] = [{"role": "user", "content": draw(st.lists(said | pictures, min_size=1, max_size=3))}]
    for turn in range(draw(st.integers(0, 3))):
        thoughts = draw(st.lists(thought | hidden, max_size=3))
        ids = [f"toolu_{turn}_{at}" for at in range(draw(st.integers(0, 3)))]
        uses = [
            {
                "type": "tool_use",
                "id": id,
                "name": "f",
                "input": draw(st.dictionaries(texts, values, max_size=2)),
                **draw(caches),
            }
            for id in ids
        ]
        words = draw(st.lists(said, min_size=0 if uses else 1, max_size=2))
        made.append({"role": "assistant", "content": [*thoughts, *words, *uses]})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": id,
                **({"is_error": True} if draw(st.booleans()) else {}),
                **draw(caches),
                **draw(
                    st.sampled_from(
                        [
                            {},
                            {"content": "5"},
                            {"content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]},
                        ]
                    )
                ),
            }
            for id in ids
        ]
        made.append(
            {"role": "user", "content": [*results, *draw(st.lists(said, min_size=0 if results else 1, max_size=2))]}
        )
    return made


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    tool = {
        "name": "f",
        "description": "d",
        "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}},
    }
    choices = [{"type": "auto"}, {"type": "any"}, {"type": "none"}, {"type": "tool", "name": "f"}]
    fields: dict[str, Any] = {
        "system": st.lists(said, min_size=1, max_size=2),
        "temperature": st.sampled_from([0, 0.5, 1]),
        "stop_sequences": st.lists(texts, min_size=1, max_size=3),
        "metadata": st.just({"user_id": "u-1"}),
        "tool_choice": st.sampled_from(choices),
        "service_tier": st.sampled_from(["auto", "standard_only"]),
    }
    made = {name: draw(values) for name, values in fields.items() if draw(st.booleans())}
    if "temperature" not in made and made.get("tool_choice", {}).get("type") not in ("any", "tool"):
        thinking = [{"type": "enabled", "budget_tokens": 2000}, {"type": "disabled"}]
        made |= draw(st.sampled_from([{}, *({"thinking": one} for one in thinking)]))
    tools = [{**tool, **draw(caches)}]
    return {"model": "m", "max_tokens": 4000, "stream": True, "messages": draw(conversations()), "tools": tools, **made}


@given(requests())
def test_a_request_means_the_same_on_the_other_side(asked: dict[str, Any]) -> None:
    before = json.dumps(asked)
    form = chat_form(asked)
    assert json.dumps(asked) == before
    assert (form.only_native, form.ignored) == ((), ())
    made = upstream_body(parse(form.body, 1_000).body, model="m", output_cap=None, stream=True)
    if made.ignored:  # a call without a thought before it, see `goes_on_without_thoughts`
        assert made.ignored == ("reasoning",) and asked.pop("thinking")["type"] == "enabled"
    assert made.body == asked


def test_the_next_turn_of_a_recorded_answer_has_its_thoughts_as_they_were() -> None:
    """A chat client's turn: the answer it was shown goes back, and the provider sees its own blocks again."""
    answer = shown(chunks(recorded("thinking_tool")))
    details = [
        entry for chunk in answer for c in chunk["choices"] for entry in c["delta"].get("reasoning_details") or ()
    ]
    joined: dict[int, dict[str, Any]] = {}
    for entry in details:  # as clients put them together
        known = joined.setdefault(entry["index"], {})
        known |= {name: known.get(name, "") + value if name == "text" else value for name, value in entry.items()}
    call = {"id": "toolu_01A", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
    said = {
        "role": "assistant",
        "content": "One moment.",
        "tool_calls": [call],
        "reasoning_details": list(joined.values()),
    }
    asked = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "hi"},
            said,
            {"role": "tool", "tool_call_id": "toolu_01A", "content": "5"},
        ],
    }
    sent = upstream_body(parse(asked, 1_000).body, model="m", output_cap=4000, stream=False).body["messages"][1][
        "content"
    ]
    first = [data for _, data in events(recorded("thinking_tool"))]
    signatures = [
        data["delta"]["signature"] for data in first if data.get("delta", {}).get("type") == "signature_delta"
    ]
    assert [block["type"] for block in sent] == ["thinking", "redacted_thinking", "thinking", "text", "tool_use"]
    assert [block["signature"] for block in sent if block["type"] == "thinking"] == signatures
    assert [block["thinking"] for block in sent if block["type"] == "thinking"] == [
        "The user wants the weather.",
        "So I ask the tool.",
    ]


OTHERS = [
    {"type": "reasoning.summary", "summary": "Thinking.", "id": "rs_1", "format": "openai-responses-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "format": "openai-responses-v1", "index": 0},
    {"type": "reasoning.text", "text": "Hm.", "signature": "Cg==", "format": "google-gemini-v1", "index": 1},
    {"type": "reasoning.text", "text": "Open.", "index": 2},
]


def test_another_provider_s_thoughts_come_back_entry_by_entry_and_go_to_no_other() -> None:
    message = {"role": "assistant", "content": "ok", "reasoning_details": OTHERS}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    whole = json.loads(client_answer.whole(completion(answer)))
    streamed = events(
        told([{"choices": [{"index": 0, "delta": {"reasoning": "x", **message}, "finish_reason": "stop"}]}])
    )
    starts = [data["content_block"]["type"] for _, data in streamed if data["type"] == "content_block_start"]
    assert starts == [block["type"] for block in whole["content"]]
    hi = {"role": "user", "content": "hi"}
    back = {"model": "m", "max_tokens": 9, "messages": [hi, {"role": "assistant", "content": whole["content"]}, hi]}
    details = chat_form(back).body["messages"][1]["reasoning_details"]
    assert details == [*OTHERS[:3], {**OTHERS[3], "index": 3}]  # what nobody signed has its place for an index
    mine = native.upstream_body(back, model="m", output_cap=None).body
    assert mine["messages"][1]["content"] == [{"type": "text", "text": "ok"}]


def test_a_picture_in_a_result_follows_it() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    asked = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [picture]}]},
        ],
    }
    sent = upstream_body(parse(chat_form(asked).body, 1_000).body, model="m", output_cap=9, stream=False, takes=Takes())
    blocks = sent.body["messages"][2]["content"]
    assert [block["type"] for block in blocks] == ["tool_result", "text", "image"] and blocks[2] == picture
