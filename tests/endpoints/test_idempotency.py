"""Idempotency-Key: one answer, one call of the provider and one charge, however often a request is sent."""

import json
import re
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from django.utils import timezone
from openai import OpenAI
from openai.types.chat import ChatCompletion

from accounts.models import ApiKey
from accounts.sealing import CannotOpen
from billing.models import Budget, Hold, KeptAnswer, KeptShare, Limit, Usage
from billing.tasks import prune
from gateway.process.keeping import MOST_PACKED, opened
from routing.models import Model
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import app_url, books, database, owner_url
from tests.stage.cast import NOBODYS, Tenant, make_key
from tests.stage.fleet import fleet as fleet
from tests.stage.gate import gate
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.protocols import CONTENTS, HI
from tests.stage.raw import dial
from tests.stage.raw import post as raw_post
from tests.stage.shelf import make_model, make_provider

CHAT = "/v1/chat/completions"


def word() -> str:
    """A fresh idempotency key."""
    return f"order-{secrets.token_hex(8)}"


def send(
    gateway: Gateway, tenant: Tenant, body: dict[str, Any], key: str, path: str = CHAT, secret: str = ""
) -> httpx.Response:
    """One POST under an idempotency key."""
    headers = {"Authorization": f"Bearer {secret or tenant.secret}", "Idempotency-Key": key}
    return gateway.client.post(path, json=body, headers=headers)


def chat(model: Model, **more: Any) -> dict[str, Any]:
    """The body of a chat completion."""
    return {"model": model.slug, "messages": HI, **more}


@pytest.fixture
def model(simulated: SimulatedProvider) -> Model:
    """A model of its own at the simulated provider."""
    return make_model(make_provider(simulated.base_url), f"kept-{secrets.token_hex(4)}")


def another(simulated: SimulatedProvider, says: str) -> Model:
    """A model that behaves so."""
    return make_model(make_provider(simulated.base_url), f"kept-{secrets.token_hex(4)}?{says}")


def calls(simulated: SimulatedProvider, model: Model) -> int:
    """How often the provider was asked for the model."""
    asked = model.offers.get().upstream_model
    return sum(line["model"] == asked for line in simulated.lines() if line["event"] == "start")


def one_charge(tenant: Tenant) -> Usage:
    """The one usage row there is; the books agree with it, and nothing is held."""
    until(lambda: not Hold.objects.filter(organization=tenant.organization.pk).exists())
    row = Usage.objects.get(organization=tenant.organization.pk)
    assert books(tenant.organization).problems() == []
    return row


def replayed(answer: httpx.Response) -> bool:
    """Whether an answer says that it is one again."""
    return bool(answer.headers.get("idempotent-replayed") == "true")


def same(first: httpx.Response, again: httpx.Response) -> bool:
    """Whether one is the other's replay, byte for byte, under the headers that matter."""
    names = ("content-type", "x-generation-id", "x-gateway-ignored-params", "cache-control")
    assert replayed(again) and not replayed(first)
    assert [first.headers.get(name) for name in names] == [again.headers.get(name) for name in names]
    assert first.status_code == again.status_code
    return bool(first.content == again.content)


