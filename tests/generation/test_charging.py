"""Nobody gets round the bill: classes of service, searches, large files, caps, and what is estimated."""

import json
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Budget, Hold, LedgerEntry, Quarantined, Usage
from billing.quarantine import amounts, tokens_of
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, database, owner_url
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize, until
from tests.stage.raw import chat, dial
from tests.stage.shelf import ByClass, add_offer, make_model, make_provider, make_tariff

COUNTED = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


def told(tier: str, stream: bool) -> bytes:
    """An answer of 1,000 and 100 tokens that says which class of service it was."""
    if not stream:
        choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
        return json.dumps({"id": "u1", "service_tier": tier, "choices": [choice], "usage": COUNTED}).encode()
    first = {"id": "u1", "choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}
    last = {"id": "u1", "choices": [], "usage": COUNTED, "service_tier": tier}
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in (first, last)) + b"data: [DONE]\n\n"


def hard(tenant: Tenant, amount: str) -> None:
    """A hard budget of the month for all of the tenant's."""
    Budget.objects.create(organization=tenant.organization, period="month", amount=Decimal(amount), hard=True)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    ("asked", "served", "cost"),
    [("priority", "default", Decimal("0.0045")), ("priority", "priority", None), ("flex", "flex", None)],
)
def test_a_class_of_service_is_charged_as_served_and_never_passed_without_a_rate(
    gateway: Gateway,
    simulated: SimulatedProvider,
    alice: Tenant,
    asked: str,
    served: str,
    cost: Decimal | None,
    stream: bool,
) -> None:
    hard(alice, "1")
    tariff = make_tariff(input="3", cached_input="0.30", output="15")
    option = simulated.script(f"tier-{alice.organization.slug}", told(served, stream))
    provider = make_provider(simulated.base_url)
    model = make_model(provider, f"sim-{provider.slug}?{option}", tariff, supported_parameters=["service_tier"])
    echo = make_model(provider, "sim-small?echo", tariff, supported_parameters=["service_tier"])
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, service_tier=asked, stream=stream)
    assert answer.status_code == 200
    assert answer.headers["x-gateway-ignored-params"] == "service_tier"
    if not stream:
        assert answer.json()["service_tier"] == served
    usage = Usage.objects.get(model=model.slug)
    assert (usage.charge, usage.provider_cost, usage.service_tier) == (Decimal("0.0045"), cost, served)
    assert (f"{usage.id.hex}: {model.slug} has no rate" in gateway.log.read_text()) == (cost is None)
    (choice,) = gateway.chat(alice.secret, echo.slug, service_tier=asked).json()["choices"]
    assert "service_tier" not in json.loads(choice["message"]["content"])
    assert books(alice.organization).problems() == []


PRICED: ByClass = {"priority": {"input": "6", "output": ("30", "40")}, "flex": {"input": "1.5", "output": "7.5"}}


@pytest.mark.row("B101")
@pytest.mark.parametrize(
    ("asked", "served", "charge", "cost", "stored"),
    [
        ("priority", "priority", "0.01", "0.009", "priority"),
        ("priority", "default", "0.0045", "0.0045", "default"),  # what was served counts
        ("flex", "", "0.00225", "0.00225", "flex"),  # nobody said otherwise
        (None, "Flex", "0.00225", "0.00225", "Flex"),
        ("flex", "scale", "0.0045", None, "scale"),  # which has no rate
    ],
)
def test_a_class_of_service_with_a_rate_is_asked_for_and_charged_as_served(
    gateway: Gateway,
    simulated: SimulatedProvider,
    alice: Tenant,
    *,
    asked: str | None,
    served: str,
    charge: str,
    cost: str | None,
    stored: str,
) -> None:
    alice.project.strict_params = True
    alice.project.save()
    tariff = make_tariff(input="3", output="15", classes=PRICED)
    stream = asked is None
    option = simulated.script(f"class-{alice.organization.slug}", told(served, stream))
    provider = make_provider(simulated.base_url)
    model = make_model(provider, f"sim-{provider.slug}?{option}", tariff, supported_parameters=["service_tier"])
    synchronize(gateway)
    fields = {} if asked is None else {"service_tier": asked}
    answer = gateway.chat(alice.secret, model.slug, stream=stream, **fields)
    assert (answer.status_code, answer.headers.get("x-gateway-ignored-params")) == (200, None)
    usage = Usage.objects.get(model=model.slug)
    known = None if cost is None else Decimal(cost)
    assert (usage.charge, usage.provider_cost, usage.service_tier) == (Decimal(charge), known, stored)
    assert (f"{usage.id.hex}: {model.slug} has no rate" in gateway.log.read_text()) == (cost is None)
    assert books(alice.organization).problems() == []


