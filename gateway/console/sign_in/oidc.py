"""OpenID Connect as a client: where people are sent to, and what of their provider's answer is believed.

Authorization code flow with state, nonce and PKCE (OpenID Connect Core 1.0, 3.1; RFC 7636; RFC 9700). The issuer comes
from the environment alone, its endpoints from its own document; all are dialled by the guarded client. An ID token is
believed that one of the issuer's keys has signed, for this client, now, and with the nonce of this sign-in.
"""

import base64
import hashlib
import json
import time
from dataclasses import dataclass
from functools import lru_cache
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote, urlencode

import jwt
from django.conf import settings
from django.utils.crypto import constant_time_compare

from accounts.sign_in.groups import MOST_GROUPS, Claims
from routing.base_url import BadUrl
from routing.egress import ForbiddenAddress
from routing.outside import NoAnswer, Outside

# Signatures with keys that everybody may know; never none, nor with the client's secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
LEEWAY_SECONDS = 60
KNOWN_SECONDS = 3600  # what the issuer says of itself
AGAIN_SECONDS = 60  # until a key that is not known is looked for again
SIGN_IN_SECONDS = 600  # that somebody may be away
MOST_BYTES = 256 * 1024


class Refused(Exception):
    """The provider could not be asked, or its answer is not believed. The message is for logs."""


@dataclass(frozen=True, slots=True)
class Document:
    """What an issuer says of itself, and its keys, as of `read_at` on the monotonic clock."""

    issuer: str
    authorization: str
    token: str
    userinfo: str
    in_header: bool  # where the client's secret goes
    keys: tuple[dict[str, Any], ...]
    read_at: float


