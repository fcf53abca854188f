"""Ids of responses that a provider keeps, as clients get them: sealed for their organization.

The account at the provider is the gateway's, shared by all tenants; so the provider's own id, known to somebody else,
would open a stranger's conversation. What a client gets is the id together with the credential that can use it and
the offer that answered, encrypted with a key of the deployment and bound to the organization (AES-256-GCM, as secrets
at rest are). It opens nowhere else, and nothing has to be kept here.
"""

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.protocols.openai_chat.request.checks import wrong
from gateway.wire import strict_json

PREFIX = "resp_"
_NONCE = 12
_PURPOSE = "openai_responses/previous_response_id/1"


class Kept(NamedTuple):
    """Where a response is kept: ids of the offer and the credential, and the provider's own id."""

    offer: str
    credential: str
    id: str


def seal(kept: Kept, organization: str, keys: Sequence[bytes]) -> str:
    """The id for a client of `organization`. The first of the keys, of 32 bytes each, seals; all open."""
    nonce = os.urandom(_NONCE)
    box = AESGCM(keys[0]).encrypt(nonce, strict_json.dumps(kept), _place(organization))
    return PREFIX + urlsafe_b64encode(nonce + box).decode().rstrip("=")


def opened(id: str, organization: str, keys: Sequence[bytes]) -> Kept:
    """What `id` stands for.

    Raises `InvalidRequest`, never saying why: it is another's, or none, or of a key that is gone.
    """
    try:
        text = id.removeprefix(PREFIX)
        sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4)) if id.startswith(PREFIX) and id.isascii() else b""
    except ValueError:
        sealed = b""
    for key in keys if len(sealed) > _NONCE else ():
        try:
            said = AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], _place(organization))
        except InvalidTag:
            continue
        return Kept(*strict_json.loads(said))
    raise wrong(
        "Parameter previous_response_id names no response that can be gone on from. Send the conversation in input.",
        "previous_response_id",
    )


def _place(organization: str) -> bytes:
    return f"{_PURPOSE}/{organization}".encode()
