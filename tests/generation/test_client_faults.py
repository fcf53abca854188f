"""Clients that leave: their provider is read on for its count or, as the key says, left at once; the books have one
row, and in bounded time nothing stays open.
"""

import asyncio
import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from accounts.models import ApiKey
from billing.models import Attempt, Hold, LedgerEntry, Usage
from tests.simulated.process import SimulatedProvider
from tests.simulated.process import start as start_simulated
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.raw import chat, dial
from tests.stage.shelf import make_model, make_provider, make_tariff

CUTS = int(os.environ.get("CLIENT_CUTS", "300"))
SEED = int(os.environ.get("SEED", "20261127"))
AT_ONCE = 50
TOKENS = 12


@pytest.fixture(scope="module")
def provider() -> Iterator[SimulatedProvider]:
    """A simulated provider whose bill holds nothing but what these tests do."""
    with start_simulated() as provider:
        yield provider


@pytest.fixture(scope="module")
def door(database: None, provider: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that nobody else uses, so that what it has open can be counted."""
    with running(tmp_path_factory.mktemp("door"), EGRESS_ALLOW=provider.url) as (gateway,):
        yield gateway


def open_sockets(gateway: Gateway, provider: SimulatedProvider) -> int:
    """Connections of the gateway's to its clients and to the provider, closing ones included."""
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_, inode = line.split()[:10]
        ours = int(local[-4:], 16) == gateway.port or int(remote[-4:], 16) == provider.port
        found += ours and inode != "0" and state != "0A"  # 0: over; 0A: listening
    return found


def open_calls(gateway: Gateway) -> float:
    """What the gateway's own metric says."""
    lines = gateway.client.get("/metrics").text.splitlines()
    (line,) = (line for line in lines if line.startswith("meterline_open_calls "))
    return float(line.split()[1])


@dataclass
class Cut:
    """One client that leaves: `read` bytes into the answer, or `sent` bytes into its request."""

    number: int
    stream: bool
    sent: int | None  # of the request; None: all of it
    read: int  # bytes of the answer
    wait: float  # seconds, before it leaves
    reset: bool
    left: float = field(default=0.0)  # seconds since 1970


def random_cuts(sizes: dict[bool, int]) -> list[Cut]:
    """Cuts at random places; `sizes` are the lengths of a whole answer, streamed or not."""
    chance = random.Random(SEED)
    cuts = []
    for number in range(CUTS):
        stream = chance.random() < 0.7
        size = sizes[stream]
        place = chance.random()
        read = 0 if place < 0.3 else chance.randint(1, size) if place < 0.8 else size - chance.randint(0, 400)
        sent = chance.randint(0, 250) if place < 0.05 else None
        wait = chance.uniform(0, 0.6) if read == 0 else 0.0
        cuts.append(Cut(number, stream, sent, read, wait, chance.random() < 0.3))
    return cuts


async def leave(gateway: Gateway, secret: str, model: str, cut: Cut) -> None:
    """Sends a request and leaves as `cut` says."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", gateway.port))
        request = chat(secret, model, "Connection: close", stream=cut.stream, user=f"cut-{cut.number}")
        await loop.sock_sendall(client, request[: cut.sent])
        left = cut.read
        while left > 0 and (data := await loop.sock_recv(client, min(left, 4096))):
            left -= len(data)
        await asyncio.sleep(cut.wait)
        if cut.reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        cut.left = time.time()


async def leave_together(gateway: Gateway, secret: str, models: list[str], cuts: list[Cut]) -> None:
    await asyncio.gather(*(leave(gateway, secret, model, cut) for model, cut in zip(models, cuts, strict=False)))


def check(cut: Cut, lines: list[dict[str, Any]], tenant: Tenant, prompt: int, policy: str) -> None:
    """The provider's bill and the books after one cut, of a key with this policy."""
    rows = list(Usage.objects.filter(organization=tenant.organization.id, end_user=f"cut-{cut.number}"))
    if cut.sent is not None:
        assert (rows, lines) == ([], [])
        return
    # A client may leave before its hold: then there is neither a dial nor a row.
    assert len(lines) <= len(rows) <= 1, (cut, lines, rows)
    for line in lines:
        # The whole answer takes less than a second.
        assert line["at"] - cut.left <= (1 if policy == "stop" else 5), (cut, line)
        assert line["ended"] in (("client_closed", "complete") if policy == "stop" else ("complete",))
    for row in rows:
        assert row.status in ("completed", "cancelled"), (cut, row.status, row.error)
        assert Attempt.objects.filter(generation=row.id).count() == 1
        kinds = LedgerEntry.objects.filter(generation=row.id).values_list("kind", flat=True).distinct()
        assert len(kinds) == 1, (cut, kinds)
        if row.basis == "reported":
            assert (row.prompt_tokens, row.completion_tokens) == (prompt, TOKENS)
            assert lines[0]["ended"] == "complete"
        elif row.basis == "nothing":
            assert lines == []  # it left before the dial
            assert (row.charge, row.provider_cost, row.completion_tokens) == (Decimal(0), Decimal(0), 0)
        else:
            assert (row.basis, policy) == ("estimated", "stop")
            assert row.prompt_tokens == 1  # "hi"
            assert row.charge == Decimal(2 * row.prompt_tokens + 4 * row.completion_tokens) / 1_000_000
            assert row.provider_cost == row.charge / 2


@pytest.mark.timeout(max(300, CUTS // 10))
@pytest.mark.parametrize("policy", ["drain", "stop"])
def test_clients_that_leave_anywhere(door: Gateway, provider: SimulatedProvider, alice: Tenant, policy: str) -> None:
    ApiKey.objects.filter(pk=alice.key.pk).update(on_leave=policy)
    row, tariff = make_provider(provider.base_url), make_tariff(input=("1", "2"), output=("2", "4"))
    options = f"sim-small?tokens={TOKENS}&first=100ms&pace=50ms&prompt="
    prompts = range(1000, 1000 + AT_ONCE)
    models = [make_model(row, f"{options}{prompt}", tariff).slug for prompt in prompts]
    synchronize(door)
    sizes = {}
    for stream in (True, False):
        with dial(door) as line:
            line.send(chat(alice.secret, models[0], "Connection: close", stream=stream))
            sizes[stream] = len(line.rest())
    cuts = random_cuts(sizes)
    for start in range(0, len(cuts), AT_ONCE):
        batch = cuts[start : start + AT_ONCE]
        provider.reset()
        asyncio.run(leave_together(door, alice.secret, models, batch))
        until(lambda: open_calls(door) == 0, 5)
        provider.until(5, answering=0)
        bill = provider.bill()
        for cut, prompt in zip(batch, prompts, strict=False):
            check(cut, [line for line in bill if line["model"] == f"{options}{prompt}"], alice, prompt, policy)
    until(lambda: open_sockets(door, provider) <= 1, 15)  # the one that asks
    until(lambda: not Hold.objects.filter(key=alice.key.id).exists(), 15)
    endings = set(Usage.objects.filter(organization=alice.organization.id).values_list("status", "basis"))
    # Who leaves between the hold and the dial pays nothing, and may or may not be among them.
    assert endings - {("cancelled", "nothing")} >= {
        ("completed", "reported"),
        ("cancelled", "reported" if policy == "drain" else "estimated"),
    }


@pytest.mark.row("B274")
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_closes_its_sending_half_has_left(
    door: Gateway, provider: SimulatedProvider, alice: Tenant, stream: bool
) -> None:
    ApiKey.objects.filter(pk=alice.key.pk).update(on_leave="stop")
    model = make_model(make_provider(provider.base_url), "sim-small?tokens=50&first=200ms&pace=100ms").slug
    synchronize(door)
    provider.reset()
    with dial(door) as line:
        line.send(chat(alice.secret, model, stream=stream))
        provider.until(answering=1)
        line.socket.shutdown(socket.SHUT_WR)
        left = time.time()
        rest = line.rest()
    assert b"[DONE]" not in rest
    assert b'"chat.completion"' not in rest
    provider.until(answering=0)
    (bill,) = provider.bill()
    assert bill["ended"] == "client_closed"
    assert bill["at"] - left <= 1
    rows = Usage.objects.filter(organization=alice.organization.id)
    until(lambda: [row.status for row in rows.all()] == ["cancelled"], 2)
