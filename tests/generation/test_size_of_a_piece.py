"""How large one event or body of a provider may be, as its row says."""

import pytest

from gateway.protocols.openai_chat import AnswerReader
from gateway.protocols.openai_chat.request.request import parse
from gateway.wire.errors import UpstreamFault
from gateway.wire.sse import MAX_LINES
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider

LEAST, USUAL = 64 << 10, 32 << 20
WHOLE = b'{"choices":[{"index":0,"message":{"content":"%b"},"finish_reason":"stop"}]}'
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", [WHOLE, EVENT], ids=["whole", "event"])
@pytest.mark.parametrize(("most", "status"), [(LEAST, 502), (USUAL, 200)])
def test_a_provider_may_send_as_large_a_piece_as_its_row_says(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, form: bytes, most: int, status: int, stream: bool
) -> None:
    said = simulated.script(f"piece-{alice.organization.slug}", form % (b"x" * LEAST))
    model = make_model(make_provider(simulated.base_url, max_event_bytes=most), f"piece?{said}")
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=stream)
    assert answer.status_code == status
    if status == 200:
        assert "x" * LEAST in answer.text
    else:
        assert answer.json()["error"]["message"] == f"The provider sent a piece of more than {LEAST} bytes."


def reader(most_bytes: int) -> AnswerReader:
    request = parse({"model": "m", "messages": [{"role": "user", "content": "hi"}]}, 60)
    return AnswerReader(request, id="1", created=0, model="m", most_bytes=most_bytes)


@pytest.mark.parametrize("form", [WHOLE, EVENT], ids=["whole", "event"])
def test_the_border_is_exact_and_may_lie_above_the_usual(form: bytes) -> None:
    most = USUAL + (1 << 20)
    event = form.partition(b"\n\n")[0] + b"\n\n" if form is EVENT else form
    room = most - len((event % b"").rstrip(b"\n"))
    answer = reader(most)
    answer.feed(form % (b"x" * room))
    answer.end()
    assert len(answer.final()) > USUAL
    answer = reader(most)
    with pytest.raises(UpstreamFault, match=f"more than {most} bytes"):
        answer.feed(form % (b"x" * (room + 1)))


def test_a_last_event_of_too_many_lines_is_too_large_as_well() -> None:
    """Its blank line is missing, so only the end of the stream shows that it is one."""
    answer = reader(USUAL)
    answer.feed(b"data: x\n" * (MAX_LINES + 1))
    with pytest.raises(UpstreamFault) as refused:
        answer.end()
    assert refused.value.unreadable
