"""A text that broke off and is gone on with by another offer: one stream for the client, two attempts on the books."""

import json
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Attempt, Budget, LedgerEntry, Usage
from routing.models import Model, Policy
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff
from tests.stage.speech import events

SAID = "text=one%20two%20three%20four%20five&prompt=20"


@pytest.fixture
def recovering(alice: Tenant) -> Tenant:
    """Alice, whose project wants broken texts to be continued."""
    Policy.objects.create(level="project", project=alice.project, continues_streams=True)
    return alice


def make_pair(simulated: SimulatedProvider, first: str, second: str, **fields: Any) -> Model:
    """A model of two providers at different prices, both of which go on with what they are given."""
    fields.setdefault("capabilities", ["prefill"])
    provider = make_provider(simulated.base_url, idle_timeout=0.5)
    model = make_model(provider, first, make_tariff(input=("1", "2"), output=("2", "4")), **fields)
    dear = make_tariff(input=("10", "20"), output=("20", "40"))
    add_offer(model, make_provider(simulated.base_url), second, dear, priority=1)
    return model


def text_of(chunks: list[Any]) -> str:
    """What a stream says."""
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


@pytest.mark.parametrize("fault", ["reset_mid@4", "fin_mid@4", "hang_mid@4", "half_json@4"])
def test_a_broken_text_is_gone_on_with_in_one_stream(
    gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider, fault: str
) -> None:
    model = make_pair(simulated, f"sim-small?{SAID}&fault={fault}", "sim-small?text=four%20five&prompt=23")
    synchronize(gateway)
    answer = gateway.chat(recovering.secret, model.slug, stream=True, stream_options={"include_usage": True})
    *chunks, done = events(answer.text)
    assert done == "[DONE]"
    assert text_of(chunks) == "one two threefour five"
    assert [chunk["choices"][0]["delta"].get("role") for chunk in chunks[:-1]].count("assistant") == 1
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]][-1] == "stop"

    usage = Usage.objects.get(id=chunks[0]["id"])
    attempts = list(Attempt.objects.filter(generation=usage.id).order_by("number"))
    assert (usage.status, usage.basis, usage.attempts) == ("completed", "estimated", 2)
    assert [attempt.status for attempt in attempts] == ["failed", "completed"]
    relayed = -(-len("one two three") // 4)
    prompt = attempts[0].prompt_tokens
    assert prompt is not None
    assert (attempts[0].completion_tokens, attempts[1].prompt_tokens, attempts[1].completion_tokens) == (relayed, 23, 2)
    assert (usage.prompt_tokens, usage.completion_tokens) == (prompt + 23, relayed + 2)
    assert chunks[-1]["usage"]["total_tokens"] == usage.prompt_tokens + usage.completion_tokens
    first, second = prompt * 2 + relayed * 4, 23 * 20 + 2 * 40
    assert usage.charge == Decimal(first + second) / 1_000_000
    owed = LedgerEntry.objects.filter(generation=usage.id, debit="cost").values_list("credit", "amount")
    assert dict(owed) == {
        f"provider:{attempts[0].provider}": Decimal(first) / 2_000_000,
        f"provider:{attempts[1].provider}": Decimal(second) / 2_000_000,
    }
    assert books(recovering.organization).problems() == []


def test_the_other_offer_is_given_what_was_said_and_what_is_left_of_the_cap(
    gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_pair(simulated, f"sim-small?{SAID}&fault=reset_mid@4", "sim-small?echo")
    synchronize(gateway)
    answer = gateway.chat(recovering.secret, model.slug, stream=True, max_tokens=100, temperature=0.25)
    *chunks, done = events(answer.text)
    assert done == "[DONE]"
    sent = json.loads(text_of(chunks).removeprefix("one two three"))
    assert sent["messages"] == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "one two three"}]
    assert (sent["max_tokens"], sent["temperature"]) == (100 - 4, 0.25)


def test_blanks_at_the_break_are_said_once(gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider) -> None:
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"one \\n"}}]}\n\n'
    option = simulated.script("blanks", chunk, end="reset")
    model = make_pair(simulated, f"sim-small?{option}", "sim-small?text=%20%0Atwo")
    synchronize(gateway)
    *chunks, done = events(gateway.chat(recovering.secret, model.slug, stream=True).text)
    assert done == "[DONE]"
    assert text_of(chunks) == "one \ntwo"


