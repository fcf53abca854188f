"""The token that a Google service account's key is changed into (RFC 7523): what is sent for it, and what comes back.

A key is the JSON document that Google hands out. It signs a statement with RS256; the token endpoint that the key names
gives a bearer token for it, which lives an hour. No I/O here: the caller posts `Request` and reads the answer.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlencode

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LIFETIME = 3600  # seconds that a statement holds, which is the most that is allowed
EARLY = 300  # seconds before its end a token is not used any more

_dumps = msgspec.json.Encoder().encode


class UnusableKey(ValueError):
    """The secret is no service account's key. The message never holds it."""


class NoToken(ValueError):
    """What came back holds no token."""


class ServiceAccount(msgspec.Struct, frozen=True):
    """The fields of a key that matter; `token_uri` is where its tokens are asked for."""

    client_email: str
    private_key: str
    private_key_id: str
    token_uri: str

    def __repr__(self) -> str:
        """Without the key."""
        return f"ServiceAccount({self.client_email!r})"


@dataclass(frozen=True, slots=True)
class Request:
    """What is posted: to `url`, with `content_type`."""

    url: str
    body: bytes = field(repr=False)
    content_type: str = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, and until when it is used, in Unix seconds."""

    value: str = field(repr=False)
    until: float


class _Answer(msgspec.Struct):
    access_token: str
    expires_in: float = LIFETIME


_account = msgspec.json.Decoder(ServiceAccount).decode
_answer = msgspec.json.Decoder(_Answer).decode


def read_key(secret: str) -> ServiceAccount:
    """A key as a credential holds it. Raises `UnusableKey`."""
    try:
        account = _account(secret)
        _private_key(account.private_key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UnusableKey("a service account's key is the JSON document of it, with an RSA private key") from None
    return account


def token_request(account: ServiceAccount, now: float, scope: str = SCOPE) -> Request:
    """The request for a token; `now` is in Unix seconds."""
    head = {"typ": "JWT", "alg": "RS256", "kid": account.private_key_id}
    issued = int(now)
    claims = {
        "iss": account.client_email,
        "aud": account.token_uri,
        "scope": scope,
        "iat": issued,
        "exp": issued + LIFETIME,
    }
    stated = b".".join(_base64(_dumps(part)) for part in (head, claims))
    signature = _private_key(account.private_key).sign(stated, PKCS1v15(), SHA256())
    assertion = b".".join((stated, _base64(signature)))
    return Request(account.token_uri, urlencode({"grant_type": GRANT, "assertion": assertion}).encode())


def read_token(body: bytes, now: float) -> Token:
    """The token of a 200's body. Raises `NoToken`."""
    try:
        answer = _answer(body)
    except ValueError:
        raise NoToken("the answer is no token") from None
    if not answer.access_token.isascii() or not answer.access_token.isprintable() or " " in answer.access_token:
        raise NoToken("the token cannot stand in a header")
    return Token(answer.access_token, now + max(0.0, answer.expires_in - EARLY))


@lru_cache(maxsize=64)
def _private_key(pem: str) -> RSAPrivateKey:
    key = load_pem_private_key(pem.encode(), None)
    if not isinstance(key, RSAPrivateKey):
        raise ValueError
    return key


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
