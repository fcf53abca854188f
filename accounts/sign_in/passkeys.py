"""Passkeys (WebAuthn level 2), by Yubico's library: what browsers are asked, and what of their answers is believed.

A challenge is good for one answer within `SECONDS`, for what it was made for and from the page's own origin; whoever
calls keeps it, in the session, and takes it out before the answer is read. A device that signs without a password
before must have seen who holds it (user verification).
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connection
from fido2.server import Fido2Server
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialUserEntity,
    RegistrationResponse,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from accounts.models import Passkey, User

SECONDS = 300
MOST = 20  # of a person
MOST_CHARS = 16 * 1024  # of an answer

# A count that does not grow is a copy's (WebAuthn, 7.2, step 21); devices without one say 0 for ever.
USE = """
update accounts_passkey set sign_count = %(count)s, last_used_at = now()
 where id = %(id)s and (sign_count < %(count)s or (sign_count = 0 and %(count)s = 0))
"""

Challenge = dict[str, Any]


class NotBelieved(Exception):
    """The browser's answer proves nothing. The message says why, for logs alone."""


@dataclass(frozen=True, slots=True)
class Site:
    """Whom passkeys are made for: the host of the console, and the origin its pages have, such as https://c.example."""

    host: str
    origin: str

    def server(self) -> Fido2Server:
        """The library's, for this host and origin alone."""
        return Fido2Server(
            PublicKeyCredentialRpEntity(name="Meterline", id=self.host),
            verify_origin=lambda given: given == self.origin,
        )


def ask_new(site: Site, user: User) -> tuple[dict[str, Any], Challenge]:
    """What the browser is asked for a new passkey of `user`'s, and the challenge to keep."""
    options, state = site.server().register_begin(
        PublicKeyCredentialUserEntity(
            id=_handle(user), name=user.get_username(), display_name=user.get_full_name() or user.get_username()
        ),
        [AttestedCredentialData(bytes(one.credential)) for one in user.passkeys.all()],
        resident_key_requirement=ResidentKeyRequirement.PREFERRED,
        user_verification=UserVerificationRequirement.PREFERRED,
    )
    return dict(options), _challenge(state, f"new of {user.pk}")


def add(site: Site, user: User, challenge: Challenge | None, answer: str, name: str) -> Passkey:
    """The passkey that the browser has made for `user`. Raises `NotBelieved`."""
    state = _good(challenge, f"new of {user.pk}")
    try:
        made = site.server().register_complete(state, RegistrationResponse.from_dict(_read(answer)))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotBelieved(str(error)) from error
    credential = made.credential_data
    if credential is None or len(credential) > 4096:
        raise NotBelieved("no credential")
    # Who adds some at the same time waits, and meets the bound.
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if user.passkeys.count() >= MOST:
        raise NotBelieved(f"there are {MOST} already")
    if Passkey.objects.filter(credential_id=credential.credential_id).exists():
        raise NotBelieved("it is somebody's already")
    return Passkey.objects.create(
        user=user,
        credential_id=credential.credential_id,
        credential=bytes(credential),
        sign_count=made.counter,
        name=name,
    )


def ask(site: Site, user: User | None, purpose: str) -> tuple[dict[str, Any], Challenge]:
    """What the browser is asked to sign in with: one of the passkeys of `user`, or, of nobody, one it has for us."""
    known = [AttestedCredentialData(bytes(one.credential)) for one in user.passkeys.all()] if user else None
    verification = UserVerificationRequirement.PREFERRED if user else UserVerificationRequirement.REQUIRED
    options, state = site.server().authenticate_begin(known, verification)
    return dict(options), _challenge(state, purpose)


def used(site: Site, user: User | None, challenge: Challenge | None, purpose: str, answer: str) -> Passkey:
    """The passkey that has signed: one of `user`'s, or anybody's where that is None. Raises `NotBelieved`."""
    state = _good(challenge, purpose)
    try:
        response = AuthenticationResponse.from_dict(_read(answer))
        key = Passkey.objects.select_related("user").filter(credential_id=response.raw_id).first()
        if key is None or (user is not None and key.user_id != user.pk):
            raise NotBelieved("no such passkey")
        # A device without room for names says none.
        if response.response.user_handle not in (None, _handle(key.user)) or (
            user is None and response.response.user_handle is None
        ):
            raise NotBelieved("it is for somebody else")
        site.server().authenticate_complete(state, [AttestedCredentialData(bytes(key.credential))], response)
        count = response.response.authenticator_data.counter
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotBelieved(str(error)) from error
    with connection.cursor() as cursor:
        cursor.execute(USE, {"count": count, "id": key.pk})
        if cursor.rowcount != 1:
            raise NotBelieved("its count has not grown: it may have been copied")
    return key


def _handle(user: User) -> bytes:
    return f"meterline {user.pk}".encode()


def _challenge(state: Mapping[str, Any], purpose: str) -> Challenge:
    plain = {"challenge": state["challenge"], "user_verification": str(state["user_verification"].value)}
    return {"state": plain, "for": purpose, "until": time.time() + SECONDS}


def _good(challenge: Challenge | None, purpose: str) -> Any:
    if challenge is None or challenge["for"] != purpose or not 0 <= challenge["until"] - time.time() <= SECONDS:
        raise NotBelieved("no challenge, or it is too old")
    return challenge["state"]


def _read(answer: str) -> dict[str, Any]:
    if len(answer) > MOST_CHARS:
        raise NotBelieved("it is too long")
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise NotBelieved("it is no JSON") from error
    if not isinstance(found, dict):
        raise NotBelieved("it is no object")
    return found
