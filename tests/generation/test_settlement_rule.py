"""The settlement rule of docs/design.md, "How an answer can end": each row of its table, through a running gateway."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from accounts.models import ApiKey
from billing.backbone.leases import EVERYBODY
from billing.models import Attempt, Budget, Hold, Tariff, Usage
from routing.models import Model
from tests.console.browser import console
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, database, owner_url
from tests.stage.cast import Tenant
from tests.stage.product import ROOT, Gateway, free_port, running, synchronize, until
from tests.stage.raw import Line, chat, dial
from tests.stage.shelf import make_model, make_provider, make_tariff

COUNT = 7, 5  # tokens that the provider reports, prompt and completion
SAYS = "prompt=7&tokens=5"
HI = 1  # tokens of "hi", estimated
COSTS, CHARGES = (1, 2), (2, 4)  # dollars a million tokens, read and written


@dataclass
class Scene:
    """One tenant, and what a row needs of the world. `estimate` are the tokens that an estimated row comes to."""

    gateway: Gateway
    simulated: SimulatedProvider
    tenant: Tenant
    folder: Path
    estimate: tuple[int, int] = (0, 0)
    model: Model = field(init=False)

    def offer(
        self, says: str = "", *, base_url: str = "", tariff: Tariff | None = None, longest: int = 4096, **provider: Any
    ) -> str:
        """Makes a model whose provider behaves so; gives its slug."""
        row = make_provider(base_url or self.simulated.base_url, **provider)
        rates = tariff or make_tariff(input=("1", "2"), output=("2", "4"))
        self.model = make_model(row, f"rule-{row.slug}?{says}", rates, max_output=longest)
        synchronize(self.gateway)
        return self.model.slug

    def script(self, *events: str, **delivery: Any) -> str:
        """An option with which the provider says these events."""
        data = b"".join(f"data: {event}\n\n".encode() for event in events)
        return self.simulated.script(f"rule-{self.tenant.organization.slug}", data, **delivery)

    def policy(self, on_leave: str) -> None:
        ApiKey.objects.filter(pk=self.tenant.key.pk).update(on_leave=on_leave)

    def budget(self, amount: str) -> None:
        Budget.objects.create(organization=self.tenant.organization, period="total", amount=Decimal(amount), hard=True)

    def ask(self, model: str, **body: Any) -> int:
        """The status of an answer to the tenant."""
        return self.gateway.chat(self.tenant.secret, model, **body).status_code

    @contextmanager
    def asking(self, model: str, *, stream: bool = True) -> Iterator[Line]:
        """A client that has asked, whose provider waits; at the end it leaves."""
        with dial(self.gateway) as line:
            line.send(chat(self.tenant.secret, model, stream=stream))
            self.simulated.until(waiting=1)
            yield line

    def left(self) -> None:
        """Returns once the gateway reads on for the client that has left, and lets the provider go on."""
        until(lambda: "meterline_drains 1.0" in self.gateway.client.get("/metrics").text)
        self.simulated.release()

    def row(self, seconds: float = 20) -> Usage:
        """The one row there is, once nothing is held any more."""
        mine = {"organization": self.tenant.organization.pk}
        until(lambda: Usage.objects.filter(**mine).exists() and not Hold.objects.filter(**mine).exists(), seconds)
        return Usage.objects.get(**mine)


def text(words: str, finish: str = "null") -> str:
    """A chunk that says `words`."""
    return f'{{"choices":[{{"index":0,"delta":{{"content":"{words}"}},"finish_reason":{finish}}}]}}'


USAGE = '{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}}'
ROWS: dict[str, Callable[[Scene], None]] = {}


def row(name: str) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Registers how a row of the table is played."""

    def register(play: Callable[[Scene], None]) -> Callable[[Scene], None]:
        ROWS[name] = play
        return play

    return register


@row("complete, with usage")
def complete(scene: Scene) -> None:
    assert scene.ask(scene.offer(SAYS)) == 200


@row("complete, without usage that can be believed")
def uncounted(scene: Scene) -> None:
    said = scene.script(text("12345678", '"stop"'), "[DONE]")
    assert scene.ask(scene.offer(said), stream=True) == 200
    scene.estimate = HI, 2


def leaves(scene: Scene, on_leave: str, says: str, *, stream: bool = True, output: bool = False) -> None:
    scene.policy(on_leave)
    with scene.asking(scene.offer(says), stream=stream) as line:
        if output:
            line._until(b'"content":"')


