"""While a provider is silent: comments keep a streaming client's connection alive; every deadline has its answer."""

import asyncio
import json
import time
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Attempt, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.raw import chat
from tests.stage.shelf import add_offer, make_model, make_provider

COMMENT = b": keep-alive\n\n"
FREE = Decimal(0)


class Heard:
    """What a client heard, in the order it came: seconds since the request, and bytes."""

    def __init__(self, parts: list[tuple[float, bytes]]) -> None:
        self.parts = parts
        self.raw = b"".join(data for _, data in parts)
        head, _, self.body = self.raw.partition(b"\r\n\r\n")
        self.status = int(head.split()[1])
        if b"transfer-encoding: chunked" in head:
            self.body = b"".join(self.body.split(b"\r\n")[1::2])

    def at(self, data: bytes) -> list[float]:
        """The seconds at which a part with `data` came."""
        return [seconds for seconds, part in self.parts if data in part]

    @property
    def events(self) -> list[Any]:
        """The payloads of the stream."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def hear(gateway: Gateway, secret: str, model: str, stream: bool) -> Heard:
    """One request on a connection of its own, heard to the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    started = time.monotonic()
    writer.write(chat(secret, model, "Connection: close", stream=stream))
    parts = []
    while data := await reader.read(1 << 16):
        parts.append((time.monotonic() - started, data))
    writer.close()
    await writer.wait_closed()
    return Heard(parts)


def hear_all(gateway: Gateway, secret: str, *requests: tuple[str, bool]) -> list[Heard]:
    """Several requests (model, streamed) at once."""

    async def together() -> list[Heard]:
        return await asyncio.gather(*(hear(gateway, secret, model, stream) for model, stream in requests))

    return asyncio.run(together())