@pytest.mark.parametrize("stream", [False, True])
def test_a_hundred_twins_over_four_processes_are_one_call_and_one_charge(
    fleet: list[Gateway], simulated: SimulatedProvider, alice: Tenant, stream: bool
) -> None:
    model = another(simulated, "hold")
    synchronize(*fleet)
    key, together = word(), threading.Barrier(100)

    def twin(number: int) -> httpx.Response:
        together.wait()
        answer = send(fleet[number % 4], alice, chat(model, stream=stream), key)
        while answer.status_code == 503:  # the machine is busy
            answer = send(fleet[number % 4], alice, chat(model, stream=stream), key)
        if answer.status_code == 409:
            refused.release()
        return answer

    refused = threading.Semaphore(0)
    with ThreadPoolExecutor(100) as pool:
        answers = [pool.submit(twin, number) for number in range(100)]
        for _ in range(99):
            assert refused.acquire(timeout=30)
        simulated.until(waiting=1)
        simulated.release()
        (first,) = [answer.result() for answer in answers if answer.result().status_code != 409]
        twins = [answer.result() for answer in answers if answer.result().status_code == 409]
        assert {answer.json()["error"]["code"] for answer in twins} == {"idempotency_key_in_use"}
        assert {answer.headers["retry-after"] for answer in twins} == {"1"}
        assert first.headers["x-generation-id"] in {answer.headers["x-generation-id"] for answer in twins}
        assert first.status_code == 200
        again = list(pool.map(twin, range(100)))
    assert all(same(first, answer) for answer in again)
    assert calls(simulated, model) == 1
    row = one_charge(alice)
    assert row.pk.hex == first.headers["x-generation-id"] and row.charge and row.charge > 0


PATHS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": HI}),
    "responses": ("/v1/responses", {"input": "hi"}),
    "messages": ("/v1/messages", {"max_tokens": 50, "messages": HI}),
    "generateContent": ("/v1beta/models/{model}:generateContent", {"contents": CONTENTS}),
    "completions": ("/v1/completions", {"prompt": "hi"}),
    "embeddings": ("/v1/embeddings", {"input": ["hi", "there"]}),
}


def asked(endpoint: str, model: Model, *, stream: bool = False) -> tuple[str, dict[str, Any]]:
    """A path and a body, in the protocol of the endpoint."""
    path, body = PATHS[endpoint]
    if "{model}" in path:
        path = path.format(model=model.slug)
        return (path.replace(":generate", ":streamGenerate") + "?alt=sse" if stream else path), body
    return path, {"model": model.slug, **body, **({"stream": True} if stream else {})}


def for_each(simulated: SimulatedProvider, endpoint: str) -> Model:
    """A model that has the endpoint."""
    fields: dict[str, Any] = {}
    if endpoint == "embeddings":
        fields["output_modalities"] = ["embeddings"]
    found = make_model(make_provider(simulated.base_url), f"kept-{secrets.token_hex(4)}", **fields)
    if endpoint == "completions":
        found.offers.update(supported_parameters=["prompt"])
    return found


@pytest.mark.parametrize(
    ("endpoint", "stream"),
    [(name, stream) for name in PATHS for stream in (False, True) if (name, stream) != ("embeddings", True)],
)
def test_the_same_bytes_in_every_protocol(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, endpoint: str, stream: bool
) -> None:
    model = for_each(simulated, endpoint)
    synchronize(gateway)
    path, body = asked(endpoint, model, stream=stream)
    key = word()
    first = send(gateway, alice, body, key, path)
    assert first.status_code == 200, first.text
    again = send(gateway, alice, body, key, path)
    assert same(first, again)
    assert first.headers["x-request-id"] != again.headers["x-request-id"]
    assert calls(simulated, model) == 1
    assert one_charge(alice).pk.hex == first.headers["x-generation-id"]


def test_another_body_is_refused_whether_the_first_runs_or_has_ended(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    model = another(simulated, "hold")
    synchronize(gateway)
    key = word()

    def refused() -> None:
        answer = send(gateway, alice, chat(model, max_tokens=5), key)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_key_reused")
        assert answer.headers["x-should-retry"] == "false" and "retry-after" not in answer.headers

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, gateway, alice, chat(model), key)
        simulated.until(waiting=1)
        refused()
        simulated.release()
        assert first.result().status_code == 200
    refused()
    assert same(first.result(), send(gateway, alice, chat(model), key))
    assert calls(simulated, model) == 1
    assert one_charge(alice)


