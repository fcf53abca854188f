"""A certificate authority for tests of TLS."""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


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

    @property
    def certificate(self) -> bytes:
        """Its own certificate, as PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def trusting(self) -> ssl.SSLContext:
        """A client's context that trusts this authority alone."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.certificate.decode())
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
