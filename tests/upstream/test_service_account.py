"""The token of a service account: what is signed verifies with Google's own library, and what comes back is read."""

from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.upstream.service_account import NoToken, Token, read_token, token_request
from routing.provider_secret import read_service_account
from tests.stage.accounts import RSA, document

NOW = 1_800_000_000.9


def assertion(now: float = NOW) -> str:
    request = token_request(read_service_account(document()), now)
    assert (request.url, request.content_type) == (
        "https://oauth2.googleapis.com/token",
        "application/x-www-form-urlencoded",
    )
    form = parse_qs(request.body.decode(), strict_parsing=True)
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assert form["assertion"] == [request.assertion]
    return request.assertion


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
        "iat": 1_799_999_940,
        "exp": 1_800_003_540,
    }


@pytest.mark.parametrize("ours", [-60, 0, 60])
def test_a_clock_that_is_a_minute_off_states_nothing_from_the_future(ours: int) -> None:
    """A process that is further off takes no paid work."""
    jwt: Any = pytest.importorskip("google.auth.jwt")
    _, claims, *_ = jwt._unverified_decode(assertion(NOW + ours))
    assert claims["iat"] <= NOW < claims["exp"] == claims["iat"] + 3600


def test_the_same_key_at_the_same_time_states_the_same() -> None:
    assert assertion() == assertion()
    assert assertion() != assertion(NOW + 1)


def test_neither_a_request_nor_a_token_shows_its_secret() -> None:
    request = token_request(read_service_account(document()), NOW)
    assert request.assertion not in repr(request) and request.assertion.encode() in request.body
    assert "ya29" not in repr(Token("ya29.x", 0, 0))


def test_a_token_is_renewed_from_five_minutes_before_its_end_and_used_until_one() -> None:
    assert read_token(b'{"access_token":"ya29.x","expires_in":3599,"token_type":"Bearer"}', 1_000) == Token(
        "ya29.x", 4_299, 4_539
    )
    assert read_token(b'{"access_token":"ya29.x","expires_in":120}', 1_000) == Token("ya29.x", 1_000, 1_060)
    assert read_token(b'{"access_token":"ya29.x","expires_in":-5}', 1_000) == Token("ya29.x", 1_000, 1_000)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b'{"error":"invalid_grant"}', b'{"access_token":"a\\r\\nX: y"}', b'{"access_token":5}'),
        *(b'{"access_token":""}', b'{"access_token":"a b"}', b'{"access_token":"\xc3\xa4"}'),
    ],
)
def test_what_is_no_token_is_told(body: bytes) -> None:
    with pytest.raises(NoToken):
        read_token(body, 1_000)