def test_another_model_in_the_path_is_another_request(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, model: Model
) -> None:
    other = another(simulated, "")
    synchronize(gateway)
    key = word()
    path, body = asked("generateContent", model)
    assert send(gateway, alice, body, key, path).status_code == 200
    answer = send(gateway, alice, body, key, asked("generateContent", other)[0])
    assert (answer.status_code, answer.json()["error"]["status"]) == (409, "ABORTED")
    assert calls(simulated, other) == 0
    assert one_charge(alice)


def test_the_word_is_one_keys_at_one_endpoint(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, charlie: Tenant, model: Model
) -> None:
    _, beside = make_key(alice.project)
    model.offers.update(supported_parameters=["prompt"])
    synchronize(gateway)
    key = word()
    path, body = asked("completions", model)
    answers = [
        send(gateway, alice, chat(model), key),
        send(gateway, alice, chat(model), key, secret=beside),
        send(gateway, charlie, chat(model), key),
        send(gateway, alice, body, key, path),
    ]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert not any(map(replayed, answers))
    assert len({answer.headers["x-generation-id"] for answer in answers}) == 4
    assert calls(simulated, model) == 4


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_word_that_cannot_be_one_is_refused(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, model: Model, key: str
) -> None:
    synchronize(gateway)
    answer = send(gateway, alice, chat(model), key)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_idempotency_key")
    assert calls(simulated, model) == 0


def test_255_characters_are_one(gateway: Gateway, alice: Tenant, model: Model) -> None:
    synchronize(gateway)
    key = secrets.token_hex(128)[:255]
    assert same(send(gateway, alice, chat(model), key), send(gateway, alice, chat(model), key))


def test_without_the_field_nothing_is_kept(gateway: Gateway, alice: Tenant, model: Model) -> None:
    synchronize(gateway)
    assert gateway.chat(alice.secret, model.slug).status_code == 200
    assert not KeptAnswer.objects.filter(organization=alice.organization.pk).exists()


def kept_of(tenant: Tenant) -> int:
    """How many claims of the tenant there are."""
    return KeptAnswer.objects.filter(organization=tenant.organization.pk).count()


