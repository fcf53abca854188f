"""Requests that come before the answers to those before them: all are answered, in order, and few wait in memory."""

import json
import socket
import struct
from pathlib import Path

from billing.models import Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize, until
from tests.stage.raw import CHAT, chat, dial, head, post
from tests.stage.shelf import make_model, make_provider

MIB = 1 << 20
PROBE = head("GET /healthz")


def resident(gateway: Gateway) -> int:
    """Bytes of memory that the process has."""
    return int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1]) * 4096


def test_many_requests_at_once_are_all_answered_in_order(gateway: Gateway, alice: Tenant) -> None:
    models = head("GET /v1/models/none", f"Authorization: Bearer {alice.secret}")
    with dial(gateway) as line:
        line.send((PROBE + models + head("GET /none")) * 300)
        for _ in range(300):
            assert line.answer().json == {"status": "ok"}
            assert line.answer().code == "model_not_found"
            assert line.answer().status == 404
        assert line.buffer == b""
        line.send(PROBE)
        assert line.answer().status == 200


def test_bodies_of_every_size_may_wait(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    slug = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=5").slug
    synchronize(gateway)
    sizes = [1, 900, 1100, 5000, 70_000, 300_000, 2_000_000]
    texts = [("w " * n)[:n] for n in sizes]  # in words, three of which come back
    requests = [chat(alice.secret, slug, user="u", messages=[{"role": "user", "content": text}]) for text in texts]
    chunked = head(f"POST {CHAT}", f"Authorization: Bearer {alice.secret}", "Transfer-Encoding: chunked")
    requests.append(chunked + b"1\r\n{\r\n" + b"1\r\n}\r\n" * 2000 + b"0\r\n\r\n")
    with dial(gateway) as line:
        line.send(b"".join(requests) + PROBE)
        assert [line.answer().status for _ in sizes] == [200] * len(sizes)
        assert line.answer().code == "invalid_json"
        assert line.answer().json == {"status": "ok"}


def test_who_sends_and_does_not_read_costs_little(gateway: Gateway) -> None:
    """27 MB of requests nobody reads the answers to once took 2 GB. Reading stops instead."""
    before = resident(gateway)
    flood, sent = PROBE * (MIB // len(PROBE)), 0
    with dial(gateway) as line:
        line.socket.settimeout(2)
        try:
            while sent < 27 * MIB:
                sent += line.socket.send(flood)
        except TimeoutError:
            pass  # nothing more is read: that is what is promised
        assert resident(gateway) - before < 24 * MIB
        assert gateway.client.get("/healthz").status_code == 200
    assert sent < 27 * MIB


def test_what_waits_is_never_begun_when_its_client_has_left(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    slug = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&hold").slug
    synchronize(gateway)
    with dial(gateway) as line:
        line.send(chat(alice.secret, slug, user="first", stream=True))
        simulated.until(waiting=1)
        line.send(chat(alice.secret, slug, user="second") * 40)
        line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no farewell
    simulated.release()
    until(lambda: Usage.objects.filter(model=slug).count() == 1)
    assert gateway.client.get("/healthz").status_code == 200
    assert Usage.objects.filter(model=slug).count() == 1


def test_a_head_that_is_cut_after_a_large_body_is_answered(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    """What is read in one go may end in the next request's head: the body before it does not count as head."""
    slug = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=5").slug
    synchronize(gateway)
    body = json.dumps({"model": slug, "messages": [{"role": "user", "content": "w" * 200_000}]}).encode()
    with dial(gateway) as line:
        for end in (5, 20, len(PROBE) - 2):
            line.send(post(alice.secret, body) + PROBE[:end])
            assert line.answer().status == 200
            line.send(PROBE[end:])
            assert line.answer().json == {"status": "ok"}


def test_who_is_behind_a_broken_request_does_not_break_the_one_before(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    slug = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=5&first=300ms").slug
    synchronize(gateway)
    chunked = head(f"POST {CHAT}", f"Authorization: Bearer {alice.secret}", "Transfer-Encoding: chunked")
    for broken in (b"NO HTTP\r\n\r\n", chunked + b"zz\r\n", head("GET /" + "a" * 70_000)):
        with dial(gateway) as line:
            line.send(chat(alice.secret, slug, user=broken[:4].decode()) + broken)
            assert line.answer().status == 200
            assert line.rest() in (b"",) or b"malformed" in line.buffer
    assert Usage.objects.filter(model=slug, status="completed").count() == 3
