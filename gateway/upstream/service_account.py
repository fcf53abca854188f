"""The token that a Google service account's key is changed into (RFC 7523): what is sent for it, and what comes back.

The key signs a statement with RS256; the token endpoint that the key names gives a bearer token for it, which lives an
hour. No I/O here: `gateway.upstream.tokens` posts `Request` and reads the answer.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from urllib.parse import urlencode

import msgspec
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

from routing.provider_secret import ServiceAccount, rsa_key

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LIFETIME = 3600  # seconds that a statement holds, which is the most that is allowed
# Seconds by which our clock may be ahead of Google's, which takes no statement from the future. A process whose clock
# is a minute off takes no paid work.
SKEW = 60
EARLY = 300  # seconds before its end another token is asked for
LATE = 60  # seconds before its end a token is not used any more

_dumps = msgspec.json.Encoder().encode


class NoToken(ValueError):
    """What came back holds no token."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is posted: to `url`, with `content_type`. `assertion` is what of the body nobody else may use."""

    url: str
    body: bytes = field(repr=False)
    assertion: str = field(repr=False)
    content_type: str = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token: from when on another one is asked for, and until when it is used."""

    value: str = field(repr=False)
    renewed_from: float
    used_until: float


class _Answer(msgspec.Struct):
    access_token: str
    expires_in: float = LIFETIME


_answer = msgspec.json.Decoder(_Answer).decode


def token_request(account: ServiceAccount, now: float, scope: str = SCOPE) -> Request:
    """The request for a token; `now` is in Unix seconds."""
    head = {"typ": "JWT", "alg": "RS256", "kid": account.private_key_id}
    issued = int(now) - SKEW
    claims = {
        "iss": account.client_email,
        "aud": account.token_uri,
        "scope": scope,
        "iat": issued,
        "exp": issued + LIFETIME,
    }
    stated = b".".join(_base64(_dumps(part)) for part in (head, claims))
    signature = rsa_key(account.private_key).sign(stated, PKCS1v15(), SHA256())
    assertion = b".".join((stated, _base64(signature))).decode()
    body = urlencode({"grant_type": GRANT, "assertion": assertion}).encode()
    return Request(account.token_uri, body, assertion)


def read_token(body: bytes, asked_at: float) -> Token:
    """The token of a 200's body, which was asked for at that moment of the caller's clock. Raises `NoToken`."""
    try:
        answer = _answer(body)
    except ValueError:
        raise NoToken("the answer is no token") from None
    value = answer.access_token
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        raise NoToken("the token cannot stand in a header")
    ends = asked_at + answer.expires_in
    return Token(value, max(asked_at, ends - EARLY), max(asked_at, ends - LATE))


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
