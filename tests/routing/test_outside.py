"""The client for what is dialled beside inference, over real sockets: it goes where the dialler's guard lets it, and
what the other side does costs a bounded time and a bounded memory.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from billing.models import BillFetch, BillPage, BillSource
from gateway.upstream import connection as dialler
from routing import outside
from routing.base_url import BadUrl, parse_base_url
from routing.bills import fetching
from routing.egress import Egress, ForbiddenAddress, parse_allow
from routing.outside import AddressInfo, Answer, NoAnswer, Outside
from routing.starter.fetching import get
from routing.starter.published import BadList
from tests.stage.addresses import ANSWERS, FORBIDDEN, FORMS, HOSTS, PUBLIC
from tests.upstream.authority import Authority
from tests.upstream.raw_upstream import Canaries, Peer, RawUpstream, answer, chunk, has_ipv6, says

SOCKETS: dict[str, Callable[[Egress, bool, Any], socket.socket]] = {
    "dialler": dialler.guarded_socket,
    "outside": outside.guarded_socket,
}


def info(address: str, port: int = 443) -> AddressInfo:
    """An address as a resolver gives it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)


class Names:
    """A resolver: for each name a list of answers, one used up a question, the last for ever."""

    def __init__(self, **table: list[list[str]]) -> None:
        self._table = table
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> Iterable[AddressInfo]:
        self.asked.append(host)
        answers = self._table.get(host.partition(".")[0])
        if answers is None:  # what is an address already needs no table
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [info(address, port) for address in addresses]


def to(server: RawUpstream, host: str = "127.0.0.1", **options: Any) -> Outside:
    """A client that may dial this server and nothing else."""
    return Outside(Egress(parse_allow([f"http://{host}:{server.port}"])), **options)


async def ask(client: Outside, url: str, method: str = "POST", **options: Any) -> Answer:
    """`client.ask`, in a thread."""
    return await asyncio.to_thread(client.ask, method, url, **options)


async def no_answer(client: Outside, url: str, **options: Any) -> str:
    """What it says where no answer comes."""
    with pytest.raises(NoAnswer) as caught:
        await ask(client, url, **options)
    return str(caught.value)