@pytest.mark.long
@pytest.mark.row("B271")
def test_a_waiting_client_hears_a_comment_every_ten_seconds(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = make_provider(simulated.base_url)
    patient = make_provider(simulated.base_url, first_byte_timeout=12)
    late = make_model(provider, "sim-small?tokens=3&first=21s").slug
    refused = make_model(provider, "sim-small?status=429&retry_after=7&first=4s").slug
    refused_late = make_model(provider, "sim-small?status=429&first=11s").slug
    silent = make_model(patient, "sim-small?fault=hang").slug
    helped = make_model(patient, "sim-small?fault=hang")
    add_offer(helped, provider, "sim-small?tokens=2", priority=1)
    synchronize(gateway)
    streamed, whole, early, too_late, never, second = hear_all(
        gateway,
        alice.secret,
        *((late, True), (late, False), (refused, True), (refused_late, True), (silent, True), (helped.slug, True)),
    )
    first, other = streamed.at(COMMENT)
    assert 9.5 < first < 13
    assert 19.5 < other < 23
    assert streamed.body.startswith(COMMENT * 2 + b"data: {")
    assert streamed.events[-1] == "[DONE]"
    assert b"x-accel-buffering: no" in streamed.raw
    assert b"cache-control: no-cache" in streamed.raw
    assert COMMENT not in whole.raw
    assert json.loads(whole.body)["usage"]["completion_tokens"] == 3

    # Before the first comment a failure has its real status; after it there is only the stream to tell it in.
    assert (early.status, json.loads(early.body)["error"]["code"]) == (429, "upstream_rate_limited")
    assert b"retry-after: 7" in early.raw
    assert too_late.status == 200
    assert too_late.body.startswith(COMMENT)
    assert [event["error"]["code"] for event in too_late.events] == ["upstream_rate_limited"]

    # Our own comments move none of the provider's deadlines.
    assert never.status == 200
    assert [event["error"]["code"] for event in never.events] == ["upstream_timeout"]
    assert 11.5 < never.parts[-1][0] < 16
    assert second.body.startswith(COMMENT)
    assert second.events[-1] == "[DONE]"
    assert [
        attempt.fault for attempt in Attempt.objects.filter(generation=second.events[0]["id"]).order_by("number")
    ] == [
        "timeout",
        "",
    ]
    usages = {(usage.model, usage.stream): usage for usage in Usage.objects.filter(organization=alice.organization.id)}
    assert (usages[late, True].ttft_ms or 0) >= 20_500
    for model in (refused, refused_late, silent):
        assert (usages[model, True].status, usages[model, True].charge) == ("failed", FREE)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", ["hang", "hang_headers"])
def test_a_provider_that_says_nothing_is_left_at_the_first_byte_deadline(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, fault: str, stream: bool
) -> None:
    model = make_model(make_provider(simulated.base_url, first_byte_timeout=1), f"sim-small?fault={fault}").slug
    synchronize(gateway)
    (heard,) = hear_all(gateway, alice.secret, (model, stream))
    assert (heard.status, json.loads(heard.body)["error"]["code"]) == (504, "upstream_timeout")
    assert heard.parts[-1][0] < 5
    line = next(line for line in simulated.bill() if line["fault"] == fault and line["model"].endswith(fault))
    assert line["ended"] == "client_closed"
    usage = Usage.objects.get(model=model)
    assert (usage.status, usage.basis, usage.charge, usage.provider_cost) == ("failed", "unknown", FREE, None)


def test_a_provider_that_falls_silent_is_left_at_the_idle_deadline(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = make_provider(simulated.base_url, idle_timeout=1)
    model = make_model(provider, "sim-small?fault=hang_mid@3&prompt=9").slug
    synchronize(gateway)
    streamed, whole = hear_all(gateway, alice.secret, (model, True), (model, False))
    assert streamed.status == 200
    assert streamed.events[-1]["error"]["code"] == "upstream_timeout"
    assert all(choice["finish_reason"] is None for event in streamed.events[:-1] for choice in event["choices"])
    assert (whole.status, json.loads(whole.body)["error"]["code"]) == (504, "upstream_timeout")
    usages = {usage.stream: usage for usage in Usage.objects.filter(model=model)}
    assert (usages[True].status, usages[True].basis) == ("failed", "estimated")
    assert usages[True].completion_tokens > 0
    assert (usages[False].basis, usages[False].charge) == ("unknown", FREE)  # it was asked, and said half


def test_a_drip_is_cut_at_the_total_deadline(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    provider = make_provider(simulated.base_url, total_timeout=2)
    drip = make_model(provider, "sim-small?fault=drip&every=300ms").slug
    endless = make_model(provider, "sim-small?tokens=500&pace=300ms&ignore_max").slug
    synchronize(gateway)
    dripped, whole, cut = hear_all(gateway, alice.secret, (drip, True), (drip, False), (endless, True))
    for heard in (dripped, whole):
        assert (heard.status, json.loads(heard.body)["error"]["code"]) == (504, "upstream_timeout")
    assert cut.events[-1]["error"]["code"] == "upstream_timeout"
    assert "[DONE]" not in cut.events
    assert all(heard.parts[-1][0] < 6 for heard in (dripped, whole, cut))


def test_the_first_byte_deadline_does_not_cut_a_long_healthy_stream(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = make_provider(simulated.base_url, first_byte_timeout=1, idle_timeout=2)
    model = make_model(provider, "sim-small?tokens=12&pace=200ms").slug
    synchronize(gateway)
    (heard,) = hear_all(gateway, alice.secret, (model, True))
    assert heard.events[-1] == "[DONE]"


def test_a_providers_comments_are_life_and_no_answer(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    comment, rest = (
        b": PROCESSING\n\n",
        b'data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\n',
    )
    size = len(comment)
    pauses = ",".join(f"{size * place}:1200ms" for place in (1, 2, 3))
    alive = simulated.script("comments-then-answer", comment * 3 + rest + b"data: [DONE]\n\n", pauses=pauses)
    broken = simulated.script("comments-then-reset", comment * 3, pauses=f"{size}:200ms", end="reset")
    provider = make_provider(simulated.base_url, first_byte_timeout=10, idle_timeout=3)
    slow = make_model(provider, f"sim-small?{alive}").slug
    helped = make_model(provider, f"sim-small?{broken}")
    add_offer(helped, provider, "sim-small?tokens=2", priority=1)
    synchronize(gateway)
    answered, second = hear_all(gateway, alice.secret, (slow, True), (helped.slug, True))
    assert [event["choices"][0]["delta"] for event in answered.events[:-1]] == [
        {"role": "assistant", "content": "ok"},
        {},
    ]
    assert b"PROCESSING" not in answered.raw
    usage = Usage.objects.get(model=slow)
    assert (usage.ttft_ms or 0) >= 3500
    assert second.events[-1] == "[DONE]"
    attempts = Attempt.objects.filter(generation=second.events[0]["id"]).order_by("number")
    assert [attempt.fault for attempt in attempts] == ["truncated", ""]