def test_a_class_of_service_is_held_for_at_the_dearest_that_may_be_served(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    hard(alice, "1")
    provider, takes = make_provider(simulated.base_url), {"supported_parameters": ["service_tier"]}
    classes: ByClass = {"flex": {"output": "7.5"}, "priority": {"output": ("30", "40")}, "scale": {"output": "100"}}
    tariff = make_tariff(input="0", output="15", classes=classes)
    name = f"class-{provider.slug}"
    slug = make_model(provider, f"{name}?hold&tokens=1", tariff, **takes).slug
    echo = make_model(provider, "sim-small?echo", tariff, **takes).slug
    synchronize(gateway)
    held = {}
    for asked in ("default", "flex", "priority", "scale", "batch", ""):
        with dial(gateway) as line:
            line.send(chat(alice.secret, slug, max_tokens=100, **({"service_tier": asked} if asked else {})))
            simulated.until(waiting=1)
            held[asked] = Hold.objects.get(model=slug).money
            simulated.release()
            ignored = line.answer().headers.get("x-gateway-ignored-params")
            assert ignored == ("service_tier" if asked == "batch" else None)
        until(lambda: not Hold.objects.filter(model=slug).exists())
    # 100 tokens at $15; flex may not be had; who asks for none, or for one without a rate, leaves it to the provider.
    dollars = {"default": "0.0015", "flex": "0.0015", "priority": "0.004", "scale": "0.01", "batch": "0.01", "": "0.01"}
    assert held == {asked: Decimal(amount) for asked, amount in dollars.items()}
    (choice,) = gateway.chat(alice.secret, echo, service_tier="flex").json()["choices"]
    assert json.loads(choice["message"]["content"])["service_tier"] == "flex"


def test_a_class_of_service_that_is_withheld_is_held_for_at_the_ordinary_rates(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    hard(alice, "1")
    provider = make_provider(simulated.base_url)
    slug = make_model(
        provider, f"tiers-{provider.slug}?hold&tokens=1", make_tariff(input="3", output="15"),
        supported_parameters=["service_tier"],
    ).slug  # fmt: skip
    synchronize(gateway)
    held = []
    for asked in ({}, {"service_tier": "flex"}, {"service_tier": "priority"}):
        with dial(gateway) as line:
            line.send(chat(alice.secret, slug, max_tokens=100, **asked))
            simulated.until(waiting=1)
            held.append(Hold.objects.get(model=slug).money)
            simulated.release()
            answer = line.answer()
            assert (answer.status, answer.headers.get("x-gateway-ignored-params")) == (200, next(iter(asked), None))
        until(lambda: not Hold.objects.filter(model=slug).exists())
    assert held[0] is not None and held[0] > Decimal("0.0015")
    assert all(money is not None and abs(money - held[0]) < Decimal("0.0002") for money in held)  # the field's bytes


def test_a_strict_project_is_refused_the_class_and_nothing_happens(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    alice.project.strict_params = True
    alice.project.save()
    name = f"tier-{alice.organization.slug}"
    slug = make_model(make_provider(simulated.base_url), name, supported_parameters=["service_tier"]).slug
    synchronize(gateway)
    answer = gateway.chat(alice.secret, slug, service_tier="flex")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "service_tier")
    assert not Usage.objects.filter(model=slug).exists()
    assert not any(line["model"] == name for line in simulated.lines())


def test_a_search_without_a_rate_is_refused_on_a_hard_budget_and_one_with_a_rate_is_held_for(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    hard(alice, "5")
    provider, searches = make_provider(simulated.base_url), {"supported_parameters": ["web_search_options"]}
    free = make_model(provider, f"free-{provider.slug}", make_tariff(input="1", output="1"), **searches).slug
    rated = make_tariff(input="0", output="0", web_search="0.01")
    dear = make_model(provider, f"dear-{provider.slug}?hold&tokens=1", rated, **searches).slug
    _, thrifty = make_key(alice.project, name="thrifty", max_request_price=Decimal("0.09"))
    synchronize(gateway)
    answer = gateway.chat(alice.secret, free, web_search_options={}, max_tokens=5)
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "unknown_price")
    assert not Usage.objects.filter(model=free).exists()
    assert not any(line["model"].startswith(f"free-{provider.slug}") for line in simulated.lines())
    assert gateway.chat(alice.secret, free, max_tokens=5).status_code == 200  # which cannot cause one
    assert gateway.chat(thrifty, dear, web_search_options={}).status_code == 403
    with dial(gateway) as line:
        line.send(chat(alice.secret, dear, web_search_options={}))
        simulated.until(waiting=1)
        assert Hold.objects.get(model=dear).money == Decimal("0.10")  # ten of them
        simulated.release()
        line.answer()


def test_pictures_video_and_seconds_are_charged_as_they_are_reported(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    sent = told("default", False)
    sent = sent.replace(b'"completion_tokens"', b'"prompt_tokens_details": {"video_tokens": 600}, "completion_tokens"')
    sent = sent.replace(b'"total_tokens"', b'"completion_tokens_details": {"image_tokens": 90}, "total_tokens"')
    sent = sent.replace(b'"prompt_tokens":', b'"prompt_audio_seconds": 30, "prompt_tokens":')
    option = simulated.script(f"media-{alice.organization.slug}", sent)
    provider = make_provider(simulated.base_url)
    tariff = make_tariff(input="3", output="15", video_input="5", image_output="40", second=("0.0001", "0.0002"))
    slug = make_model(provider, f"sim-{provider.slug}?{option}", tariff).slug
    synchronize(gateway)
    answer = gateway.chat(alice.secret, slug)
    assert answer.json()["usage"]["completion_tokens_details"]["image_tokens"] == 90
    assert answer.json()["usage"]["prompt_tokens_details"]["video_tokens"] == 600
    usage = Usage.objects.get(model=slug)
    # 400 x 3 + 600 x 5 + 10 x 15 + 90 x 40, and 30 seconds at 0.0002
    assert (usage.charge, usage.provider_cost) == (Decimal("0.01395"), Decimal("0.01095"))
    assert (usage.video_input_tokens, usage.image_output_tokens, usage.seconds, usage.images) == (600, 90, 30, 0)
    assert books(alice.organization).problems() == []


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_what_was_done_without_a_rate_is_counted_and_logged(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, stream: bool
) -> None:
    """Two searches of the web, asked for by nobody."""
    searched = told("default", stream).replace(b'"completion_tokens"', b'"num_search_queries": 2, "completion_tokens"')
    option = simulated.script(f"searched-{alice.organization.slug}", searched)
    provider = make_provider(simulated.base_url)
    model = make_model(provider, f"sim-{provider.slug}?{option}", make_tariff(input="3", output="15")).slug
    synchronize(gateway)
    sample = f'meterline_usage_unpriced_total{{model="{model}"}} '
    assert sample not in gateway.client.get("/metrics").text
    assert gateway.chat(alice.secret, model, stream=stream).status_code == 200
    usage = Usage.objects.get(model=model)
    assert (usage.charge, usage.web_searches) == (Decimal("0.0045"), 2)  # what has a rate
    assert f"{sample}1.0\n" in gateway.client.get("/metrics").text
    assert gateway.log.read_text().count(f"{usage.id.hex}: {model} has no rate for web_search") == 1
    assert books(alice.organization).problems() == []


def test_what_nobody_counted_is_counted_by_its_provider(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    provider = make_provider(simulated.base_url)
    model = make_model(provider, f"broken-{provider.slug}?fault=reset_headers").slug
    synchronize(gateway)
    assert gateway.chat(alice.secret, model, stream=True).status_code == 502
    assert Usage.objects.get(model=model).basis == "unknown"
    sample = f'meterline_attempts_uncounted_total{{provider="{provider.slug}"}} 1.0\n'
    assert sample in gateway.client.get("/metrics").text


@pytest.mark.parametrize(
    ("data", "kind", "worst"),
    [(b"word " * 100_000, "text/plain", "0.50"), (b"%PDF" * 100_000, "application/pdf", "0.131")],
)
def test_a_highest_price_counts_files(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, data: bytes, kind: str, worst: str
) -> None:
    """At $1 a million: a text byte by byte, and what else is a file by the model's bound of 131,072."""
    provider = make_provider(simulated.base_url)
    name = f"file-{provider.slug}"
    slug = make_model(provider, f"{name}?tokens=1", make_tariff(input="1", output="0")).slug
    _, thrifty = make_key(alice.project, name="thrifty", max_request_price=Decimal(worst))
    _, lavish = make_key(alice.project, name="lavish", max_request_price=Decimal(worst) + Decimal("0.001"))
    synchronize(gateway)
    file = {"file_data": f"data:{kind};base64,{b64encode(data).decode()}", "filename": "a"}
    messages = [{"role": "user", "content": [{"type": "file", "file": file}]}]
    assert gateway.chat(thrifty, slug).status_code == 200  # without it
    Usage.objects.filter(model=slug).delete()
    before = len(simulated.lines())
    refused = gateway.chat(thrifty, slug, messages=messages)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "request_too_expensive")
    assert not Usage.objects.filter(model=slug).exists()
    assert not any(line["model"].startswith(name) for line in simulated.lines()[before:])
    assert gateway.chat(lavish, slug, messages=messages).status_code == 200


def test_a_file_of_text_is_held_for_byte_by_byte(gateway: Gateway, simulated: SimulatedProvider, alice: Tenant) -> None:
    hard(alice, "100")
    tariff = make_tariff(input="1", output="0")
    provider = make_provider(simulated.base_url)
    slug = make_model(provider, f"file-{provider.slug}?hold&tokens=1", tariff).slug
    synchronize(gateway)
    for data, kind, least in ((b"word " * 100_000, "text/plain", 500_000), (b"%PDF" * 100_000, "application/pdf", 0)):
        file = {"file_data": f"data:{kind};base64,{b64encode(data).decode()}", "filename": "a"}
        messages = [{"role": "user", "content": [{"type": "file", "file": file}]}]
        with dial(gateway) as line:
            line.send(chat(alice.secret, slug, messages=messages))
            simulated.until(waiting=1)
            money = Hold.objects.get(model=slug).money
            assert money is not None
            tokens = int(money * 1_000_000)
            assert max(least, 131_072) <= tokens <= max(least, 131_072) + 400
            simulated.release()
            line.answer()
        until(lambda: not Hold.objects.filter(model=slug).exists())


def test_an_estimate_counts_text_and_learns_what_a_token_of_the_model_is(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    """100 letters are 20 tokens, as the first answer is counted; later ones are not counted at all."""
    provider, letters = make_provider(simulated.base_url), "x" * 100

    def said(name: str, words: str, usage: str) -> str:
        chunk = {"choices": [{"index": 0, "delta": {"content": words}, "finish_reason": "stop"}]}
        data = f"data: {json.dumps(chunk)}\n\n{usage}data: [DONE]\n\n".encode()
        return simulated.script(f"{name}-{alice.organization.slug}", data)

    usage = 'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":20}}\n\n'
    model = make_model(provider, f"sim-{provider.slug}?{said('counted', letters, usage)}")
    synchronize(gateway)

    def ask(**body: Any) -> Usage:
        body = {"model": model.slug, "messages": [{"role": "user", "content": "hi"}], **body}
        gateway.client.post(
            "/v1/chat/completions",
            content=json.dumps(body, indent=400),
            headers={"Authorization": f"Bearer {alice.secret}", "Content-Type": "application/json"},
        )
        row = Usage.objects.filter(model=model.slug).order_by("-pk").first()
        assert row is not None
        return row

    assert ask(stream=True).basis == "reported"
    offer = model.offers.get()
    offer.upstream_model = f"sim-{provider.slug}?{said('uncounted', letters, '')}"
    offer.save()
    synchronize(gateway)
    for stream in (True, False):
        found = ask(stream=stream)  # whatever blanks stand between
        assert (found.basis, found.prompt_tokens, found.completion_tokens) == ("estimated", 1, 20)
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    parts = [image, {"type": "text", "text": "x" * 50}]
    found = ask(stream=True, messages=[{"role": "user", "content": parts}])
    assert (found.prompt_tokens, found.completion_tokens) == (8192 + 10, 20)
    assert books(alice.organization).problems() == []


def test_the_ledger_is_dated_as_the_generation_is(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    """A call that began in the last seconds of a month, and is settled in the next."""
    hard(alice, "5")
    provider = make_provider(simulated.base_url)
    slug = make_model(provider, f"late-{provider.slug}?hold&tokens=2").slug
    synchronize(gateway)
    with dial(gateway) as line:
        line.send(chat(alice.secret, slug))
        simulated.until(waiting=1)
        simulated.release()
        line.answer()
    usage = Usage.objects.get(model=slug)
    assert usage.settled_at > usage.created_at
    entries = LedgerEntry.objects.filter(generation=usage.id)
    assert {entry.created_at for entry in entries} == {usage.created_at}
    # And when its end becomes known anew: reversed and closed in the month it began in.
    eve = datetime(2026, 10, 31, 23, 59, 55, tzinfo=UTC)
    with database(owner_url()) as owner:
        owner.execute("update billing_usage set created_at = %s, charge = 1 where id = %s", [eve, usage.id])
        owner.execute("delete from billing_ledgerentry where generation = %s", [usage.id])
        owner.execute("select billing_close(%s::uuid[])", [[usage.id]])
    assert {entry.created_at for entry in LedgerEntry.objects.filter(generation=usage.id)} == {eve}


def test_what_another_offer_claimed_is_nothing_to_charge_by(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    lie = {"prompt_tokens": 900_000, "completion_tokens": 70_000, "prompt_tokens_details": {"cached_tokens": 10**6}}
    data = f"data: {json.dumps({'choices': [], 'usage': lie})}\n\n".encode()
    first = simulated.script(f"claimed-{alice.organization.slug}", data, end="cut")
    tariff = make_tariff(input="2", output="4")
    model = make_model(make_provider(simulated.base_url), f"sim-small?{first}", tariff)
    add_offer(model, make_provider(simulated.base_url), "sim-small?tokens=1&prompt=5", tariff, priority=1)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=True)
    assert answer.text.endswith("data: [DONE]\n\n")
    row = Quarantined.objects.get(organization=alice.organization.pk)
    assert (row.status, row.basis, row.prompt_tokens, row.attempts) == ("completed", "reported", 5, 2)
    assert row.claimed["said"]["prompt_tokens"] == 900_000
    assert tokens_of(row) is None and amounts(row) is None