class Provider:
    """The one issuer of this installation."""

    def __init__(self, outside: Outside, issuer: str, client: str, secret: str) -> None:
        self._outside = outside
        self.issuer = issuer
        self._client = client
        self._secret = secret
        self._document: Document | None = None

    def leave(self, callback: str, *, again: bool = False) -> tuple[str, dict[str, Any]]:
        """Where to send somebody who wants to sign in, and what to keep of it. Raises `Refused`."""
        kept = {
            "state": token_urlsafe(32),
            "nonce": token_urlsafe(32),
            "verifier": token_urlsafe(48),
            "until": time.time() + SIGN_IN_SECONDS,
            "again": again,
        }
        challenge = base64.urlsafe_b64encode(hashlib.sha256(str(kept["verifier"]).encode()).digest()).rstrip(b"=")
        words = {
            "response_type": "code",
            "client_id": self._client,
            "redirect_uri": callback,
            "scope": " ".join(settings.OIDC_SCOPES),
            "state": kept["state"],
            "nonce": kept["nonce"],
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
            **({"prompt": "login", "max_age": "0"} if again else {}),
        }
        endpoint = self._known().authorization
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(words, quote_via=quote)}", kept

    def claims(self, kept: dict[str, Any], given: dict[str, str], callback: str) -> Claims:
        """Who has come back with `given`. `kept` is what `leave` gave, and is used once. Raises `Refused`."""
        if not 0 <= kept["until"] - time.time() <= SIGN_IN_SECONDS:
            raise Refused("it was too long ago")
        if not _same(kept["state"], given.get("state", "")):
            raise Refused("the state is another one")
        # RFC 9207: who answers says so.
        if given.get("iss", self.issuer) != self.issuer:
            raise Refused("another issuer answers")
        if "error" in given or not given.get("code"):
            raise Refused(f"the provider says {given.get('error', 'nothing')[:100]}")
        answer = self._token(given["code"], kept["verifier"], callback)
        told = self._verified(str(answer.get("id_token", "")), kept["nonce"])
        if kept.get("again") and not _just_now(told.get("auth_time")):
            raise Refused("the provider has not asked again")
        wanted = {"email", "email_verified", settings.OIDC_GROUPS_CLAIM}
        if not wanted <= told.keys() and isinstance(answer.get("access_token"), str):
            more = self._userinfo(answer["access_token"], told["sub"])
            if "email" in told and told["email"] != more.get("email"):
                more.pop("email_verified", None)  # is said of another address
            told = {**more, **told}
        return self._read(told)

    def _read(self, told: dict[str, Any]) -> Claims:
        subject, email = told["sub"], told.get("email")
        verified = told.get("email_verified") in (True, "true")  # some write it as a text
        groups = told.get(settings.OIDC_GROUPS_CLAIM, [])
        groups = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        good = verified and isinstance(email, str) and "@" in email and len(email) <= 254 and email.isprintable()
        return Claims(
            issuer=self.issuer,
            subject=subject,
            email=str(email) if good else "",
            name=_printable(told.get("name")),
            groups=frozenset(one for one in groups[:MOST_GROUPS] if isinstance(one, str)),
        )

    def _token(self, code: str, verifier: str, callback: str) -> dict[str, Any]:
        known = self._known()
        words = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback,
            "code_verifier": verifier,
            "client_id": self._client,
        }
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        if known.in_header:  # RFC 6749, 2.3.1: each is quoted as in a form
            pair = f"{quote(self._client, safe='')}:{quote(self._secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            words["client_secret"] = self._secret
        return self._ask("POST", known.token, headers, urlencode(words).encode())

    def _userinfo(self, access_token: str, subject: str) -> dict[str, Any]:
        endpoint = self._known().userinfo
        if not endpoint or not access_token.isascii() or not access_token.isprintable():
            return {}
        told = self._ask("GET", endpoint, {"authorization": f"Bearer {access_token}"})
        if told.get("sub") != subject:  # OpenID Connect Core 1.0, 5.3.2
            raise Refused("userinfo is of somebody else")
        return told

    def _verified(self, token: str, nonce: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            told: dict[str, Any] = jwt.decode(
                token,
                self._key(str(header.get("kid", "")), str(header.get("alg", ""))),
                algorithms=list(ALGORITHMS),
                audience=self._client,
                issuer=self.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["iss", "sub", "aud", "exp", "iat", "nonce"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise Refused(f"the ID token is not believed: {error}") from error
        if not _same(nonce, told["nonce"]):
            raise Refused("the nonce is another one")
        others = isinstance(told["aud"], list) and len(told["aud"]) > 1
        if told.get("azp", None if others else self._client) != self._client:
            raise Refused("the ID token is for somebody else")
        if not isinstance(told["sub"], str) or not 0 < len(told["sub"]) <= 255 or not told["sub"].isprintable():
            raise Refused("the subject is none")
        return told

    def _key(self, kid: str, algorithm: str) -> Any:
        """The issuer's key of that name, which takes the algorithm. Raises `Refused`, or what PyJWT does."""
        kind = KINDS.get(algorithm[:2]) if algorithm in ALGORITHMS else None
        for known in (self._known(), self._known(AGAIN_SECONDS)):  # the issuer may have a new one
            found = [
                one
                for one in known.keys
                if one.get("kty") == kind
                and (not kid or one.get("kid") == kid)
                and one.get("alg", algorithm) == algorithm
            ]
            if len(found) == 1:
                return jwt.PyJWK(found[0], algorithm).key
        raise Refused("the ID token is signed by no key of the issuer's")

    def _known(self, seconds: float = KNOWN_SECONDS) -> Document:
        """What the issuer says of itself, not older than so many seconds. Raises `Refused`."""
        if self._document is None or time.monotonic() - self._document.read_at >= seconds:
            self._document = self._discovered()
        return self._document

    def _discovered(self) -> Document:
        told = self._ask("GET", f"{self.issuer.rstrip('/')}/.well-known/openid-configuration", {})
        if told.get("issuer") != self.issuer:  # OpenID Connect Discovery 1.0, 4.3
            raise Refused("the issuer calls itself something else than OIDC_ISSUER")
        places = {name: told.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
        if not all(isinstance(one, str) and one.startswith(("https://", "http://")) for one in places.values()):
            raise Refused("the issuer does not say where its endpoints are")
        secure = self.issuer.startswith("https://")
        if secure and not all(str(one).startswith("https://") for one in places.values()):
            raise Refused("an endpoint of the issuer is not https")
        methods = told.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        keys = self._ask("GET", str(places["jwks_uri"]), {}).get("keys")
        return Document(
            issuer=self.issuer,
            authorization=str(places["authorization_endpoint"]),
            token=str(places["token_endpoint"]),
            userinfo=told["userinfo_endpoint"] if isinstance(told.get("userinfo_endpoint"), str) else "",
            in_header=not isinstance(methods, list) or "client_secret_basic" in methods,
            keys=tuple(one for one in keys[:100] if isinstance(one, dict)) if isinstance(keys, list) else (),
            read_at=time.monotonic(),
        )

    def _ask(self, method: str, url: str, headers: dict[str, str], content: bytes = b"") -> dict[str, Any]:
        try:
            answer = self._outside.ask(method, url, headers=headers, content=content, most_bytes=MOST_BYTES)
        except (BadUrl, ForbiddenAddress) as error:
            raise Refused(f"{url} is not dialled: {error}") from error
        except NoAnswer as error:
            raise Refused(f"{url}: {error}") from error
        if answer.status != 200:
            raise Refused(f"{url} answers {answer.status}")
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise Refused(f"{url} answers no JSON") from error
        if not isinstance(found, dict):
            raise Refused(f"{url} answers no object")
        return found


@lru_cache(maxsize=1)
def provider(outside: Outside, issuer: str, client: str, secret: str) -> Provider:
    """The provider, with what it has said of itself for this process."""
    return Provider(outside, issuer, client, secret)


def _same(ours: str, theirs: Any) -> bool:
    return isinstance(theirs, str) and constant_time_compare(ours, theirs)


def _printable(text: Any) -> str:
    return "".join(char if char.isprintable() else " " for char in text[:300]).strip() if isinstance(text, str) else ""


def _just_now(auth_time: Any) -> bool:
    """Whether the provider has asked its person within the time of a sign-in, by its word as it came: Unix seconds.
    What is no number, or one that nobody counts to, is no such time.
    """
    now = time.time()
    begun, ended = now - SIGN_IN_SECONDS - LEEWAY_SECONDS, now + LEEWAY_SECONDS
    return type(auth_time) in (int, float) and begun <= auth_time <= ended