@row("the client left a stream before the first output, read on")
def left_before(scene: Scene) -> None:
    leaves(scene, "drain", f"hold&{SAYS}")
    scene.left()


@row("the client left a stream after output, read on")
def left_after(scene: Scene) -> None:
    leaves(scene, "drain", f"hold=3&{SAYS}", output=True)
    scene.left()


@row("the client left a whole answer, read on")
def left_whole(scene: Scene) -> None:
    leaves(scene, "finish", f"hold&{SAYS}", stream=False)
    scene.left()


@row("the client left before the first output, `stop`")
def left_at_once(scene: Scene) -> None:
    leaves(scene, "stop", f"hold&{SAYS}")
    scene.estimate = HI, 0
    scene.row()
    scene.simulated.release()


@row("the client left a stream after output, `stop`")
def left_amid(scene: Scene) -> None:
    leaves(scene, "stop", f"hold=3&{SAYS}&text=one%20two%20three%20four%20five", output=True)
    scene.estimate = HI, 0  # the words that were read stand in the row
    scene.row()
    scene.simulated.release()


@row("the client left, and the provider was read on in vain")
def left_in_vain(scene: Scene) -> None:
    with running(scene.folder, EGRESS_ALLOW=scene.simulated.url, DRAIN_SECONDS="1") as (gateway,):
        scene.gateway = gateway
        leaves(scene, "drain", f"hold&{SAYS}")
        scene.estimate = HI, 0
        scene.row()
    scene.simulated.release()


def stops(scene: Scene, on_leave: str) -> None:
    """Five sequences, of which the provider is told four."""
    scene.policy(on_leave)
    said = scene.script(text("1234END5"), text("6789"), text("", '"length"'), USAGE, "[DONE]")
    answer = scene.gateway.chat(
        scene.tenant.secret, scene.offer(said), stream=True, stop=["a1", "b1", "c1", "d1", "END"]
    )
    assert answer.text.rstrip().endswith("[DONE]")
    assert re.findall('"content":"([^"]+)"', answer.text) == ["1234"]


@row("the gateway found a stop sequence, read on")
def stopped(scene: Scene) -> None:
    stops(scene, "drain")


@row("the gateway found a stop sequence, `stop`")
def stopped_at_once(scene: Scene) -> None:
    scene.policy("stop")
    option = scene.script(text("1234END5"), text("6789"), pauses="60:3s")
    slug = scene.offer(option)
    assert scene.ask(slug, stream=True, stop=["a1", "b1", "c1", "d1", "END"]) == 200
    scene.estimate = HI, 2


def talks_on(scene: Scene, on_leave: str, *rest: str, **delivery: Any) -> None:
    """80 kB, where a token's cap allows 64, and then the `rest`."""
    scene.policy(on_leave)
    said = scene.script(*[text("x" * 1000)] * 80, *rest, **delivery)
    answer = scene.gateway.chat(scene.tenant.secret, scene.offer(said), stream=True, max_tokens=1)
    assert "The provider's answer is longer than 65600 bytes" in answer.text
    assert "[DONE]" not in answer.text


@row("longer than its cap allows, read on")
def too_long(scene: Scene) -> None:
    talks_on(scene, "drain", text("", '"length"'), USAGE, "[DONE]")


@row("longer than its cap allows, `stop`")
def too_long_at_once(scene: Scene) -> None:
    talks_on(scene, "stop", end="hang")
    scene.estimate = HI, 16_000


def overflows(scene: Scene, said: str) -> None:
    """For a client that does not stream, where the process may keep little."""
    with running(scene.folder, EGRESS_ALLOW=scene.simulated.url, MEMORY_BYTES="1048576") as (gateway,):
        scene.gateway = gateway
        answer = gateway.chat(scene.tenant.secret, scene.offer(said, longest=50_000))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "out_of_memory")
        assert answer.headers["retry-after"] == "2"
        scene.row()
        assert "meterline_buffered_bytes 0.0" in gateway.client.get("/metrics").text


@row("longer than its cap allows, read on in vain")
def too_long_for_ever(scene: Scene) -> None:
    talks_on(scene, "drain", *[text("y" * 1000)] * 600, end="reset", chunk=2048)
    scene.estimate = HI, 16_000
    assert scene.row().completion_tokens < 100_000  # and not for the 150,000 that came after it


