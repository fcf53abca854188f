"""Tokens of service accounts over real sockets: asked for once, kept, renewed in time, and told when there is none."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

import pytest

from gateway.upstream.client import Upstream
from gateway.upstream.tokens import MOST_KEPT, RENEWAL_REST, Tokens
from gateway.wire.errors import UpstreamFault
from routing.egress import Egress
from routing.health.faults import Fault
from tests.stage.accounts import document
from tests.upstream.raw_upstream import Peer, RawUpstream, answer, client, on_both_loops, says


class Clock:
    """Seconds, as a test has them."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def token(value: str, seconds: float = 3600) -> bytes:
    return answer(json.dumps({"access_token": value, "expires_in": seconds, "token_type": "Bearer"}).encode())


class Endpoint:
    """Answers one request after the other, the last answer for ever; it waits while it is `closed`."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.open = asyncio.Event()
        self.open.set()
        self.asked = asyncio.Semaphore(0)

    async def __call__(self, peer: Peer) -> None:
        while await peer.request():
            self.asked.release()
            await self.open.wait()
            await peer.send(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])


@asynccontextmanager
async def tokens(upstream: Upstream, clock: Clock, most: int = MOST_KEPT) -> AsyncIterator[Tokens]:
    made = Tokens(upstream, clock, most=most)
    try:
        yield made
    finally:
        await made.close()


def key(server: RawUpstream, id: str = "k1") -> str:
    return document(token_uri=f"http://127.0.0.1:{server.port}/token", private_key_id=id)


async def failure(tokens: Tokens, key: str) -> UpstreamFault:
    with pytest.raises(UpstreamFault) as caught:
        await tokens.get(key)
    assert not caught.value.sent  # the provider has heard nothing
    return caught.value


async def until_over(tokens: Tokens) -> None:
    """What is asked for has been answered."""
    await asyncio.wait([*tokens._asked.values()])


@on_both_loops
async def test_a_token_is_asked_for_as_google_wants_it_and_kept() -> None:
    async with (
        RawUpstream(says(token("ya29.a"))) as server,
        client(server) as upstream,
        tokens(upstream, Clock()) as made,
    ):
        assert [await made.get(key(server)) for _ in range(3)] == ["ya29.a"] * 3
        (request,) = server.requests
        head, _, body = request.decode().partition("\r\n\r\n")
        assert head.startswith(f"POST /token HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n")
        assert "Content-Type: application/x-www-form-urlencoded\r\n" in head
        assert parse_qs(body)["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]


@on_both_loops
async def test_one_request_serves_all_that_wait_and_goes_on_when_they_leave() -> None:
    endpoint = Endpoint(token("ya29.a"))
    async with RawUpstream(endpoint) as server, client(server) as upstream, tokens(upstream, Clock()) as made:
        endpoint.open.clear()
        waiting = [asyncio.create_task(made.get(key(server))) for _ in range(200)]
        await endpoint.asked.acquire()
        for task in waiting[:150]:
            task.cancel()
        await asyncio.wait(waiting[:150])
        endpoint.open.set()
        assert await asyncio.gather(*waiting[150:]) == ["ya29.a"] * 50
        assert await made.get(key(server)) == "ya29.a"
        assert len(server.requests) == 1


@on_both_loops
async def test_it_is_renewed_before_its_end_and_nobody_waits() -> None:
    clock, endpoint = Clock(), Endpoint(token("ya29.a"), token("ya29.b"))
    async with RawUpstream(endpoint) as server, client(server) as upstream, tokens(upstream, clock) as made:
        assert await made.get(key(server)) == "ya29.a"
        clock.now += 3299
        assert await made.get(key(server)) == "ya29.a" and len(server.requests) == 1
        clock.now += 1
        endpoint.open.clear()
        assert [await made.get(key(server)) for _ in range(50)] == ["ya29.a"] * 50
        await endpoint.asked.acquire()
        await endpoint.asked.acquire()
        endpoint.open.set()
        await until_over(made)
        assert await made.get(key(server)) == "ya29.b" and len(server.requests) == 2


@on_both_loops
async def test_a_renewal_that_fails_is_tried_again_after_a_while_and_the_token_used_to_its_end() -> None:
    clock, endpoint = Clock(), Endpoint(token("ya29.a"), answer(b"", status="503 Busy"))
    async with RawUpstream(endpoint) as server, client(server) as upstream, tokens(upstream, clock) as made:
        assert await made.get(key(server)) == "ya29.a"
        clock.now += 3400
        for renewal in (2, 3):
            assert await made.get(key(server)) == "ya29.a"
            await until_over(made)
            assert await made.get(key(server)) == "ya29.a"
            assert len(server.requests) == renewal and not made._asked
            clock.now += RENEWAL_REST
        clock.now = 1_000 + 3540
        fault = await failure(made, key(server))
        assert (fault.kind, fault.upstream_status) == (Fault.OVERLOADED, 503)


@on_both_loops
async def test_one_that_a_provider_refused_is_not_used_again() -> None:
    endpoint = Endpoint(token("ya29.a"), token("ya29.b"))
    async with RawUpstream(endpoint) as server, client(server) as upstream, tokens(upstream, Clock()) as made:
        assert await made.get(key(server)) == "ya29.a"
        made.refused(key(server), "ya29.a")
        assert await made.get(key(server)) == "ya29.b"
        made.refused(key(server), "ya29.a")  # told late, by a request that had the first one
        assert await made.get(key(server)) == "ya29.b"
        assert len(server.requests) == 2


@on_both_loops
async def test_the_operator_is_told_why_there_is_none_and_never_the_key() -> None:
    said = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
    cases = [
        (answer(json.dumps(said).encode(), status="400 Bad"), Fault.AUTH, "status 400: invalid_grant: Invalid JWT Sig"),
        (answer(b"<html>", status="403 No"), Fault.AUTH, "status 403: without a reason"),
        (answer(b"", status="429 Slow"), Fault.RATE_LIMITED, "status 429"),
        (answer(b"", status="500 Oh"), Fault.SERVER_ERROR, "status 500"),
        (answer(b"{}"), Fault.INVALID_RESPONSE, "the answer is no token"),
        (answer(b"x" * 70_000), Fault.INVALID_RESPONSE, "the body is longer than 65536 bytes"),
    ]
    for told, kind, words in cases:
        async with RawUpstream(says(told)) as server, client(server) as upstream, tokens(upstream, Clock()) as made:
            faults = await asyncio.gather(*(failure(made, key(server)) for _ in range(3)))
            assert len(server.requests) == 1 and len({id(fault) for fault in faults}) == 3
            for fault in faults:
                assert fault.kind is kind
                assert fault.detail.startswith(
                    "no token for meter@project.iam.gserviceaccount.com (key k1) from "
                    f"http://127.0.0.1:{server.port}/token: {words}"
                )


@on_both_loops
async def test_what_was_sent_is_not_heard_back() -> None:
    async def echoes(peer: Peer) -> None:
        body = (await peer.request()).partition(b"\r\n\r\n")[2].decode()
        error = {"error": "invalid_grant", "error_description": parse_qs(body)["assertion"][0][-100:]}
        await peer.send(answer(json.dumps(error).encode(), status="400 Bad"))
        await peer.left()

    async with RawUpstream(echoes) as server, client(server) as upstream, tokens(upstream, Clock()) as made:
        detail = (await failure(made, key(server))).detail
        (request,) = server.requests
        assertion = parse_qs(request.partition(b"\r\n\r\n")[2].decode())["assertion"][0]
        assert detail.endswith(f"{assertion[-100:-64]}[key]")


@on_both_loops
async def test_an_endpoint_that_may_not_be_dialled_is_not() -> None:
    async with RawUpstream(says(token("ya29.a"))) as server:
        upstream = Upstream(Egress())
        try:
            async with tokens(upstream, Clock()) as made:
                fault = await failure(made, key(server))
                assert fault.kind is Fault.FORBIDDEN_ADDRESS
                assert "only https is dialled" in fault.detail
                fault = await failure(made, document(token_uri="https://169.254.169.254/token"))
                assert fault.kind is Fault.FORBIDDEN_ADDRESS
                fault = await failure(made, "no key at all")
                assert (fault.kind, fault.detail) == (
                    Fault.AUTH,
                    "a service account's key is the whole JSON document of it, from { to }",
                )
        finally:
            await upstream.close()
        assert server.connections == 0


@on_both_loops
async def test_only_so_many_are_kept() -> None:
    clock = Clock()
    async with (
        RawUpstream(says(token("ya29.a"))) as server,
        client(server) as upstream,
        tokens(upstream, clock, most=2) as made,
    ):
        for number in range(4):
            await made.get(key(server, f"k{number}"))
        assert list(made._kept) == [key(server, "k2"), key(server, "k3")]
        await made.get(key(server, "k2"))
        assert len(server.requests) == 4
        clock.now += 3600
        await made.get(key(server, "k4"))
        assert list(made._kept) == [key(server, "k4")]
