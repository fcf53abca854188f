"""The client over TLS: who cannot prove to be the name we asked for is told nothing, and nothing goes out
in plain."""

import asyncio
import datetime
import ipaddress
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.egress import Egress
from gateway.errors import Fault, UpstreamFault
from gateway.upstream import Dial, Upstream
from routing.base_url import BaseUrl
from tests.raw_upstream import PATIENCE, Peer, RawUpstream, TableResolver, answer, on_both_loops, says


def post(server: RawUpstream) -> Dial:
    base = BaseUrl("https", "api.test", server.port)
    return Dial("POST", base, "/v1/chat/completions", [("Authorization", "Bearer sk-1")], b"{}", 5.0)


class Authority:
    """A certificate authority for one test, its files under `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test Authority")])
        self._certificate = (
            self._builder(self._name, self._key, days=1)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def trusting(self) -> ssl.SSLContext:
        """A client's context that trusts this authority alone."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self._certificate.public_bytes(serialization.Encoding.PEM).decode())
        return context

    def serving(self, *names: str, days: int = 1) -> ssl.SSLContext:
        """A server's context for `names`; with negative `days` its certificate has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        alternatives = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address(n)) if n[0].isdigit() else x509.DNSName(n) for n in names]
        )
        builder = self._builder(subject, key, days=days).add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        path = self._folder / f"{names[0]}{days}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - datetime.timedelta(days=30))
            .not_valid_after(end)
        )


def tls_client(server: RawUpstream, context: ssl.SSLContext | None) -> Upstream:
    """A client that finds the server under the name api.test, which it lists."""
    egress = Egress(frozenset({("https", "api.test", server.port)}))
    return Upstream(egress, resolver=TableResolver({"api.test": [["127.0.0.1"]]}), ssl_context=context)


@on_both_loops
async def test_https_works_and_asks_for_the_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    asked: list[str | None] = []
    context = authority.serving("api.test")
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    async with RawUpstream(says(answer()), context=context) as server:
        upstream = tls_client(server, authority.trusting())
        for _ in range(2):
            assert await (await upstream.dial(post(server))).read_all() == b"{}"
        assert (asked, server.connections) == (["api.test"], 1)
        await upstream.close()


@pytest.mark.parametrize("fault", ["expired", "another name", "unknown authority", "no TLS"])
@on_both_loops
async def test_a_server_that_cannot_prove_itself_is_unreachable_and_told_nothing(tmp_path: Path, fault: str) -> None:
    authority = Authority(tmp_path)
    context = {
        "expired": authority.serving("api.test", days=-1),
        "another name": authority.serving("127.0.0.1", "evil.test"),
        "unknown authority": authority.serving("api.test"),
        "no TLS": None,
    }[fault]
    heard: list[bytes] = []

    async def script(peer: Peer) -> None:
        if context is None:
            await peer.send(answer(b"plain"))
            heard.append(b"%d" % await peer.left())
        else:
            heard.append(await peer.request())

    async with RawUpstream(script, context=context) as server:
        trusted = None if fault == "unknown authority" else authority.trusting()
        upstream = tls_client(server, trusted)
        with pytest.raises(UpstreamFault) as caught:
            await upstream.dial(post(server))
        assert caught.value.kind is Fault.UNREACHABLE
        await upstream.close()
        assert server.requests == [] and b"".join(heard).isdigit() is (context is None and heard != [])


@on_both_loops
async def test_a_server_that_stays_silent_in_the_handshake_is_a_timeout() -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.left()
        gone.set()

    async with RawUpstream(script) as server:
        upstream = tls_client(server, None)
        with pytest.raises(UpstreamFault) as caught:
            await upstream.dial(replace(post(server), connect_timeout=0.2))
        assert caught.value.kind is Fault.TIMEOUT
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
        await upstream.close()


@on_both_loops
async def test_a_cancelled_dial_over_tls_waits_for_no_farewell(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await peer.left()
        gone.set()

    async with RawUpstream(script, context=authority.serving("api.test")) as server:
        upstream = tls_client(server, authority.trusting())
        task = asyncio.create_task(upstream.dial(post(server)))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
        await upstream.close()
