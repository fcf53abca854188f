"""What a provider's secret holds, by the style in which it is presented: a word, an AWS key, a Google service account.

A credential is one text, sealed as it was typed. It is read here when it is saved, so that a wrong one is told at once,
and when it is used. No I/O, and no framework.
"""

import re
from base64 import b64decode
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from routing.base_url import BadUrl, parse_base_url


class AuthStyle(StrEnum):
    """The values of the provider's auth column."""

    BEARER = "bearer"
    API_KEY = "api-key"
    X_API_KEY = "x-api-key"
    X_GOOG_API_KEY = "x-goog-api-key"
    SIGV4 = "sigv4"  # AWS's signature of each request, with a key
    SERVICE_ACCOUNT = "service-account"  # a bearer token that Google gives for a service account's key
    NONE = "none"  # a server of one's own that asks for nothing


MOST = 16_384  # characters of a secret; a service account's key with 4096 bits has some 4,200
MOST_IN_A_HEADER = 4096  # characters
LONG_ENOUGH = 16  # characters of an id or a secret of which four may be shown
_VISIBLE = re.compile("[!-~]+")
_AWS_ID = re.compile("[A-Za-z0-9_]+")
_FIELDS = ("client_email", "private_key", "private_key_id", "token_uri")


class UnusableSecret(ValueError):
    """The secret is none of its style. The message says what one looks like, and never holds it."""


@dataclass(frozen=True, slots=True)
class AwsKey:
    """An access key; `token` belongs to one that is temporary, else it is empty."""

    id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """What matters of a service account's key; `token_uri` is where its tokens are asked for."""

    client_email: str
    private_key: str = field(repr=False)
    private_key_id: str
    token_uri: str


def check(style: str, secret: str) -> None:
    """Raises `UnusableSecret` unless `secret` is one of this style."""
    if len(secret) > MOST:
        raise UnusableSecret(f"a secret has {MOST:,} characters at most")
    match style:
        case AuthStyle.SIGV4:
            read_aws_key(secret)
        case AuthStyle.SERVICE_ACCOUNT:
            rsa_key(read_service_account(secret).private_key)
        case _:
            check_word(secret)


def check_word(secret: str) -> None:
    """Raises `UnusableSecret` unless `secret` is one or more visible ASCII characters (0x21 to 0x7e).

    Control characters would end the header and begin another; a space or a non-ASCII letter is a paste gone wrong,
    better told when the credential is saved than as a 401 from the provider.
    """
    if not secret:
        raise UnusableSecret("the secret is empty")
    if not _VISIBLE.fullmatch(secret):
        raise UnusableSecret("a secret is printable ASCII without spaces")
    if len(secret) > MOST_IN_A_HEADER:
        raise UnusableSecret(f"a secret has {MOST_IN_A_HEADER:,} characters at most")


@lru_cache(maxsize=256)
def read_aws_key(secret: str) -> AwsKey:
    """A key as a credential holds it: id, secret, perhaps a session token, colons between. Raises `UnusableSecret`."""
    parts = secret.split(":")
    if len(parts) not in (2, 3) or not _AWS_ID.fullmatch(parts[0]) or not all(map(_VISIBLE.fullmatch, parts)):
        raise UnusableSecret("an AWS key is ID:SECRET, or ID:SECRET:SESSION_TOKEN if it is temporary, without spaces")
    return AwsKey(*parts)


@lru_cache(maxsize=256)
def read_service_account(secret: str) -> ServiceAccount:
    """A service account's key: the JSON document that Google hands out. Raises `UnusableSecret`.

    Whether its private key is one is not looked at here.
    """
    try:
        document: Any = msgspec.json.decode(secret)
    except ValueError:
        document = None
    if type(document) is not dict:
        raise UnusableSecret("a service account's key is the whole JSON document of it, from { to }")
    if document.get("type", "service_account") != "service_account":
        raise UnusableSecret('this JSON document is another kind of key: its "type" is not service_account')
    for name in _FIELDS:
        if type(document.get(name)) is not str or not document[name]:
            raise UnusableSecret(f"the service account's key has no {name}")
    try:
        found = parse_base_url(document["token_uri"])
    except BadUrl:
        found = None
    if found is None or not found.path:
        raise UnusableSecret("the token_uri of the service account's key is no address of a token endpoint")
    return ServiceAccount(*(document[name] for name in _FIELDS))


@lru_cache(maxsize=64)
def rsa_key(pem: str) -> RSAPrivateKey:
    """A private key, which takes a tenth of a second to read and check. Raises `UnusableSecret`."""
    try:
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise UnusableSecret("the private_key of the service account's key is no RSA key in PEM")
    return key


def hint(style: str, secret: str) -> str:
    """The end of what tells a usable secret from others, for people: of an id where it has one, else of the secret."""
    match style:
        case AuthStyle.SIGV4:
            shown = read_aws_key(secret).id
        case AuthStyle.SERVICE_ACCOUNT:
            shown = read_service_account(secret).private_key_id
        case _:
            shown = secret
    return shown[-4:] if len(shown) >= LONG_ENOUGH and shown.isprintable() else "…"


def hidden(style: str, secret: str) -> tuple[str, ...]:
    """What of a usable secret nobody may read, each as one word without spaces.

    Of a private key it is a line from its middle, as it stands in PEM: 384 bits without which the rest opens nothing.
    """
    match style:
        case AuthStyle.SIGV4:
            key = read_aws_key(secret)
            return (key.secret, key.token) if key.token else (key.secret,)
        case AuthStyle.SERVICE_ACCOUNT:
            return _inner_line(read_service_account(secret).private_key)
        case _:
            return (secret,) if secret else ()


def token_address(style: str, secret: str) -> str | None:
    """Where a usable secret is changed into a token; None: it is presented itself."""
    return read_service_account(secret).token_uri if style == AuthStyle.SERVICE_ACCOUNT else None


@lru_cache(maxsize=256)
def _inner_line(pem: str) -> tuple[str, ...]:
    lines = [line for line in pem.split() if len(line) >= LONG_ENOUGH and _is_base64(line)]
    return (lines[len(lines) // 2],) if lines else ()


def _is_base64(line: str) -> bool:
    try:
        b64decode(line, validate=True)
    except ValueError:
        return False
    return True
