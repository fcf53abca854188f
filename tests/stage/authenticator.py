"""A device with a passkey, in software: it signs what it is asked to, as honestly as it is told (WebAuthn level 2)."""

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from fido2.cose import ES256
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData

FLAG = AuthenticatorData.FLAG
PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


@dataclass
class Authenticator:
    """One passkey, once it is made. `flags` are what it says of its holder; `count` is how often it has signed."""

    origin: str = "http://testserver"
    host: str = "testserver"
    flags: int = PRESENT | VERIFIED
    count: int = 0
    id: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    handle: bytes | None = None
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def make(self, options: dict[str, Any]) -> str:
        """The answer to `navigator.credentials.create`, as JSON."""
        asked = options["publicKey"]
        self.handle = websafe_decode(asked["user"]["id"])
        attested = AttestedCredentialData.create(
            b"\0" * 16,
            self.id,
            ES256.from_cryptography_key(self.key.public_key()),  # type: ignore[no-untyped-call]
        )
        data = AuthenticatorData.create(self._host(), FLAG(self.flags | ATTESTED), self.count, attested)
        return self._answer(
            {
                "clientDataJSON": websafe_encode(self._client("webauthn.create", asked["challenge"])),
                "attestationObject": websafe_encode(AttestationObject.create("none", data, {})),
            }
        )

    def sign(self, options: dict[str, Any]) -> str:
        """The answer to `navigator.credentials.get`, as JSON."""
        client = self._client("webauthn.get", options["publicKey"]["challenge"])
        data = AuthenticatorData.create(self._host(), FLAG(self.flags), self.count)
        signature = self.key.sign(bytes(data) + hashlib.sha256(client).digest(), ec.ECDSA(SHA256()))
        return self._answer(
            {
                "clientDataJSON": websafe_encode(client),
                "authenticatorData": websafe_encode(bytes(data)),
                "signature": websafe_encode(signature),
                "userHandle": websafe_encode(self.handle) if self.handle is not None else None,
            }
        )

    def _host(self) -> bytes:
        return hashlib.sha256(self.host.encode()).digest()

    def _client(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin}).encode()

    def _answer(self, response: dict[str, Any]) -> str:
        name = websafe_encode(self.id)
        words = {name: value for name, value in response.items() if value is not None}
        return json.dumps(
            {"id": name, "rawId": name, "type": "public-key", "response": words, "clientExtensionResults": {}}
        )
