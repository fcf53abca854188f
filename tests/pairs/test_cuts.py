"""What passes from a provider to a client of the same protocol does not depend on how its bytes were cut."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.protocols import PROTOCOLS
from gateway.protocols.anthropic_messages import sides as messages
from gateway.protocols.google_gemini import sides as gemini
from gateway.protocols.openai_chat import AnswerReader, ChatRequest, Fit
from gateway.protocols.openai_responses import sides as responses
from gateway.protocols.sides import Asking, Ours
from tests.pairs.bare import fed
from tests.pairs.test_pairs import WHOLE

RECORDINGS = Path(__file__).parents[1] / "recordings"
STREAMS = sorted(path.relative_to(RECORDINGS).as_posix() for path in RECORDINGS.glob("*/*.sse"))
OURS = Ours("gen-1", 1700000000, "acme/m-1")
HI = [{"role": "user", "content": "hi"}]
CONTENTS = {"contents": [{"parts": [{"text": "hi"}]}]}
READ: dict[str, Callable[[], ChatRequest]] = {
    "openai_responses": lambda: responses.read({"model": "m", "input": "hi", "stream": True}, 80, pytest.fail),
    "anthropic_messages": lambda: messages.read(
        {"model": "m", "messages": HI, "max_tokens": 9, "stream": True}, 80, {}
    ),
    "google_gemini": lambda: gemini.read(CONTENTS, 80, model="m", stream=True, events=True),
}


class Seen(NamedTuple):
    """What a client was sent, what ended it otherwise than well, and what the books know."""

    sent: bytes
    fault: str | None
    known: tuple[Any, ...]


def asking(*takes: str) -> Asking:
    """What a dial asks of an offer that lists these words."""
    return Asking("m-up", None, Fit(), "", takes, "max_tokens", True, "", OURS)


def passed(protocol: str, asked: ChatRequest, pieces: Iterable[bytes]) -> Seen:
    """What a client of a protocol sees of a provider's bytes, as the relay hands them on."""
    sent = PROTOCOLS[protocol].upstream.sent(asked, asking())
    assert sent.passing is not None
    writer = PROTOCOLS[protocol].client.writer(asked, OURS)
    reader = AnswerReader(asked, id=OURS.id, created=OURS.created, model=OURS.model, writer=writer)
    reader.understand(sent)
    out, fault = fed(reader, pieces)
    if fault is not None:
        out += reader.error_event(fault, "req-1")
    known = (reader.meaningful, reader.complete, reader.usage, reader.finish_reason, reader.native_finish_reason)
    return Seen(out, None if fault is None else fault.kind.value, (*known, reader.relayed_bytes))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_passes_alike_however_it_is_cut(name: str) -> None:
    protocol, _, _ = name.partition("/")
    asked, data = READ[protocol](), (RECORDINGS / name).read_bytes()
    whole = passed(protocol, asked, [data])
    assert whole.sent
    assert passed(protocol, asked, [data[at : at + 1] for at in range(len(data))]) == whole
    for at in cuts(data):
        assert passed(protocol, asked, [data[:at], data[at:]]) == whole


def cuts(data: bytes) -> Iterable[int]:
    """Every offset; of a long stream, which a byte at a time is cut at all of them, those near ends of lines.

    In `make test` each third of them.
    """
    near = {end + step for end in range(len(data)) if data[end] == 10 for step in range(-2, 4)}
    return [at for at in range(1, len(data)) if len(data) <= 2500 or at in near][:: 1 if WHOLE else 3]