@pytest.mark.parametrize("how", ["", "&segment=1", "&segment=7", "&as=json"])
def test_an_offer_that_begins_anew_is_heard_from_where_the_other_one_stopped(
    gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider, how: str
) -> None:
    model = make_pair(simulated, f"sim-small?{SAID}&fault=reset_mid@4", f"sim-small?{SAID}{how}")
    synchronize(gateway)
    *chunks, done = events(gateway.chat(recovering.secret, model.slug, stream=True).text)
    assert done == "[DONE]"
    assert text_of(chunks) == "one two three four five"
    assert books(recovering.organization).problems() == []


def chunk(*said: Any, finish: str | None = None) -> bytes:
    """A chunk whose content is what is given: typed parts, or a text."""
    delta: dict[str, Any] = {} if finish else {"content": said[0] if type(said[0]) is str else list(said)}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def part(text: str, kind: str = "text") -> dict[str, str]:
    """A typed part of a text."""
    return {"type": kind, "text": text}


DONE = b"data: [DONE]\n\n"
BROKEN = chunk(part("one two ")) + chunk(part("three"))
WHOLE = {"role": "assistant", "content": [part("one two "), part("three four", "output_text"), part(" five")]}
ANEW: dict[str, tuple[bytes, str]] = {
    "parts": (chunk(part("one two three four five")), "one two three four five"),
    "several a chunk": (chunk(part("one "), part("two three"), part(" four five")), "one two three four five"),
    "a part that is no list": (
        b"".join(map(chunk, ("one", " two"))) + chunk(part(" three four")),
        "one two three four",
    ),
    "a letter each": (b"".join(chunk(part(letter)) for letter in "one two three four"), "one two three four"),
    "goes on": (chunk(part(" four")) + chunk(part(" five")), "one two three four five"),
}


@pytest.mark.parametrize("how", list(ANEW))
def test_typed_parts_are_gone_on_with_as_a_text_is(
    gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider, how: str
) -> None:
    first = simulated.script("broken-parts", BROKEN, end="reset")
    sent, text = ANEW[how]
    second = simulated.script(f"parts-{how.replace(' ', '-')}", sent + chunk(finish="stop") + DONE)
    model = make_pair(simulated, f"sim-small?{first}", f"sim-small?{second}")
    synchronize(gateway)
    *chunks, done = events(gateway.chat(recovering.secret, model.slug, stream=True).text)
    assert (text_of(chunks), done) == (text, "[DONE]")
    assert Usage.objects.get(model=model.slug).attempts == 2


def test_typed_parts_of_a_whole_answer_are_not_said_twice(
    gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider
) -> None:
    first = simulated.script("broken-parts", BROKEN, end="reset")
    body = json.dumps({"choices": [{"index": 0, "message": WHOLE, "finish_reason": "stop"}]}).encode()
    second = simulated.script("whole-parts", body)
    model = make_pair(simulated, f"sim-small?{first}", f"sim-small?{second}")
    synchronize(gateway)
    *chunks, done = events(gateway.chat(recovering.secret, model.slug, stream=True).text)
    assert (text_of(chunks), done) == ("one two three four five", "[DONE]")


def test_typed_parts_that_begin_something_else_end_it(
    gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider
) -> None:
    first = simulated.script("broken-parts", BROKEN, end="reset")
    second = simulated.script(
        "other-parts", chunk(part("one two thousand"), part(" things")) + chunk(finish="stop") + DONE
    )
    model = make_pair(simulated, f"sim-small?{first}", f"sim-small?{second}")
    synchronize(gateway)
    *chunks, last = events(gateway.chat(recovering.secret, model.slug, stream=True).text)
    assert (text_of(chunks), last["error"]["code"]) == ("one two three", "upstream_truncated")