def test_what_is_refused_before_its_hold_is_given_back(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, model: Model
) -> None:
    budget = Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(0), hard=True)
    limit = Limit.objects.create(organization=alice.organization, measure="open", value=0)
    synchronize(gateway)
    key = word()
    assert send(gateway, alice, chat(model), key).status_code == 402
    until(lambda: kept_of(alice) == 0)
    budget.amount = Decimal(1)
    budget.save()
    synchronize(gateway)
    assert send(gateway, alice, chat(model), key).status_code == 429
    until(lambda: kept_of(alice) == 0)
    limit.value = 1
    limit.save()
    synchronize(gateway)
    unknown = chat(model) | {"model": "test/nobody-has-this"}
    assert send(gateway, alice, unknown, key).status_code == 404
    assert send(gateway, alice, chat(model, temperature="warm"), key).status_code == 400
    until(lambda: kept_of(alice) == 0)
    assert calls(simulated, model) == 0
    first = send(gateway, alice, chat(model), key)
    assert first.status_code == 200 and not replayed(first)
    assert one_charge(alice).pk.hex == first.headers["x-generation-id"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_providers_failure_is_told_again(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, stream: bool
) -> None:
    model = another(simulated, "status=500")
    synchronize(gateway)
    key = word()
    first = send(gateway, alice, chat(model, stream=stream), key)
    assert first.status_code == 502
    before = calls(simulated, model)
    again = send(gateway, alice, chat(model, stream=stream), key)
    assert same(first, again)
    assert first.json()["error"]["code"] == "upstream_error"
    assert calls(simulated, model) == before
    assert one_charge(alice).charge == 0


def test_a_stream_that_broke_off_is_told_again(gateway: Gateway, simulated: SimulatedProvider, alice: Tenant) -> None:
    model = another(simulated, "fault=fin_mid@5&text=one%20two%20three%20four%20five%20six")
    synchronize(gateway)
    key = word()
    first = send(gateway, alice, chat(model, stream=True), key)
    assert first.status_code == 200 and b'"code":"upstream_truncated"' in first.content
    before = calls(simulated, model)
    assert same(first, send(gateway, alice, chat(model, stream=True), key))
    assert calls(simulated, model) == before
    assert one_charge(alice).status == "failed"


def test_what_says_when_to_come_back_is_not_kept(gateway: Gateway, simulated: SimulatedProvider, alice: Tenant) -> None:
    model = another(simulated, "status=429&retry_after=1&fail_first=1")
    synchronize(gateway)
    key = word()
    first = send(gateway, alice, chat(model), key)
    assert first.status_code == 429 and first.headers["retry-after"]
    until(lambda: kept_of(alice) == 0)


def leave(gateway: Gateway, tenant: Tenant, simulated: SimulatedProvider, model: Model, key: str) -> None:
    """A client asks for a stream and leaves in the middle."""
    with dial(gateway) as line:
        data = httpx.Request("POST", gateway.url, json=chat(model, stream=True)).content  # the very bytes of `send`
        line.send(raw_post(tenant.secret, data, f"Idempotency-Key: {key}"))
        simulated.until(waiting=1)


@pytest.mark.parametrize("on_leave", ["drain", "finish"])
def test_who_left_picks_the_answer_up(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, on_leave: str
) -> None:
    ApiKey.objects.filter(pk=alice.key.pk).update(on_leave=on_leave)
    model = another(simulated, "hold=3&text=one%20two%20three%20four%20five")
    synchronize(gateway)
    key = word()
    leave(gateway, alice, simulated, model, key)
    until(lambda: "meterline_drains 1.0" in gateway.client.get("/metrics").text)
    body = chat(model, stream=True)
    assert send(gateway, alice, body, key).json()["error"]["code"] == "idempotency_key_in_use"
    simulated.release()
    row = one_charge(alice)
    answer = send(gateway, alice, body, key)
    assert answer.status_code == 200 and replayed(answer)
    assert answer.headers["x-generation-id"] == row.pk.hex
    said = [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: {")]
    assert "".join(piece["delta"].get("content") or "" for event in said for piece in event["choices"]) == (
        "one two three four five"
    )
    assert answer.text.rstrip().endswith("data: [DONE]")
    assert calls(simulated, model) == 1
    assert one_charge(alice).basis == "reported"


def test_who_left_with_stop_is_answered_anew(gateway: Gateway, simulated: SimulatedProvider, alice: Tenant) -> None:
    ApiKey.objects.filter(pk=alice.key.pk).update(on_leave="stop")
    model = another(simulated, "hold=3&text=one%20two%20three%20four%20five")
    synchronize(gateway)
    key = word()
    leave(gateway, alice, simulated, model, key)
    until(lambda: kept_of(alice) == 0)
    simulated.release()
    assert one_charge(alice).error == "client_left"
    body = chat(model, stream=True)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(send, gateway, alice, body, key)
        simulated.until(waiting=1)
        simulated.release()
        assert second.result().status_code == 200 and not replayed(second.result())
    assert calls(simulated, model) == 2


def test_the_sdk_that_sends_a_request_again_waits_for_its_answer(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    model = another(simulated, "hold")
    synchronize(gateway)
    key = word()

    def conflicts() -> float:
        found = re.search(r'meterline_answers_total\{status="409"\} (.+)', gateway.client.get("/metrics").text)
        return float(found[1]) if found else 0

    before = conflicts()

    def ask() -> ChatCompletion:
        with OpenAI(base_url=f"{gateway.url}/v1", api_key=alice.secret, max_retries=10) as client:
            return client.chat.completions.create(
                model=model.slug, messages=[{"role": "user", "content": "hi"}], extra_headers={"Idempotency-Key": key}
            )

    with ThreadPoolExecutor(2) as pool:
        twins = [pool.submit(ask) for _ in range(2)]
        simulated.until(waiting=1)
        until(lambda: conflicts() > before)
        simulated.release()
        first, second = (twin.result() for twin in twins)
    assert first == second
    assert calls(simulated, model) == 1
    assert one_charge(alice).pk.hex == first.id.rpartition("-")[2]


def test_a_key_that_was_revoked_is_told_nothing(gateway: Gateway, alice: Tenant, model: Model) -> None:
    synchronize(gateway)
    key = word()
    assert send(gateway, alice, chat(model), key).status_code == 200
    ApiKey.objects.filter(pk=alice.key.pk).update(revoked_at=timezone.now())
    answer = send(gateway, alice, chat(model), key)  # at once: the process may not have heard of it
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")


def test_an_answer_told_again_is_a_request_of_its_key(gateway: Gateway, alice: Tenant, model: Model) -> None:
    Limit.objects.create(organization=alice.organization, measure="requests", value=2)
    synchronize(gateway)
    key = word()
    assert send(gateway, alice, chat(model), key).status_code == 200
    statuses = [send(gateway, alice, chat(model), key).status_code for _ in range(6)]  # a minute may end among them
    assert 429 in statuses and set(statuses) == {200, 429}
    assert one_charge(alice)


def age(tenant: Tenant, **by: float) -> None:
    """Makes the tenant's answers so much older."""
    KeptAnswer.objects.filter(organization=tenant.organization.pk).update(created_at=timezone.now() - timedelta(**by))


def test_an_answer_is_kept_for_24_hours(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, model: Model
) -> None:
    synchronize(gateway)
    key = word()
    first = send(gateway, alice, chat(model), key)
    age(alice, hours=23, minutes=59)
    prune()
    assert same(first, send(gateway, alice, chat(model), key))
    age(alice, hours=24, minutes=1)
    second = send(gateway, alice, chat(model), key)
    assert second.status_code == 200 and not replayed(second)
    assert second.headers["x-generation-id"] != first.headers["x-generation-id"]
    assert calls(simulated, model) == 2
    assert same(second, send(gateway, alice, chat(model), key))


def test_what_is_old_is_purged_and_so_is_what_no_key_can_ask_for(
    gateway: Gateway, alice: Tenant, charlie: Tenant, model: Model
) -> None:
    spare, secret = make_key(charlie.project)
    synchronize(gateway)
    assert send(gateway, alice, chat(model), word()).status_code == 200
    assert send(gateway, charlie, chat(model), word(), secret=secret).status_code == 200
    assert send(gateway, charlie, chat(model), word()).status_code == 200
    KeptShare.objects.filter(organization=alice.organization.pk).update(hour=timezone.now() - timedelta(hours=26))
    age(alice, hours=24, minutes=1)
    spare.delete()
    prune()
    assert (kept_of(alice), kept_of(charlie)) == (0, 1)
    assert not KeptShare.objects.filter(organization=alice.organization.pk).exists()
    assert KeptShare.objects.filter(organization=charlie.organization.pk).exists()


def test_nothing_in_the_table_can_be_read(gateway: Gateway, simulated: SimulatedProvider, alice: Tenant) -> None:
    model = another(simulated, "text=strawberry%20marmalade")
    synchronize(gateway)
    key = word()
    body = chat(model) | {"messages": [{"role": "user", "content": "secretive pineapple"}]}
    answer = send(gateway, alice, body, key)
    assert "strawberry marmalade" in answer.text
    with database(owner_url()) as owner:
        ((row, content),) = owner.execute(
            "select k::text, content from billing_keptanswer k where organization = %s", [alice.organization.pk]
        ).fetchall()
    for said in ("strawberry", "marmalade", "secretive", "pineapple", key, "application/json", model.slug):
        for form in (said.encode(), said.encode().hex().encode()):
            assert form not in row.encode() and form not in content
    owned = KeptAnswer.objects.get(organization=alice.organization.pk)
    assert bytes(owned.content or b"") != b""
    # A copy of the row under another claim does not open.
    other = KeptAnswer.objects.create(
        **{field.name: getattr(owned, field.name) for field in KeptAnswer._meta.fields if field.name != "id"},
        id=NOBODYS,
    )
    with pytest.raises(CannotOpen):
        opened(bytes(other.content or b""), UUID(NOBODYS).hex, other.generation.hex)
    other.delete()


def test_an_answer_that_is_too_long_is_not_kept_and_says_so(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    words = secrets.token_hex(MOST_PACKED // 2 + 1000)
    said = {"choices": [{"index": 0, "message": {"content": words}, "finish_reason": "stop"}]}
    said["usage"] = {"prompt_tokens": 7, "completion_tokens": 5}  # type: ignore[assignment]
    option = simulated.script(f"long-{alice.organization.slug}", json.dumps(said).encode())
    model = make_model(make_provider(simulated.base_url), f"kept-{secrets.token_hex(4)}?{option}", max_output=100_000)
    synchronize(gateway)
    key = word()
    first = send(gateway, alice, chat(model), key)
    assert first.status_code == 200 and words in first.text
    again = send(gateway, alice, chat(model), key)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "idempotency_answer_not_kept")
    assert again.headers["x-generation-id"] == first.headers["x-generation-id"] == one_charge(alice).pk.hex
    assert again.headers["x-should-retry"] == "false"
    assert "meterline_buffered_bytes 0.0" in gateway.client.get("/metrics").text


def test_an_organization_may_have_so_much_kept(
    simulated: SimulatedProvider, tmp_path: Path, alice: Tenant, charlie: Tenant, model: Model
) -> None:
    with running(tmp_path, EGRESS_ALLOW=simulated.url, IDEMPOTENCY_ORGANIZATION_BYTES="600") as (here,):
        key = word()
        first = send(here, alice, chat(model), key)
        assert first.status_code == 200
        full = send(here, alice, chat(model), word())
        assert (full.status_code, full.json()["error"]["code"]) == (429, "idempotency_storage_full")
        assert full.headers["retry-after"] == "3600"
        assert same(first, send(here, alice, chat(model), key))
        assert here.chat(alice.secret, model.slug).status_code == 200
        assert send(here, charlie, chat(model), word()).status_code == 200
    assert calls(simulated, model) == 3


def test_a_process_that_was_killed_loses_no_money_and_its_request_is_answered_anew(
    simulated: SimulatedProvider, tmp_path: Path, alice: Tenant
) -> None:
    model = another(simulated, "hold")
    key = word()
    with running(tmp_path, 2, EGRESS_ALLOW=simulated.url) as (one, other), ThreadPoolExecutor(1) as pool:
        lost = pool.submit(send, one, alice, chat(model), key)
        simulated.until(waiting=1)
        assert send(other, alice, chat(model), key).status_code == 409
        one.kill()
        with pytest.raises(httpx.HTTPError):
            lost.result()
        simulated.release()
        until(lambda: not Hold.objects.filter(organization=alice.organization.pk).exists(), 30)
        second = pool.submit(send, other, alice, chat(model), key)
        simulated.until(waiting=1)
        simulated.release()
        answer = second.result()
        assert answer.status_code == 200 and not replayed(answer)
        assert same(answer, send(other, alice, chat(model), key))
    rows = Usage.objects.filter(organization=alice.organization.pk).order_by("pk")
    assert [(row.status, row.charge == 0) for row in rows] == [("abandoned", True), ("completed", False)]
    assert books(alice.organization).problems() == []
    assert calls(simulated, model) == 2


def test_an_answer_that_ended_while_the_database_was_away_is_kept_by_the_spool(
    simulated: SimulatedProvider, tmp_path: Path, alice: Tenant
) -> None:
    model = another(simulated, "hold")
    key = word()
    with (
        gate(app_url()) as way,
        running(tmp_path, EGRESS_ALLOW=simulated.url, DATABASE_APP_URL=way.url) as (here,),
        ThreadPoolExecutor(1) as pool,
    ):
        asking = pool.submit(send, here, alice, chat(model, stream=True), key)
        simulated.until(waiting=1)
        way.shut()
        simulated.release()
        first = asking.result()
        assert first.status_code == 200 and first.text.rstrip().endswith("[DONE]")
        away = send(here, alice, chat(model, stream=True), key)
        assert (away.status_code, away.json()["error"]["code"]) == (503, "billing_unavailable")
        way.open()
        until(lambda: KeptAnswer.objects.filter(organization=alice.organization.pk, state="done").exists(), 30)
        here.until_ready()
        assert same(first, send(here, alice, chat(model, stream=True), key))
    assert calls(simulated, model) == 1
    assert one_charge(alice).pk.hex == first.headers["x-generation-id"]


def test_what_a_restart_has_cut_off_is_answered_anew_at_once(
    simulated: SimulatedProvider, tmp_path: Path, alice: Tenant
) -> None:
    model = another(simulated, "hold=3&text=one%20two%20three%20four%20five")
    key = word()
    environment = {"EGRESS_ALLOW": simulated.url, "STOP_NOTICE_SECONDS": "0"}
    with running(tmp_path, 2, "--drain", "0", **environment) as (one, other), ThreadPoolExecutor(1) as pool:
        cut = pool.submit(send, one, alice, chat(model, stream=True), key)
        simulated.until(waiting=1)
        one.process.terminate()
        assert b'"code":"gateway_stopped"' in cut.result().content
        one.process.wait(30)
        assert kept_of(alice) == 0
        second = pool.submit(send, other, alice, chat(model, stream=True), key)
        simulated.until(waiting=1)
        simulated.release()
        assert second.result().text.rstrip().endswith("[DONE]") and not replayed(second.result())
    assert calls(simulated, model) == 2
    assert books(alice.organization).problems() == []


def test_whenever_a_process_is_killed_each_word_is_charged_once(
    simulated: SimulatedProvider, tmp_path: Path, alice: Tenant
) -> None:
    model = another(simulated, "tokens=20&pace=10ms")
    words = [word() for _ in range(90)]
    told: dict[str, httpx.Response] = {}

    def ask(gateway: Gateway, number: int) -> None:
        body = chat(model, stream=number % 2 == 0)
        try:
            answer = send(gateway, alice, body, words[number])
        except (httpx.HTTPError, RuntimeError):
            return  # its process died; its client is closed
        if answer.status_code == 200:
            told[words[number]] = answer

    def ask_until_told(number: int) -> httpx.Response:
        found: list[httpx.Response] = []

        def again() -> bool:
            found[:] = [send(other, alice, chat(model, stream=number % 2 == 0), words[number])]
            assert found[0].status_code in (200, 409, 503)
            return found[0].status_code == 200

        until(again, 40, pause=0.2)
        return found[0]

    with running(tmp_path, 2, EGRESS_ALLOW=simulated.url) as (one, other), ThreadPoolExecutor(20) as pool:
        asking = [pool.submit(ask, one, number) for number in range(len(words))]
        until(lambda: len(told) >= 25)
        one.kill()
        for asked in asking:
            asked.result()
        assert 25 <= len(told) < len(words)
        answers = list(pool.map(ask_until_told, range(len(words))))
    rows = Usage.objects.filter(organization=alice.organization.pk)
    assert {row.status for row in rows} <= {"completed", "abandoned"}
    charged = {row.pk.hex for row in rows if row.status == "completed"}
    assert {answer.headers["x-generation-id"] for answer in answers} == charged and len(charged) == len(words)
    assert all(row.charge == 0 for row in rows if row.pk.hex not in charged)
    for key, answer in zip(words, answers, strict=True):
        assert key not in told or same(told[key], answer)
    assert books(alice.organization).problems() == []
