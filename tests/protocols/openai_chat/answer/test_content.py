"""Content in typed parts, in a stream and whole: what comes out is text, under the names that clients read."""

from typing import Any

import pytest

from billing.tokens import Tokens
from tests.protocols.openai_chat.answers import DONE, Seen, chunk, relay, relay_at_every_cut, usage, whole

STOP = chunk({}, "stop")
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def thinking(thought: Any, **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thought} | more


STREAMED = (
    chunk({"role": "assistant", "content": ""})
    + chunk({"content": [thinking([text("Two plus ")])]})
    + chunk({"content": [thinking([text("two.")])]})
    + chunk({"content": "Four"})
    + chunk({"content": [text(".")]})
    + chunk({"content": ""}, "stop")
    + usage(9, 8)
    + DONE
)
WHOLE = whole(
    {"role": "assistant", "content": [thinking([text("Two plus two.")]), text("Four.")]},
    usage={"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17},
)


def joined(seen: Seen) -> dict[str, str]:
    """What a streaming client puts together; every piece must be text."""
    made: dict[str, str] = {}
    for delta, _ in seen.deltas:
        for name in ("content", "reasoning", "reasoning_content", "refusal"):
            if delta.get(name) is not None:
                made[name] = made.get(name, "") + delta[name]
    return made


@pytest.mark.parametrize("upstream", [STREAMED, WHOLE])
def test_thinking_and_text_in_parts_are_reasoning_and_content(upstream: bytes) -> None:
    thought = "Two plus two."
    seen = relay_at_every_cut(upstream)
    assert joined(seen) == {"content": "Four.", "reasoning": thought, "reasoning_content": thought}
    assert (seen.known["usage"], seen.known["relayed_bytes"]) == (Tokens(9, 8), len("Four." + thought))
    message = relay_at_every_cut(upstream, stream=False).message
    assert (message["content"], message["reasoning"], message["reasoning_content"]) == ("Four.", thought, thought)
    for stream in (True, False):
        hidden = relay([upstream], stream=stream, reasoning={"exclude": True})
        assert b"Two plus" not in hidden.early + hidden.final
        assert (joined(hidden)["content"] if stream else hidden.message["content"]) == "Four."


@pytest.mark.parametrize(
    ("parts", "meant"),
    [
        ([text("a"), text("b")], {"content": "ab"}),
        (["a", {"text": "b"}, None], {"content": "ab"}),
        ({"type": "text", "text": "a"}, {"content": "a"}),
        ([{"type": "output_text", "text": {"value": "a", "annotations": []}}], {"content": "a"}),
        ([{"type": "refusal", "refusal": "No."}], {"refusal": "No."}),
        ([thinking("r"), text("a")], {"content": "a", "reasoning": "r"}),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "r"}]}], {"reasoning": "r"}),
        ([{"type": "reasoning_text", "text": "r"}, text("a")], {"content": "a", "reasoning": "r"}),
        ([{"text": "r", "thought": True}, {"text": "a"}], {"content": "a", "reasoning": "r"}),
        ([text("<think>r</think>a")], {"content": "<think>r</think>a"}),
        ([text("See"), PICTURE], {"content": "See", "images": [PICTURE]}),
        ([PICTURE, {"type": "reference", "reference_ids": [1]}], {"images": [PICTURE]}),
    ],
)
def test_every_part_has_its_place(parts: Any, meant: dict[str, Any]) -> None:
    for upstream in (chunk({"role": "assistant", "content": parts}) + STOP + DONE, whole({"content": parts})):
        message = relay_at_every_cut(upstream, stream=False).message
        found = {name: message.get(name) for name in ("content", "reasoning", "refusal", "images") if message.get(name)}
        assert found == meant
        assert message["content"] is None or type(message["content"]) is str
        streamed = joined(relay_at_every_cut(upstream))
        assert {name: streamed.get(name) for name in meant if name != "images"} == {
            name: said for name, said in meant.items() if name != "images"
        }


def test_a_part_that_nobody_knows_goes_beside_the_text() -> None:
    odd = {"type": "reference", "reference_ids": [1]}
    for upstream in (chunk({"content": [text("a"), odd, 7]}) + STOP + DONE, whole({"content": [text("a"), odd, 7]})):
        message = relay_at_every_cut(upstream, stream=False).message
        assert (message["content"], message["content_parts"]) == ("a", [odd, 7])
        assert b'"content_parts":[{"type":"reference"' in (seen := relay([upstream])).early + seen.final


def test_a_thought_that_is_there_twice_is_told_once() -> None:
    message = {"reasoning_content": "r", "content": [thinking("r"), text("a")], "thinking_blocks": [thinking("r")]}
    for upstream in (chunk(message) + STOP + DONE, whole(message)):
        made = relay_at_every_cut(upstream, stream=False).message
        assert (made["reasoning"], made["reasoning_content"], made["content"]) == ("r", "r", "a")
        assert "thinking_blocks" not in made


@pytest.mark.parametrize(
    "thought",
    [
        {"thinking": "r"},
        {"thinking_content": "r"},
        {"reasoning_text": "r"},
        {"thinking_blocks": [thinking("r")]},
        {"reasoning_content": [text("r")]},
        {"reasoning": {"content": "r"}},
    ],
)
def test_other_names_of_a_thought_are_read(thought: dict[str, Any]) -> None:
    for upstream in (chunk(thought) + chunk({"content": "a"}) + STOP + DONE, whole(thought | {"content": "a"})):
        message = relay_at_every_cut(upstream, stream=False).message
        assert (message["reasoning"], message["reasoning_content"], message["content"]) == ("r", "r", "a")
        assert message.keys() == {
            *("role", "content", "refusal", "annotations", "reasoning", "reasoning_content", "reasoning_details"),
        }
        hidden = relay_at_every_cut(upstream, stream=False, include_reasoning=False).message
        assert hidden.keys() == {"role", "content", "refusal", "annotations"}


def test_a_name_of_a_thought_that_holds_none_passes() -> None:
    assert relay([whole({"content": "a", "thinking": {"on": True}})], stream=False).message["thinking"] == {"on": True}


def test_a_signed_thought_keeps_its_signature() -> None:
    upstream = (
        chunk({"content": [thinking("r1")]})
        + chunk({"content": [thinking("r2")]})
        + chunk({"content": [thinking("", signature="c2ln")]})
        + chunk({"content": "a"}, "stop")
        + DONE
    )
    signed = [{"type": "reasoning.text", "index": 0, "text": "r1r2", "signature": "c2ln"}]
    assert relay_at_every_cut(upstream, stream=False).message["reasoning_details"] == signed
    body = whole({"content": [thinking("r1r2", signature="c2ln"), text("a")]})
    assert relay_at_every_cut(body, stream=False).message["reasoning_details"] == signed


def test_a_stop_sequence_is_found_in_parts() -> None:
    upstream = chunk({"content": [text("one ST")]}) + chunk({"content": [text("OP two")]}) + STOP + DONE
    assert joined(relay_at_every_cut(upstream, stops=("STOP",))) == {"content": "one "}