def test_an_offer_that_begins_something_else_ends_it(
    gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_pair(
        simulated, f"sim-small?{SAID}&fault=reset_mid@4", "sim-small?text=one%20two%20thousand%20things&prompt=20"
    )
    synchronize(gateway)
    *chunks, last = events(gateway.chat(recovering.secret, model.slug, stream=True).text)
    assert text_of(chunks) == "one two three"
    assert last["error"]["code"] == "upstream_truncated"
    usage = Usage.objects.get(model=model.slug)
    assert (usage.status, usage.attempts) == ("failed", 2)
    assert books(recovering.organization).problems() == []


def test_what_was_said_is_owed_to_whoever_said_it_when_the_other_one_fails(
    gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_pair(simulated, f"sim-small?{SAID}&fault=reset_mid@4", "sim-small?status=500")
    synchronize(gateway)
    *chunks, last = events(gateway.chat(recovering.secret, model.slug, stream=True).text)
    assert (text_of(chunks), last["error"]["code"]) == ("one two three", "upstream_error")
    usage = Usage.objects.get(model=model.slug)
    first, second = Attempt.objects.filter(generation=usage.id).order_by("number")
    assert (usage.provider, first.status, second.status) == (first.provider, "failed", "failed")
    owed = LedgerEntry.objects.filter(generation=usage.id, debit="cost").values_list("credit", flat=True)
    assert list(owed) == [f"provider:{first.provider}"]
    assert books(recovering.organization).problems() == []


NOT_TEXT: list[dict[str, Any]] = [
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
    {"response_format": {"type": "json_object"}},
    {"n": 2},
    {"logprobs": True},
]


@pytest.mark.parametrize("body", NOT_TEXT)
def test_what_is_not_plain_text_ends_with_an_error(
    gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider, body: dict[str, Any]
) -> None:
    model = make_pair(simulated, f"sim-small?{SAID}&fault=reset_mid@4", "sim-small?text=never")
    synchronize(gateway)
    ended = events(gateway.chat(recovering.secret, model.slug, stream=True, **body).text)
    assert ended[-1]["error"]["code"] == "upstream_truncated"
    assert Usage.objects.get(model=model.slug).attempts == 1


def test_thoughts_are_not_gone_on_with(gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider) -> None:
    model = make_pair(simulated, f"sim-small?{SAID}&reasoning=3&fault=reset_mid@6", "sim-small?text=never")
    synchronize(gateway)
    ended = events(gateway.chat(recovering.secret, model.slug, stream=True).text)
    assert "error" in ended[-1]
    assert Usage.objects.get(model=model.slug).attempts == 1


def test_nobody_goes_on_who_was_not_asked_to_or_cannot(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    Policy.objects.create(level="project", project=charlie.project, continues_streams=True)
    able = make_pair(simulated, f"sim-small?{SAID}&fault=reset_mid@4", "sim-small?text=never")
    unable = make_pair(simulated, f"sim-small?{SAID}&fault=reset_mid@4", "sim-small?text=never", capabilities=[])
    synchronize(gateway)
    for tenant, model in ((alice, able), (charlie, unable)):
        ended = events(gateway.chat(tenant.secret, model.slug, stream=True).text)
        assert "error" in ended[-1]
        assert Usage.objects.get(model=model.slug).attempts == 1


def test_it_is_gone_on_with_once(gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider) -> None:
    broken = f"sim-small?{SAID}&fault=reset_mid@3"
    model = make_pair(simulated, broken, broken)
    add_offer(model, make_provider(simulated.base_url), "sim-small?text=never", priority=2)
    synchronize(gateway)
    *chunks, last = events(gateway.chat(recovering.secret, model.slug, stream=True).text)
    assert last["error"]["code"] == "upstream_truncated"
    assert text_of(chunks) == "one two"
    usage = Usage.objects.get(model=model.slug)
    assert (usage.status, usage.basis, usage.attempts) == ("failed", "estimated", 2)
    assert books(recovering.organization).problems() == []


def test_a_hard_budget_holds_what_both_may_cost(
    gateway: Gateway, recovering: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_pair(simulated, f"sim-small?{SAID}&fault=reset_mid@4", "sim-small?tokens=500&prompt=32000&ignore_max")
    Budget.objects.create(organization=recovering.organization, period="total", amount=Decimal("0.05"), hard=True)
    synchronize(gateway)
    answer = gateway.chat(recovering.secret, model.slug, stream=True, max_tokens=50)
    usage = Usage.objects.get(id=answer.headers["x-generation-id"])
    # Both lie; the tenant pays what the budget has, and no more.
    assert usage.basis == "capped"
    assert usage.charge == Decimal("0.05")
    assert usage.overrun > 0
    assert books(recovering.organization).problems() == []