# --- where it goes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", SOCKETS)
def test_the_dialler_and_this_client_make_sockets_for_the_same_addresses(who: str) -> None:
    make = SOCKETS[who]
    for address in FORBIDDEN.split():
        with pytest.raises(ForbiddenAddress):
            make(Egress(), False, info(address))
    for address in PUBLIC.split():
        if ":" not in address or has_ipv6():
            make(Egress(), False, info(address)).close()
    for address in ("127.0.0.1", "10.0.0.1"):
        make(Egress(), True, info(address)).close()
    for address in ("0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "fe80::1%lo"):
        with pytest.raises(ForbiddenAddress):
            make(Egress(), True, info(address))


def price_list(client: Outside) -> bytes:
    """Fetches a price list."""
    return get(client, "https://api.test/data.json")


def bill(client: Outside) -> bytes:
    """Fetches a page of a bill."""
    source = BillSource(provider="vendor", form="openai", endpoint="https://api.test/v1")
    source.put("sk-admin")
    fetch = BillFetch(source=source, first=date(2026, 10, 1), last=date(2026, 10, 2))
    return fetching.page_of(fetch, BillPage.Part.USAGE, "", client, 1000)


@pytest.mark.parametrize("fetch", [price_list, bill])
def test_what_is_fetched_is_fetched_from_the_same_addresses(fetch: Callable[[Outside], bytes]) -> None:
    """As webhooks and storage, price lists and bills have no other client than this one."""
    for address in FORBIDDEN.split():
        names = Names(api=[[address]])
        with pytest.raises((BadList, fetching.Refused), match="may not be dialled"):
            fetch(Outside(Egress(), resolve=names))
        assert names.asked == ["api.test"]
    for addresses in ANSWERS:
        with pytest.raises((BadList, fetching.Refused), match="may not be dialled"):
            fetch(Outside(Egress(), resolve=Names(api=[addresses])))


async def test_no_way_of_writing_it_reaches_this_machine() -> None:
    async with Canaries() as canaries:
        names = Names(**{"localhost": [["127.0.0.1", "::1"]], "a": [["127.0.0.1"]], "ip6-localhost": [["::1"]]})
        # The port is allowed, so that it is not what saves us.
        client = Outside(Egress(ports=frozenset({canaries.port})), resolve=names)
        refused = 0
        for host in HOSTS.split():
            for form in FORMS.split():
                url = form.format(at=f"{host}:{canaries.port}")
                with pytest.raises((BadUrl, ForbiddenAddress)) as caught:
                    client.ask("POST", url)
                refused += caught.type is ForbiddenAddress
        assert refused > 60


@pytest.mark.parametrize("addresses", ANSWERS, ids=" ".join)
async def test_a_name_is_judged_by_all_its_addresses(addresses: list[str]) -> None:
    async with Canaries() as canaries:
        names = Names(api=[addresses])
        client = Outside(Egress(ports=frozenset({canaries.port})), resolve=names)
        with pytest.raises(ForbiddenAddress):
            await ask(client, f"https://api.test:{canaries.port}/hook")
        assert names.asked == ["api.test"]


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    async with Canaries(), RawUpstream(says(answer())) as server:
        names = Names(hook=[["127.0.0.1"], ["127.0.0.2"]])
        client = to(server, "hook", resolve=names)
        assert (await ask(client, f"http://hook:{server.port}/a/b/", content=b"{}")).body == b"{}"
        assert names.asked == ["hook"]
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /a/b/ HTTP/1.1\r\n") and body == b"{}"
        assert f"\r\nHost: hook:{server.port}\r\n".encode() in head


async def test_an_address_that_refuses_is_followed_by_the_next() -> None:
    async with RawUpstream(says(answer())) as server:
        names = Names(hook=[["127.0.0.3", "127.0.0.1"]])
        assert (await ask(to(server, "hook", resolve=names), f"http://hook:{server.port}")).status == 200
        assert server.requests[0].startswith(b"POST / HTTP/1.1\r\n")


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
async def test_a_listed_ipv6_address_is_dialled() -> None:
    async with RawUpstream(says(answer()), host="::1") as server:
        assert (await ask(to(server, "[::1]"), f"http://[::1]:{server.port}/hook")).status == 200
        assert f"\r\nHost: [::1]:{server.port}\r\n".encode() in server.requests[0]


async def test_what_is_allowed_to_a_listed_endpoint_is_allowed_to_no_other() -> None:
    async with Canaries() as canaries, RawUpstream(says(answer())) as server:
        client = to(server)
        assert (await ask(client, f"http://127.0.0.1:{server.port}/v1")).status == 200
        for url in (
            f"https://127.0.0.1:{server.port}/v1",
            f"http://127.0.0.2:{server.port}/v1",
            f"http://127.0.0.1:{canaries.port}/v1",
            "http://api.test/v1",
            "https://api.test:22/v1",
        ):
            with pytest.raises(ForbiddenAddress):
                await ask(client, url)
        assert server.connections == 1


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_an_answer_like_any_other(status: str) -> None:
    async with Canaries() as canaries:
        for location in (f"http://127.0.0.1:{canaries.port}/", f"//[::1]:{canaries.port}/", "/v2"):
            said = answer(b"moved", f"Location: {location}", status=status)
            async with RawUpstream(says(said)) as server:
                got = await ask(to(server), f"http://127.0.0.1:{server.port}/hook", content=b"{}")
                assert (got.status, got.body) == (int(status[:3]), b"moved")
                assert len(server.requests) == 1


async def test_the_environment_sets_neither_proxy_nor_password(tmp_path: Path) -> None:
    async with Canaries() as canaries, RawUpstream(says(answer())) as server:
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login eve password secret\n")
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("NETRC", str(netrc))
            for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                environment.setenv(name, f"http://127.0.0.2:{canaries.port}")
            await ask(to(server), f"http://127.0.0.1:{server.port}/hook")
        assert b"uthorization" not in server.requests[0]


async def test_a_certificate_counts_and_so_does_the_name_in_it(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path), Authority(tmp_path)
    names = Names(hook=[["127.0.0.1"]])
    for context, name, works in (
        (ours.serving("hook.test"), "hook.test", True),
        (ours.serving("other.test"), "hook.test", False),
        (ours.serving("hook.test", days=-1), "hook.test", False),
        (others.serving("hook.test"), "hook.test", False),
    ):
        async with RawUpstream(says(answer()), context=context) as server:
            egress = Egress(parse_allow([f"https://{name}:{server.port}"]))
            client = Outside(egress, resolve=names, ssl_context=ours.trusting())
            url = f"https://{name}:{server.port}/hook"
            if works:
                assert (await ask(client, url)).status == 200
            else:
                assert "certificate verify failed" in await no_answer(client, url)
            assert len(server.requests) == works


# --- what the other side does ---------------------------------------------------------------------------------------


async def test_a_query_is_encoded_and_a_header_sent() -> None:
    async with RawUpstream(says(answer())) as server:
        url = f"http://127.0.0.1:{server.port}/v1/costs"
        await ask(to(server), url, "GET", query=[("from", "2026-11-01"), ("a b", "c&d/é")], headers={"X-Key": "k"})
        head = server.requests[0]
        assert head.startswith(b"GET /v1/costs?from=2026-11-01&a%20b=c%26d%2F%C3%A9 HTTP/1.1\r\n")
        assert b"\r\nX-Key: k\r\n" in head and b"\r\naccept-encoding: identity\r\n" in head


async def test_an_answer_is_read_to_its_bound_and_no_further() -> None:
    async def pours(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await peer.pour(chunk(b"x" * 65536))

    async with RawUpstream(pours) as server:
        url = f"http://127.0.0.1:{server.port}/hook"
        assert await no_answer(to(server), url, most_bytes=100_000) == "the answer is longer than 100,000 bytes"
    async with RawUpstream(says(answer(b"x" * 1000))) as server:
        url = f"http://127.0.0.1:{server.port}/hook"
        assert len((await ask(to(server), url, most_bytes=1000)).body) == 1000
        assert "longer" in await no_answer(to(server), url, most_bytes=999)


async def test_what_is_compressed_is_not_unpacked() -> None:
    async with RawUpstream(says(answer(b"\x1f\x8b...", "Content-Encoding: gzip"))) as server:
        assert (await ask(to(server), f"http://127.0.0.1:{server.port}/hook")).body == b"\x1f\x8b..."


async def drips(peer: Peer, before: bytes, drop: bytes) -> None:
    """Sends `before`, and then a drop again and again, each well within any timeout of its own."""
    await peer.request()
    await peer.send(before)
    while True:
        await peer.send(drop)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("before", "drop"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\n", b"X: 1\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["silence", "headers", "interim answers", "a body"],
)
async def test_one_deadline_bounds_all_of_it(before: bytes, drop: bytes) -> None:
    async with RawUpstream(lambda peer: drips(peer, before, drop)) as server:
        began = time.monotonic()
        said = await no_answer(to(server), f"http://127.0.0.1:{server.port}/hook", seconds=0.3)
        assert said == "no answer within 0.3 s"
        assert time.monotonic() - began < 5


async def test_a_handshake_that_never_ends_ends_at_the_deadline() -> None:
    async def holds(peer: Peer) -> None:
        await peer.left()

    async with RawUpstream(holds) as server:
        client = Outside(Egress(parse_allow([f"https://127.0.0.1:{server.port}"])))
        assert "within 0.3 s" in await no_answer(client, f"https://127.0.0.1:{server.port}/hook", seconds=0.3)


async def test_what_is_not_read_is_not_sent_for_ever() -> None:
    async def holds(peer: Peer) -> None:
        await peer.head()
        await asyncio.Event().wait()

    async with RawUpstream(holds) as server:
        url = f"http://127.0.0.1:{server.port}/hook"
        said = await no_answer(to(server), url, content=bytes(32 << 20), seconds=0.3)
        assert said == "no answer within 0.3 s"


def test_a_name_that_is_looked_up_for_ever_ends_at_the_deadline() -> None:
    answered = threading.Event()

    def slow(host: str, port: int) -> Iterable[AddressInfo]:
        answered.wait(60)
        return []

    try:
        with pytest.raises(NoAnswer, match=r"no answer within 0\.3 s"):
            Outside(Egress(), resolve=slow).ask("POST", "https://api.test/hook", seconds=0.3)
    finally:
        answered.set()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\n", b"hello\r\n\r\n", answer(b"abc")[:-1]])
async def test_what_breaks_off_or_is_not_http_is_no_answer(said: bytes) -> None:
    async with RawUpstream(says(said, then=Peer.close)) as server:
        assert await no_answer(to(server), f"http://127.0.0.1:{server.port}/hook")


async def test_where_nobody_listens_or_no_name_is_there_is_no_answer() -> None:
    async with RawUpstream(says(answer())) as server:
        pass
    assert "not connected" in await no_answer(to(server), f"http://127.0.0.1:{server.port}/hook")

    def nobody(host: str, port: int) -> Iterable[AddressInfo]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    said = await no_answer(Outside(Egress(), resolve=nobody), "https://api.test/hook")
    assert said == "api.test: no such name"


def test_a_url_is_read_as_the_dialler_reads_it() -> None:
    for url in ("https://api.test/a?b=c", "https://api.test/%2e%2e/x", "https://user@api.test", "https://api.test/a b"):
        with pytest.raises(BadUrl):
            parse_base_url(url)
        with pytest.raises(BadUrl):
            Outside(Egress()).ask("GET", url)
