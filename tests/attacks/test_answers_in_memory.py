"""Answers that are collected until their end: one tenant's fill no more than its share, and the others get theirs."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from billing.models import Hold, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import Tenant
from tests.stage.product import running, synchronize, until
from tests.stage.shelf import make_model, make_provider

MEMORY = 4 << 20
ANSWERS = 12


def fat(kilobytes: int) -> bytes:
    """Events that say so much, and do not end."""
    event = '{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}'
    return b"".join(f"data: {event % ('x' * 1000)}\n\n".encode() for _ in range(kilobytes))


END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def test_who_collects_fat_answers_is_refused_and_another_tenant_is_answered(
    simulated: SimulatedProvider, alice: Tenant, charlie: Tenant, tmp_path: Path
) -> None:
    name = alice.organization.slug
    endless = f"fat?{simulated.script(f'endless-{name}', fat(900), end='hang')}"
    ending = f"fat?{simulated.script(f'ending-{name}', fat(600) + END)}"
    model = make_model(make_provider(simulated.base_url, idle_timeout=8), endless, max_output=100_000)
    sound = make_model(make_provider(simulated.base_url), ending, max_output=100_000)
    with (
        running(tmp_path, EGRESS_ALLOW=simulated.url, MEMORY_BYTES=str(MEMORY)) as (gateway,),
        ThreadPoolExecutor(ANSWERS) as clients,
    ):
        synchronize(gateway)
        asked = [clients.submit(gateway.chat, alice.secret, model.slug) for _ in range(ANSWERS)]
        until(lambda: sum(one.done() for one in asked) >= ANSWERS - 2, 60)
        before = time.monotonic()
        answer = gateway.chat(charlie.secret, sound.slug)
        assert (answer.status_code, len(answer.json()["choices"][0]["message"]["content"])) == (200, 600_000)
        assert time.monotonic() - before < 30
        answers = [one.result() for one in asked]
        refused = [one for one in answers if one.status_code == 503]
        assert len(refused) >= ANSWERS - 2
        assert {one.json()["error"]["code"] for one in refused} == {"out_of_memory"}
        mine = {"organization": alice.organization.pk}
        until(lambda: Usage.objects.filter(**mine).count() == ANSWERS and not Hold.objects.filter(**mine).exists(), 30)
        assert "meterline_buffered_bytes 0.0" in gateway.client.get("/metrics").text
    # What was read is paid for, however it ended, at four bytes a token: of some nothing had been read yet.
    refusals = Usage.objects.filter(error="out_of_memory", **mine)
    assert {(usage.basis, bool(usage.charge)) for usage in refusals} == {("estimated", True)}
    assert sum(usage.completion_tokens for usage in refusals) > 10_000
    assert books(alice.organization).problems() == []