@row("no room to keep it until its end, read on")
def no_room(scene: Scene) -> None:
    overflows(scene, scene.script(*[text("x" * 1000)] * 800, text("", '"stop"'), USAGE, "[DONE]"))


@row("no room to keep a whole body")
def no_room_for_a_body(scene: Scene) -> None:
    words = "x" * 800_000
    body = f'{{"choices":[{{"index":0,"message":{{"content":"{words}"}},"finish_reason":"stop"}}]}}'
    overflows(scene, scene.simulated.script(f"rule-{scene.tenant.organization.slug}", body.encode()))
    scene.estimate = HI, 10_000


@row("more vectors than a body may hold")
def too_many_vectors(scene: Scene) -> None:
    slug = scene.offer(SAYS, max_event_bytes=65_536)
    Model.objects.filter(slug=slug).update(output_modalities=["embeddings"])
    synchronize(scene.gateway)
    asked = {"model": slug, "input": ["12345678"] * 100, "dimensions": 200}
    headers = {"Authorization": f"Bearer {scene.tenant.secret}"}
    assert scene.gateway.client.post("/v1/embeddings", json=asked, headers=headers).status_code == 400
    scene.estimate = 200, 0


@row("a deadline after output")
def too_late(scene: Scene) -> None:
    said = scene.script(text("12345678"), end="hang")
    scene.ask(scene.offer(said, idle_timeout=0.5), stream=True)
    scene.estimate = HI, 2


def revoked(scene: Scene, says: str, *, output: bool) -> None:
    from django.utils import timezone

    with scene.asking(scene.offer(says)) as line:
        if output:
            line._until(b'"content":"')
        ApiKey.objects.filter(pk=scene.tenant.key.pk).update(revoked_at=timezone.now())
        scene.row()
    scene.simulated.release()
    scene.estimate = HI, 0


@row("the key was revoked after output")
def revoked_after(scene: Scene) -> None:
    revoked(scene, f"hold=3&{SAYS}", output=True)


@row("the key was revoked before output")
def revoked_before(scene: Scene) -> None:
    revoked(scene, f"hold&{SAYS}", output=False)


def cut_off(scene: Scene, says: str, *, output: bool) -> None:
    with scene.asking(scene.offer(says)) as line:
        if output:
            line._until(b'"content":"')
        hold = Hold.objects.get(organization=scene.tenant.organization.pk)
        assert console().post(reverse("cut_request", args=[hold.pk])).status_code == 302
        assert scene.row().error == "request_cut"
    scene.simulated.release()
    scene.estimate = HI, 0


@row("somebody cut it off after output")
def cut_off_after(scene: Scene) -> None:
    cut_off(scene, f"hold=3&{SAYS}", output=True)


@row("somebody cut it off before output")
def cut_off_before(scene: Scene) -> None:
    cut_off(scene, f"hold&{SAYS}", output=False)


@row("the provider was not reached")
def unreached(scene: Scene) -> None:
    port = free_port()
    with running(scene.folder, EGRESS_ALLOW=f"http://127.0.0.1:{port}") as (gateway,):
        scene.gateway = gateway
        assert scene.ask(scene.offer(base_url=f"http://127.0.0.1:{port}/v1")) == 502


@row("the provider refused, by status or by an error in a 200")
def refused(scene: Scene) -> None:
    assert scene.ask(scene.offer("fault=error_in_200&status=502")) == 502


@row("broken off, silent or unreadable before output")
def broken_before(scene: Scene) -> None:
    assert scene.ask(scene.offer("fault=hang", first_byte_timeout=0.5)) == 504


@row("broken off after output")
def broken_after(scene: Scene) -> None:
    said = scene.script(text("12345678"), text("9", '"x'), end="reset")
    scene.ask(scene.offer(said), stream=True)
    scene.estimate = HI, 2


@row("nothing said, but counted")
def silent_but_counted(scene: Scene) -> None:
    assert scene.ask(scene.offer(scene.script(USAGE, "[DONE]")), stream=True) == 502


@row("nothing said, and counted as nothing")
def counted_as_nothing(scene: Scene) -> None:
    filtered = '{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"content_filter"}]}'
    zeros = USAGE.replace("7", "0").replace("5", "0")
    assert scene.ask(scene.offer(scene.script(filtered, zeros, "[DONE]")), stream=True) == 200


