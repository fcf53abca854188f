"""Ids of responses that a provider keeps, as clients get them: sealed for their organization.

The account at the provider is the gateway's, shared by all tenants; so the provider's own id, known to somebody else,
would open a stranger's conversation. What a client gets is that id together with the account that it is good for,
sealed as secrets at rest are, under the same keys and with their rotation, and bound to the organization. It opens
nowhere else, and nothing has to be kept here.
"""

from base64 import b64decode, urlsafe_b64encode
from uuid import UUID

from accounts.sealing import CannotOpen, open_bytes, seal_bytes
from gateway.protocols.openai_chat.request.checks import wrong
from gateway.protocols.sides import Kept
from gateway.wire import strict_json
from gateway.wire.errors import InvalidRequest

PARAM = "previous_response_id"
PREFIX = "resp_"
LONGEST = 1024  # characters of one that a client sends


def seal(organization: UUID, account: str, tokens: int, id: str) -> str:
    """The id for a client of `organization`, of what `Kept` says."""
    said = strict_json.dumps([*Kept(account, id, tokens)])
    return PREFIX + urlsafe_b64encode(seal_bytes(said, _place(organization))).decode().rstrip("=")


def opened(id: str, organization: UUID) -> Kept:
    """What `id` stands for.

    Raises `InvalidRequest`, never saying why: it is another's, or none, or of a key that is gone.
    """
    text = id.removeprefix(PREFIX)
    try:
        if not id.startswith(PREFIX) or len(id) > LONGEST:
            raise CannotOpen
        sealed = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        kept = strict_json.loads(open_bytes(sealed, _place(organization)))
    except (CannotOpen, ValueError):
        raise gone() from None
    return Kept(*kept)


def gone() -> InvalidRequest:
    """The one answer to an id that cannot be gone on from, whatever the reason."""
    why = "names no response that can be gone on from. Send the conversation in input."
    return wrong(f"Parameter {PARAM} {why}", PARAM)


def _place(organization: UUID) -> str:
    return f"response of organization {organization}"
