"""Plays one cell of the table: a gateway, its providers, one request, and all that must be true afterwards."""

import json
import secrets
import time
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from django.db import transaction

from billing.models import Attempt, Budget, LedgerEntry, Usage
from tests.faults import odd
from tests.faults.promises import Answered, Broken, Cell, Late, Refused, Row, Told
from tests.faults.upstreams import Upstreams
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_tenant
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff

SECOND = "from the other one"
ASKED = "hi"
SECRET = "sk-upstream-of-the-operator-1"
PROMPT_RATE, OUTPUT_RATE = Decimal("0.000002"), Decimal("0.000004")  # dollars a token, at the first provider
DEARER = 10  # times as much at the other one, so that a bill shows whose it is
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Scene:
    """The rows of one cell: the model asked for, its providers, and their models' names in the provider's bill."""

    model: str
    providers: tuple[str, ...]
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer: what came, how long the request was, and how long it took in seconds."""

    response: httpx.Response
    asked: int
    seconds: float

    @property
    def events(self) -> list[Any]:
        """The payloads of the stream, [DONE] as text."""
        lines = [line[6:] for line in self.response.text.split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    @property
    def chunks(self) -> list[Any]:
        """The events that belong to the answer."""
        return [event for event in self.events if event != "[DONE]" and "error" not in event]

    @property
    def text(self) -> str:
        """What the answer says, streamed or whole."""
        if "event-stream" not in self.response.headers["content-type"]:
            return str(self.response.json()["choices"][0]["message"]["content"] or "")
        choices = [choice for chunk in self.chunks for choice in chunk.get("choices", ())]
        return "".join(choice["delta"].get("content") or "" for choice in choices)


class Stage:
    """A gateway that may dial the simulated provider and the odd ones; every cell has tenants' rows of its own."""

    def __init__(self, gateway: Gateway, provider: SimulatedProvider, upstreams: Upstreams) -> None:
        self.gateway, self.provider, self.upstreams = gateway, provider, upstreams
        self.tenant, self.careful = make_tenant("faults"), make_tenant("careful")
        Budget.objects.create(organization=self.careful.organization, period="total", amount=Decimal(100), hard=True)
        self._cheap = make_tariff(input=("1", "2"), output=("2", "4"))
        self._dear = make_tariff(input=("10", "20"), output=("20", "40"))
        self._last = make_model(make_provider(provider.base_url), "last?close&tokens=1").slug
        synchronize(gateway)
        gateway.chat(self.tenant.secret, "nobody/asked")
        self._tasks = self.metric("meterline_tasks")

    @transaction.atomic
    def _set(self, cell: Cell) -> Scene:
        row, mark = cell.row, secrets.token_hex(5)
        base = self.provider.base_url if row.at == "simulated" else f"{self.upstreams.origin(row.at)}/v1"
        says = row.says.replace("{canary}", f"{self.upstreams.canary.origin}/v1/chat/completions")
        says = says.replace("{odd}", odd.script(self.provider, cell.form))
        first, second = f"first-{mark}?{says}", f"second-{mark}?text={SECOND.replace(' ', '%20')}&prompt=7"
        providers = [make_provider(base, SECRET, **row.provider)]
        model = make_model(providers[0], first, self._cheap)
        if cell.company == "with another":
            providers.append(make_provider(self.provider.base_url, SECRET))
            add_offer(model, providers[1], second, self._dear, priority=1)
        return Scene(model.slug, tuple(provider.slug for provider in providers), first, second)

    # --- a cell ---
    def play(self, cell: Cell) -> None:
        """Plays a cell. Raises AssertionError for whatever is not as promised."""
        row, scene = cell.row, self._set(cell)
        synchronize(self.gateway)
        tenant = self.careful if row.hard else self.tenant
        if row.fresh:
            assert self.gateway.chat(self.tenant.secret, self._last).status_code == 200
            self.provider.until(5, sockets=0)
        log, came = self.gateway.log.stat().st_size, self._came(row)
        memory = self._memory_from_here()
        heard = [self._ask(tenant, scene, cell) for _ in range(2 if row.twice else 1)]
        assert self._memory_to_here() - memory <= (row.memory or 128) * MIB
        for answer in heard:
            self._check(cell, scene, answer)
        assert self._came(row) - came == (row.dials if row.at in self.upstreams.counted else 0)
        if row.again is not None:
            self._check_again(cell, scene, tenant)
        self._check_nothing_is_left(log)

    def _check(self, cell: Cell, scene: Scene, heard: Heard) -> None:
        row, told = cell.row, cell.row.told_to(cell.form)
        moves = cell.company == "with another" and (
            isinstance(told, Late) or (isinstance(told, Refused) and told.moves)
        )
        self._check_no_secrets(scene, heard)
        usage = Usage.objects.get(id=heard.response.headers["x-generation-id"])
        if moves:
            self._check_answer(heard, Answered(text=SECOND), cell.form)
            assert (usage.basis, usage.prompt_tokens, usage.completion_tokens) == ("reported", 7, 4)
            assert usage.charge == (7 * PROMPT_RATE + 4 * OUTPUT_RATE) * DEARER
        else:
            assert heard.seconds <= row.within
            self._check_told(heard, told, cell.form)
            self._check_bill(usage, heard, told, scene)
        self._check_attempts(cell, scene, usage, moves)
        owed = LedgerEntry.objects.filter(generation=usage.id, debit=f"tenant:{usage.organization}")
        assert sum(entry.amount for entry in owed) == usage.charge
        assert {entry.kind for entry in owed} == {"settle" if usage.charge else "void"}

    def _check_told(self, heard: Heard, told: Told, form: str) -> None:
        if isinstance(told, Refused):
            self._check_refusal(heard.response, told)
        elif isinstance(told, Answered):
            self._check_answer(heard, told, form)
        else:
            *before, last = heard.events
            assert heard.response.status_code == 200
            assert (last["error"]["code"], bool(before)) == (told.code, isinstance(told, Broken))
            assert heard.response.text.startswith(": keep-alive") == isinstance(told, Late)
            assert all(choice["finish_reason"] is None for chunk in before for choice in chunk["choices"])
            assert heard.response.text.endswith("\n\n")

    @staticmethod
    def _check_refusal(response: httpx.Response, told: Refused) -> None:
        error = response.json()["error"]
        assert (response.status_code, error["type"], error["code"]) == (told.status, told.type, told.code)
        assert response.headers["content-type"].startswith("application/json")
        assert response.headers["x-request-id"]
        assert error["message"] == (told.message or error["message"]) != ""
        if told.retry_after is None:
            assert "retry-after" not in response.headers
        else:
            first, last = told.retry_after
            assert first <= int(response.headers["retry-after"]) <= last

    @staticmethod
    def _check_answer(heard: Heard, told: Answered, form: str) -> None:
        assert heard.response.status_code == 200, heard.response.text
        assert told.text is None or heard.text == told.text
        if form == "streamed":
            assert heard.events[-1] == "[DONE]"
            assert {chunk["id"] for chunk in heard.chunks if "choices" in chunk} == {
                heard.response.headers["x-generation-id"]
            }
        else:
            assert heard.response.json()["id"] == heard.response.headers["x-generation-id"]
        if told.text is None:
            odd.check(heard.response, form)

    def _check_bill(self, usage: Usage, heard: Heard, told: Told, scene: Scene) -> None:
        # Of a kept connection that ended before an answer nobody knows what the provider made of it.
        unseen = {"unknown"} if told.basis == "nothing" and _began_stale(usage) else set()
        assert usage.basis in {*told.basis.split("|"), *unseen}
        assert usage.suspect == (isinstance(told, Answered) and told.suspect)
        assert usage.status == ("completed" if isinstance(told, Answered) else "failed")
        if usage.basis in ("nothing", "unknown"):
            assert (usage.prompt_tokens, usage.completion_tokens) == (0, 0)
            assert usage.charge == 0
            assert usage.provider_cost == (0 if usage.basis == "nothing" else None)
            return
        if told.basis == "reported":
            reported = json.loads(self._billed(scene.first)[-1]["usage"] or odd.USAGE)
            prompt, completion = reported["prompt_tokens"], reported["completion_tokens"]
            counts = prompt, max(completion, reported.get("total_tokens", 0) - prompt)
        else:
            counts = _estimate(len(ASKED)), _estimate(len(heard.text.encode()))
        assert (usage.prompt_tokens, usage.completion_tokens) == counts
        price = counts[0] * PROMPT_RATE + counts[1] * OUTPUT_RATE
        assert usage.charge is not None
        assert usage.charge + usage.overrun == price
        assert (usage.charge < price) == (told.basis == "capped")
        assert usage.provider_cost == price / 2

    def _check_attempts(self, cell: Cell, scene: Scene, usage: Usage, moves: bool) -> None:
        fault = cell.row.fault_in(cell.form)
        told = cell.row.told_to(cell.form)
        expected = [("completed", "") if isinstance(told, Answered) else ("failed", fault)]
        expected += [("completed", "")] if moves else []
        attempts = list(Attempt.objects.filter(generation=usage.id).order_by("number"))
        assert usage.attempts == len(attempts)
        # A connection that was kept and had ended: that send is an attempt of its own, before another at that provider.
        stale = [] if cell.row.fresh else [one for one, after in pairwise(attempts) if _went_stale(one, after)]
        assert len(stale) <= 1
        attempts = [one for one in attempts if one not in stale]
        assert [(attempt.status, attempt.fault) for attempt in attempts] == expected
        assert [attempt.provider for attempt in attempts] == list(scene.providers[: len(attempts)])
        assert all(attempt.duration_ms is not None for attempt in attempts)
        assert {attempt.model for attempt in attempts} == {scene.model}
        dials = cell.row.dials if cell.row.at == "simulated" else 0
        again = [sum(one.provider == provider for one in stale) for provider in scene.providers]
        assert self._dials(scene.first) - dials in (0, again[0])
        assert self._dials(scene.second) - int(moves) in (0, *again[1:])

    def _check_again(self, cell: Cell, scene: Scene, tenant: Tenant) -> None:
        """The next request does not meet the same fault again: it is refused at once, or answered by the other."""
        before = self._dials(scene.first)
        heard = self._ask(tenant, scene, cell)
        if cell.company == "with another":
            self._check_answer(heard, Answered(text=SECOND), cell.form)
        else:
            assert cell.row.again is not None
            self._check_refusal(heard.response, cell.row.again)
        self._check_no_secrets(scene, heard)
        assert self._dials(scene.first) == before

    def _check_no_secrets(self, scene: Scene, heard: Heard) -> None:
        told = f"{heard.response.headers}{heard.response.text}".lower()
        words = [*scene.providers, scene.first.partition("?")[0], SECRET, "127.0.0.1", "nowhere", "somebody-else"]
        words += [f":{self.provider.port}", "secret-internal", "<html", "traceback", "aiohttp", "errno", "bearer"]
        assert [word for word in words if word.lower() in told] == []

    def _check_nothing_is_left(self, log: int) -> None:
        until(lambda: self.metric("meterline_open_calls") == 0, 2)
        until(lambda: self.metric("meterline_tasks") <= self._tasks, 2)
        assert self.provider.until(2, answering=0)["sockets"] <= 1  # one is kept for the next request
        assert self.upstreams.canary.connections == 0
        assert b"Traceback" not in self.gateway.log.read_bytes()[log:]

    # --- looking ---
    def metric(self, name: str) -> float:
        """A metric of the gateway that has no labels."""
        lines = self.gateway.client.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    def _ask(self, tenant: Tenant, scene: Scene, cell: Cell) -> Heard:
        body = {"model": scene.model, "messages": [{"role": "user", "content": ASKED}], **cell.row.body}
        data = json.dumps({**body, "stream": cell.form == "streamed"}).encode()
        headers = {"Authorization": f"Bearer {tenant.secret}", "Content-Type": "application/json"}
        started = time.monotonic()
        response = self.gateway.client.post("/v1/chat/completions", content=data, headers=headers)
        return Heard(response, len(data), time.monotonic() - started)

    def _dials(self, model: str) -> int:
        return sum(line["event"] == "start" for line in self._lines(model))

    def _billed(self, model: str) -> list[dict[str, Any]]:
        return [line for line in self._lines(model) if line["event"] == "end"]

    def _lines(self, model: str) -> list[dict[str, Any]]:
        return [line for line in self.provider.lines() if line["model"] == model]

    def _came(self, row: Row) -> int:
        return self.upstreams.came(row.at)

    def _memory_from_here(self) -> int:
        """Resets the kernel's mark of the most memory used, and gives what is used now, in bytes."""
        self._proc("clear_refs").write_text("5")
        return self._status("VmRSS")

    def _memory_to_here(self) -> int:
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        line = next(line for line in self._proc("status").read_text().splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) * 1024

    def _proc(self, name: str) -> Path:
        return Path(f"/proc/{self.gateway.process.pid}/{name}")


def _estimate(size: int) -> int:
    return -(-size // 4)


def _began_stale(usage: Usage) -> bool:
    """Whether its first send went out on a kept connection that had ended, before another at the same provider."""
    attempts = list(Attempt.objects.filter(generation=usage.id).order_by("number")[:2])
    return len(attempts) == 2 and _went_stale(*attempts)


def _went_stale(attempt: Attempt, after: Attempt) -> bool:
    return bool(attempt.fault == "unreachable" and attempt.provider == after.provider)