@row("an item without a rate")
def unpriced(scene: Scene) -> None:
    usage = USAGE.replace("}}", ',"server_tool_use":{"web_search_requests":2}}}')
    said = scene.script(text("hello", '"stop"'), usage, "[DONE]")
    assert scene.ask(scene.offer(said), stream=True) == 200


def lied_to(scene: Scene, amount: str) -> None:
    scene.budget(amount)
    assert scene.ask(scene.offer(f"{SAYS}&ignore_max"), max_tokens=1) == 200


@row("more than was held, and the hard budget has room")
def above_the_hold(scene: Scene) -> None:
    lied_to(scene, "1")


@row("more than was held and a hard budget has left")
def above_the_budget(scene: Scene) -> None:
    # 92 bytes at 2 and a token at 4: less than the hold would be none. The prompt is dearer than the hold knew.
    scene.budget("0.0003")
    assert scene.ask(scene.offer("prompt=1000&tokens=5&ignore_max"), max_tokens=1) == 200


@row("settled by the spool")
def spooled(scene: Scene) -> None:
    scene.budget("1")
    slug = scene.offer(f"hold&{SAYS}")
    answers: list[int] = []
    client = threading.Thread(target=lambda: answers.append(scene.ask(slug)))
    client.start()
    scene.simulated.until(waiting=1)
    with database(owner_url()) as blocker:
        blocker.execute("begin")
        mine = [scene.tenant.organization.pk]
        blocker.execute("select 1 from billing_counter where organization = %s for update", mine)
        scene.simulated.release()
        client.join(20)
        assert answers == [200]  # while the tables do not take it
        blocker.execute("rollback")


@row("the process died")
def died(scene: Scene) -> None:
    here = scene.gateway
    with running(scene.folder, EGRESS_ALLOW=scene.simulated.url) as (gateway,):
        scene.gateway = gateway
        with scene.asking(scene.offer(f"hold&{SAYS}")):
            gateway.kill()
            with database(owner_url()) as owner:  # as if half a minute had passed; test_chaos waits for it
                old = "update billing_lease set heartbeat_at = now() - interval '1 minute' where pid = %s and id <> %s"
                owner.execute(old, [gateway.process.pid, EVERYBODY])
    scene.simulated.release()
    scene.gateway = here
    scene.row(60)


def table() -> dict[str, tuple[str, str, str]]:
    """The rows of the document: what the tenant pays, what the provider's book gets, and the basis."""
    section = (ROOT / "docs/design.md").read_text().partition("## How an answer can end\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.split("\n") if line[:2] == "| "]
    return {name: (tenant, provider, basis) for name, tenant, provider, basis in rows[1:]}


def price(tokens: tuple[int, int], rates: tuple[int, int]) -> Decimal:
    return Decimal(tokens[0] * rates[0] + tokens[1] * rates[1]) / 1_000_000


def test_every_row_is_played() -> None:
    assert list(table()) == list(ROWS)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", table())
def test_an_answer_that_ends_so_costs_so(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, tmp_path: Path, name: str
) -> None:
    tenant, provider, basis = table()[name]
    scene = Scene(gateway, simulated, alice, tmp_path)
    ROWS[name](scene)
    usage = scene.row()
    assert usage.basis == basis
    tokens = usage.prompt_tokens, usage.completion_tokens
    if tenant == "estimate":
        # What was read stands in the row: at least what the scene knows of, and what it says comes to what it costs.
        assert tokens[0] == scene.estimate[0]
        assert tokens[1] >= scene.estimate[1]
    elif tenant in ("0", "unknown"):
        assert tokens == (0, 0)
    elif tenant != "the budget":
        assert tokens == COUNT
    amounts = {"0": Decimal(0), "unknown": None, "the budget": Decimal("0.0003")}
    assert usage.charge == amounts.get(tenant, price(tokens, CHARGES))
    assert usage.provider_cost == amounts.get(provider, price(tokens, COSTS))
    assert usage.overrun == (price(tokens, CHARGES) - Decimal("0.0003") if tenant == "the budget" else 0)
    if tenant == "the priced lines":
        assert [line["item"] for line in usage.arithmetic if line["charge"] is None] == ["web_search"]
    assert not Attempt.objects.filter(generation=usage.id, status="dialling").exists()
    assert books(alice.organization).problems() == []
