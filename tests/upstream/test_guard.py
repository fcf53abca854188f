"""What the client will not connect to, over real sockets: the canaries see nobody, whatever is typed or
resolved."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientRequest, ClientTimeout
from yarl import URL

from gateway.upstream.client import Dial, Target, Upstream
from gateway.upstream.connection import GuardedResolver, guarded_connector, guarded_socket, verified_context
from gateway.wire.errors import UpstreamFault
from routing.base_url import BadUrl, BaseUrl, parse_base_url
from routing.egress import Egress, ForbiddenAddress
from routing.health.faults import Fault
from tests.stage.addresses import ANSWERS, FORMS, HOSTS
from tests.upstream.raw_upstream import (
    Canaries,
    RawUpstream,
    TableResolver,
    answer,
    call,
    client,
    has_ipv6,
    on_both_loops,
    says,
)


def post(base: BaseUrl, path: str = "/v1/chat/completions") -> Dial:
    return Dial(Target("POST", base, path, (), 5.0), [("Authorization", "Bearer sk-1")], b"{}")


async def forbidden(upstream: Upstream, dial: Dial) -> None:
    """The dial is refused by the guard, and the client is not told why."""
    with pytest.raises(UpstreamFault) as caught:
        await upstream.dial(dial)
    assert caught.value.kind is Fault.FORBIDDEN_ADDRESS
    assert caught.value.message == "The provider could not be reached."


@on_both_loops
async def test_no_way_of_writing_it_reaches_this_machine() -> None:
    async with Canaries() as canaries:
        names = {
            "localhost": [["127.0.0.1", "::1"]],
            "ip6-localhost": [["::1"]],
            "a.localhost": [["127.0.0.1"]],
        }
        # The port is allowed, so that it is not what saves us.
        upstream = Upstream(Egress(ports=frozenset({canaries.port})), resolver=TableResolver(names))
        tried = parsed = 0
        for host in HOSTS.split():
            for form in FORMS.split():
                tried += 1
                try:
                    base = parse_base_url(form.format(at=f"{host}:{canaries.port}"))
                except BadUrl:
                    continue
                parsed += 1
                await forbidden(upstream, post(base))
            # And as if somebody had parsed it another way.
            for scheme in ("https", "http"):
                await forbidden(upstream, post(BaseUrl(scheme, host.strip("[]"), canaries.port)))
        await upstream.close()
        assert tried > 900 and parsed > 60


@pytest.mark.parametrize("addresses", ANSWERS, ids=" ".join)
@on_both_loops
async def test_a_name_is_judged_by_all_its_addresses(addresses: list[str]) -> None:
    async with Canaries() as canaries:
        resolver = TableResolver({"api.test": [addresses]})
        upstream = Upstream(Egress(ports=frozenset({canaries.port})), resolver=resolver)
        for _ in range(3):
            await forbidden(upstream, post(BaseUrl("https", "api.test", canaries.port)))
        await upstream.close()
        assert resolver.asked == ["api.test"] * 3  # A refused answer is not kept either.


async def test_a_name_that_changes_its_mind_is_judged_again() -> None:
    inner = TableResolver({"api.test": [["8.8.8.8"], ["127.0.0.1"]]})
    resolver = GuardedResolver(inner, Egress(), listed=False)
    assert [answer["host"] for answer in await resolver.resolve("api.test", 443)] == ["8.8.8.8"]
    with pytest.raises(ForbiddenAddress):
        await resolver.resolve("api.test", 443)


@on_both_loops
async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    async with RawUpstream(says(answer())) as server:
        resolver = TableResolver({"vllm": [["127.0.0.1"], ["127.0.0.2"]]})
        upstream = Upstream(Egress(frozenset({("http", "vllm", server.port)})), resolver=resolver)
        reply = await upstream.dial(post(BaseUrl("http", "vllm", server.port)))
        assert await reply.read_all() == b"{}"
        assert resolver.asked == ["vllm"]
        assert f"\r\nHost: vllm:{server.port}\r\n".encode() in server.requests[0]
        await upstream.close()


@on_both_loops
async def test_what_is_allowed_to_a_listed_endpoint_is_allowed_to_no_other() -> None:
    async with Canaries() as canaries, RawUpstream(says(answer())) as server:
        resolver = TableResolver({"vllm": [["127.0.0.1"]], "other": [["127.0.0.1"]]})
        listed = BaseUrl("http", "vllm", server.port)
        egress = Egress(frozenset({listed.endpoint}), frozenset({server.port, canaries.port}))
        upstream = Upstream(egress, resolver=resolver)

        async def use_the_listed() -> None:
            assert await (await upstream.dial(post(listed))).read_all() == b"{}"

        for _ in range(3):  # With the name resolved, its address kept and a connection to it open.
            await use_the_listed()
            await asyncio.gather(
                use_the_listed(),
                forbidden(upstream, post(replace(listed, scheme="https"))),
                forbidden(upstream, post(BaseUrl("https", "vllm", canaries.port))),
                forbidden(upstream, post(BaseUrl("http", "vllm", canaries.port))),
                forbidden(upstream, post(BaseUrl("https", "other", server.port))),
                forbidden(upstream, post(BaseUrl("http", "127.0.0.1", server.port))),
            )
        assert len(server.requests) == 6
        await upstream.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.1"])
@pytest.mark.parametrize("scheme", ["http", "https"])
@on_both_loops
async def test_a_literal_address_that_no_resolver_sees_is_stopped_at_the_socket(scheme: str, host: str) -> None:
    async with Canaries() as canaries:
        resolver = TableResolver({})
        connector = guarded_connector(Egress(), resolver, verified_context(), listed=False)
        url = URL(f"{scheme}://{host}:{canaries.port}/")
        request = ClientRequest("POST", url, loop=asyncio.get_running_loop())
        with pytest.raises((ClientError, ForbiddenAddress)):
            await connector.connect(request, [], ClientTimeout(connect=5))
        await connector.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "fe80::1"])
def test_no_socket_is_made_for_a_forbidden_address(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    info = (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, 443))
    with pytest.raises(ForbiddenAddress):
        guarded_socket(Egress(), False, info)


def test_a_socket_keeps_itself_alive_through_a_long_silence() -> None:
    info = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("8.8.8.8", 443))
    with guarded_socket(Egress(), False, info) as sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


@on_both_loops
async def test_nothing_set_means_nothing_local_is_dialled() -> None:
    async with Canaries() as canaries:
        upstream = Upstream(Egress())
        for text in (
            "http://127.0.0.1",
            "https://127.0.0.1",
            "http://localhost",
            "https://localhost",
            "http://[::1]",
        ):
            await forbidden(upstream, post(parse_base_url(f"{text}:{canaries.port}")))
        await upstream.close()


@pytest.mark.parametrize(
    "text", ["http://api.test", "http://api.test:443", "https://api.test:22", "https://api.test:80"]
)
@on_both_loops
async def test_only_https_on_its_ports_is_dialled_even_to_the_public(text: str) -> None:
    resolver = TableResolver({"api.test": [["8.8.8.8"]]})
    upstream = Upstream(Egress(), resolver=resolver)
    await forbidden(upstream, post(parse_base_url(text)))
    await upstream.close()
    assert resolver.asked == []


@on_both_loops
async def test_a_listed_address_is_dialled() -> None:
    for host in ["127.0.0.1"] + (["::1"] if has_ipv6() else []):
        async with RawUpstream(says(answer()), host=host) as server:
            base = BaseUrl("http", host, server.port, "/v1")
            upstream = Upstream(Egress(frozenset({base.endpoint})))
            assert await (await upstream.dial(post(base, "/chat"))).read_all() == b"{}"
            assert server.requests[0].startswith(f"POST /v1/chat HTTP/1.1\r\nHost: {base.authority}\r\n".encode())
            await upstream.close()


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
@pytest.mark.parametrize(
    "location", ["http://127.0.0.2:{port}/", "https://127.0.0.1:{port}/", "//[::1]:{port}/", "/v2"]
)
@on_both_loops
async def test_a_redirect_is_an_answer_like_any_other(status: str, location: str) -> None:
    async with Canaries() as canaries:
        refresh = b'<meta http-equiv="refresh" content="0;url=http://127.0.0.1/">'
        said = answer(refresh, "Location: " + location.format(port=canaries.port), status=status)
        async with RawUpstream(says(said)) as server, client(server) as upstream:
            reply = await upstream.dial(call(server))
            assert (reply.status, await reply.read_all()) == (int(status[:3]), refresh)
            assert len(server.requests) == 1  # Neither the body nor the key went out again.


@on_both_loops
async def test_the_environment_sets_neither_proxy_nor_password(tmp_path: Path) -> None:
    async with Canaries() as canaries, RawUpstream(says(answer())) as server:
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login eve password secret\ndefault login eve password secret\n")
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("NETRC", str(netrc))
            for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                environment.setenv(name, f"http://127.0.0.2:{canaries.port}")
            environment.delenv("NO_PROXY", raising=False)
            environment.delenv("no_proxy", raising=False)
            async with client(server) as upstream:
                reply = await upstream.dial(call(server, headers=()))
                assert await reply.read_all() == b"{}"
        assert b"uthorization" not in server.requests[0]


@pytest.mark.parametrize(
    "path", ["/../admin", "/a/%2e%2e/b", "/a%2fb", "/a//b", "/a\\..\\b", "/a b", "/a\r\nX: 1", "a", ""]
)
@on_both_loops
async def test_a_path_that_leaves_its_base_is_not_dialled(path: str) -> None:
    async with RawUpstream(says(answer())) as server, client(server) as upstream:
        await forbidden(upstream, call(server, path))
        assert server.connections == 0


@pytest.mark.parametrize("answers", [{}, {"api.test": [[]]}], ids=["no such name", "no address"])
@on_both_loops
async def test_a_name_without_an_address_is_unreachable(answers: dict[str, list[list[str]]]) -> None:
    upstream = Upstream(Egress(), resolver=TableResolver(answers))
    with pytest.raises(UpstreamFault) as caught:
        await upstream.dial(post(BaseUrl("https", "api.test", 443)))
    assert caught.value.kind is Fault.UNREACHABLE
    await upstream.close()
