"""What passes is bounded as what is translated is: past its bound nothing goes on, and what is kept is counted."""

import json

import pytest

from gateway.protocols import PROTOCOLS
from gateway.protocols.anthropic_messages import sides as messages
from gateway.protocols.openai_chat import AnswerReader
from gateway.protocols.openai_chat.answer import held
from gateway.protocols.sides import Sent
from gateway.wire.errors import InvalidRequest, UpstreamFault
from tests.pairs.test_cuts import OURS, READ, asking


def begun(protocol: str) -> AnswerReader:
    """A reader of an answer that passes to a client of the same protocol."""
    asked = READ[protocol]()
    reader = AnswerReader(
        asked, id=OURS.id, created=OURS.created, model=OURS.model, writer=PROTOCOLS[protocol].client.writer(asked, OURS)
    )
    reader.understand(PROTOCOLS[protocol].upstream.sent(asked, asking()))
    return reader


def event(**said: object) -> bytes:
    return b"data: %b\n\n" % json.dumps(said).encode()


START = event(type="message_start", message={"id": "m", "usage": {"input_tokens": 1, "output_tokens": 1}})
BLOCK = event(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
TEXT = event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "more"})
GEMINI = event(candidates=[{"index": 0, "content": {"parts": [{"text": "more"}]}}])


@pytest.mark.parametrize(
    ("protocol", "beginning", "more"),
    [("anthropic_messages", START + BLOCK + TEXT, TEXT), ("google_gemini", GEMINI, GEMINI)],
)
def test_nothing_goes_on_of_an_answer_that_nobody_wants_any_more(protocol: str, beginning: bytes, more: bytes) -> None:
    reader = begun(protocol)
    assert b"".join(reader.feed(beginning))
    assert reader.abandon(InvalidRequest("Too long."))
    assert reader.feed(more) == []
    assert reader.relayed_bytes == len("more")  # of which it was wanted


SAID = event(type="response.output_text.delta", output_index=0, delta="more")


@pytest.mark.parametrize(
    ("protocol", "beginning", "again"),
    [
        ("anthropic_messages", START + BLOCK + TEXT, {"type": "message_delta", "delta": {"x": "y" * 90_000}}),
        (
            "anthropic_messages",
            START + BLOCK + TEXT,
            {"type": "content_block_start", "content_block": {"type": "text"}},
        ),
        ("google_gemini", GEMINI, {"candidates": [{"index": 0, "finishReason": "STOP", "x": "y" * 90_000}]}),
        ("openai_responses", SAID, {"type": "response.output_text.delta", "delta": ""}),
    ],
    ids=["ends", "blocks", "candidates", "places"],
)
def test_what_events_leave_behind_is_counted(
    monkeypatch: pytest.MonkeyPatch, protocol: str, beginning: bytes, again: dict[str, object]
) -> None:
    """Each names another place, and a provider may send such without end."""
    monkeypatch.setattr(held, "MAX_HELD", 1 << 20)
    reader = begun(protocol)
    reader.feed(beginning)
    with pytest.raises(UpstreamFault, match=r"."):
        for place in range(1, 20_000):
            reader.feed(event(**again, index=place, output_index=place))
            if reader.fault:
                raise reader.fault


def sent_betas(header: bytes, *takes: str) -> Sent:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    asked = messages.read(body, 80, {b"anthropic-beta": header})
    return PROTOCOLS["anthropic_messages"].upstream.sent(asked, asking(*takes))


def test_a_beta_that_changes_the_price_needs_the_offers_word() -> None:
    wished = b"claude-code-20250219,context-1m-2025-08-07,fast-mode-2026-02-01"
    plain = sent_betas(wished)
    assert ("anthropic-beta", "claude-code-20250219") in plain.headers
    assert plain.ignored == ("anthropic-beta.context-1m-2025-08-07", "anthropic-beta.fast-mode-2026-02-01")
    listed = sent_betas(wished, "context-1m")
    assert ("anthropic-beta", "claude-code-20250219,context-1m-2025-08-07") in listed.headers
    assert listed.ignored == ("anthropic-beta.fast-mode-2026-02-01",)
