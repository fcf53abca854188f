"""The token of a service account: what is signed verifies with Google's own library, and what comes back is read."""

import json
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from gateway.upstream.service_account import NoToken, Token, UnusableKey, read_key, read_token, token_request

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
NOW = 1_800_000_000.9


def pem(key: Any) -> str:
    made: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.decode()


def document(**more: Any) -> str:
    fields = {
        "type": "service_account",
        "client_email": "meter@project.iam.gserviceaccount.com",
        "private_key": pem(RSA),
        "private_key_id": "k1",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    return json.dumps(fields | more)


def assertion(now: float = NOW) -> str:
    request = token_request(read_key(document()), now)
    assert (request.url, request.content_type) == (
        "https://oauth2.googleapis.com/token",
        "application/x-www-form-urlencoded",
    )
    form = parse_qs(request.body.decode(), strict_parsing=True)
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    (made,) = form["assertion"]
    return made


def test_google_s_own_library_verifies_what_was_signed() -> None:
    jwt: Any = pytest.importorskip("google.auth.jwt")
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert jwt.decode_header(assertion()) == {"typ": "JWT", "alg": "RS256", "kid": "k1"}
    with pytest.MonkeyPatch.context() as patch:  # it takes the time from a function of its own
        helpers: Any = pytest.importorskip("google.auth._helpers")
        now = helpers.utcnow().replace(year=2027, month=1, day=15, hour=8, minute=0, second=5)
        patch.setattr(helpers, "utcnow", lambda: now)
        claims = jwt.decode(assertion(), certs={"k1": public}, audience="https://oauth2.googleapis.com/token")
    assert claims == {
        "iss": "meter@project.iam.gserviceaccount.com",
        "aud": "https://oauth2.googleapis.com/token",
        "scope": "https://www.googleapis.com/auth/cloud-platform",
        "iat": 1_800_000_000,
        "exp": 1_800_003_600,
    }


def test_the_same_key_at_the_same_time_states_the_same() -> None:
    assert assertion() == assertion()
    assert assertion() != assertion(NOW + 1)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "{}",
        "no JSON",
        document(private_key="-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
        document(private_key=pem(ec.generate_private_key(ec.SECP256R1()))),
        document(token_uri=None),
    ],
    ids=["empty", "empty object", "prose", "no key", "another kind of key", "no address"],
)
def test_what_is_no_key_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(UnusableKey) as caught:
        read_key(secret)
    assert "BEGIN" not in str(caught.value)


def test_neither_a_key_nor_a_request_nor_a_token_shows_its_secret() -> None:
    account = read_key(document())
    assert "BEGIN" not in repr(account) and "assertion" not in repr(token_request(account, NOW))
    assert "ya29" not in repr(Token("ya29.x", 0))


def test_a_token_is_used_until_five_minutes_before_its_end() -> None:
    assert read_token(b'{"access_token":"ya29.x","expires_in":3599,"token_type":"Bearer"}', 1_000) == Token(
        "ya29.x", 4_299
    )
    assert read_token(b'{"access_token":"ya29.x","expires_in":10}', 1_000).until == 1_000


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"error":"invalid_grant"}', b'{"access_token":"a\\r\\nX: y"}', b'{"access_token":5}']
)
def test_what_is_no_token_is_told(body: bytes) -> None:
    with pytest.raises(NoToken):
        read_token(body, 1_000)
