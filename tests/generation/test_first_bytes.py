"""How long a provider may take to begin: until there is something of an answer, whatever it says before."""

import json
from typing import Any

import pytest

from billing.models import Attempt
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider
from tests.stage.speech import events


def _chunk(finish: str | None = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


SAYS_NOTHING = {
    "a role": _chunk(role="assistant", content=""),
    "a role and nulls": _chunk(role="assistant", content=None, reasoning_content="", tool_calls=[]),
    "a comment": b": PROCESSING\n\n",
    "a ping": b'event: ping\ndata: {"type": "ping"}\n\n',
    "no choices": b'data: {"choices": []}\n\n',
}
REST = _chunk(content="one") + _chunk(content=" two") + _chunk("stop") + b"data: [DONE]\n\n"


@pytest.mark.parametrize("said", SAYS_NOTHING)
def test_what_says_nothing_does_not_begin_the_time_between_two_chunks(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, said: str
) -> None:
    head = SAYS_NOTHING[said]
    option = simulated.script(f"thinks-{said}", head + REST, pauses=f"{len(head)}:1.5s")
    provider = make_provider(simulated.base_url, idle_timeout=0.5, first_byte_timeout=20)
    model = make_model(provider, f"sim-small?{option}")
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=True)
    *chunks, done = events(answer.text)
    assert done == "[DONE]"
    assert "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]) == "one two"


@pytest.mark.parametrize("again", [1, 10])
@pytest.mark.parametrize("said", SAYS_NOTHING)
def test_nor_does_it_end_the_time_for_the_first(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, said: str, again: int
) -> None:
    head = SAYS_NOTHING[said]
    # Once and then silence, or again and again, and never an answer.
    pauses = ",".join(f"{len(head) * place}:300ms" for place in range(1, again))
    option = simulated.script(f"never-{said}-{again}", head * again, pauses=pauses, end="hang")
    provider = make_provider(simulated.base_url, idle_timeout=20, first_byte_timeout=1)
    model = make_model(provider, f"sim-small?{option}")
    add_offer(model, make_provider(simulated.base_url), "sim-small?text=other", priority=1)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=True)
    attempts = Attempt.objects.filter(generation=answer.headers["x-generation-id"]).order_by("number")
    assert [(attempt.status, attempt.fault) for attempt in attempts] == [("failed", "timeout"), ("completed", "")]
    assert "other" in answer.text
    assert all(attempt.duration_ms is not None and attempt.duration_ms < 3000 for attempt in attempts)


def test_a_whole_answer_that_has_begun_may_be_silent_for_so_long_alone(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    body = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "one"}, "finish_reason": "stop"}]}'
    option = simulated.script("half", body[:40], content_type="application/json", end="hang")
    model = make_model(
        make_provider(simulated.base_url, idle_timeout=0.5, first_byte_timeout=20), f"sim-small?{option}"
    )
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
    took = Attempt.objects.get(model=model.slug).duration_ms
    assert took is not None and took < 10_000
