"""`Idempotency-Key`: a request that may be sent more than once, is answered and charged once.

The client's word stands for one request of its API key at an endpoint. While that is answered a twin is a 409 with
Retry-After; afterwards it gets the same status, headers and bytes, for 24 hours, marked `idempotent-replayed: true`;
with another body it is a 409. The word and the body are kept as hashes under a pepper, the answer sealed.

What is refused before its hold is as if it had never been sent: the claim is given back. An answer whose client has
left is finished where the key's `on_leave` says so, and picked up by sending the request again. The field is Stripe's
and that of the IETF's draft, which would have 422 for another body; SDKs try a 409 again, and here are told not to.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import cast
from uuid import UUID

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest

from accounts.sealing import CannotOpen
from billing.backbone.claims import Claim
from billing.backbone.connections import Asker, DatabaseAway
from gateway.door.answers import Answer
from gateway.door.view import ApiView
from gateway.generation.refusals import REVOKED, unavailable
from gateway.process.keeping import Keeping, Told, opened
from gateway.process.process import Process
from gateway.wire.errors import Conflict, GatewayError, InvalidRequest, RateLimited, Unauthenticated

FIELD = b"idempotency-key"
REPLAYED = b"idempotent-replayed"
MOST_CHARACTERS = 255
RETRY_SECONDS = 1
LIGHT = 64 * 1024  # bytes that are hashed and opened at once; more in a thread
READ = "select content from billing_keptanswer where id = %s and generation = %s and state = 'done'"
NEVER_AGAIN = {"x-should-retry": "false"}  # the SDKs' own header: what cannot become better is not tried again


async def claimed(
    view: ApiView,
    here: Process,
    generation: str,
    path: Mapping[str, str],
    head: Callable[[], tuple[int, Mapping[bytes, bytes]]],
    tell: Callable[[GatewayError], Told],
) -> Answer | Keeping:
    """What a request with the field is to do: tell the answer that is kept, or make and keep it for `generation`.

    `path` is what its path says, `head` and `tell` are for `Keeping`. Raises `InvalidRequest`, `Conflict`,
    `Unauthenticated`, `RateLimited`, `Unavailable`.
    """
    word = view.fields[FIELD].strip()
    if not 0 < len(word) <= MOST_CHARACTERS:
        raise InvalidRequest(
            f"An Idempotency-Key has 1 to {MOST_CHARACTERS} characters.", code="invalid_idempotency_key"
        )
    caller = view.caller
    id = _hash(b"word", caller.organization.bytes, caller.key.bytes, view.endpoint.encode(), word)
    scope = cast(ASGIRequest, view.request).scope
    asked = [type(view).__name__.encode(), scope["query_string"]]
    asked += [f"{name}={value}".encode() for name, value in sorted(path.items())]
    body = view.request.body
    if len(body) > LIGHT:
        fingerprint = await asyncio.to_thread(_hash, b"asked", *asked, body)
    else:
        fingerprint = _hash(b"asked", *asked, body)
    claim = Claim(id, fingerprint, caller.organization, caller.key, generation)
    try:
        found = await here.backbone.claims.claim(claim)
    except DatabaseAway as error:
        raise unavailable(1) from error
    match found.verdict:
        case "claimed":
            return Keeping(claim, head, tell)
        case "done":
            return await _replay(here, claim, found.generation)
        case "running":
            raise Conflict(
                "A request with this Idempotency-Key is being answered. Send it again in a moment.",
                code="idempotency_key_in_use",
                retry_after=RETRY_SECONDS,
                headers={"x-generation-id": found.generation},
            )
        case "other":
            raise Conflict(
                "This Idempotency-Key was sent with another request. Take a new one for each request.",
                code="idempotency_key_reused",
                headers=NEVER_AGAIN,
            )
        case "key":
            raise Unauthenticated(REVOKED)
        case "full":
            raise RateLimited(
                f"More than {settings.IDEMPOTENCY_ORGANIZATION_BYTES} bytes of answers were kept for this "
                "organization's idempotency keys in 24 hours. Send the request without one.",
                code="idempotency_storage_full",
                retry_after=3600,
            )
    raise _not_kept(found.generation)


def _not_kept(generation: str) -> Conflict:
    return Conflict(
        f"The request with this Idempotency-Key was answered, as generation {generation}. That answer was too long to "
        "be kept, or cannot be read any more.",
        code="idempotency_answer_not_kept",
        headers={"x-generation-id": generation, **NEVER_AGAIN},
    )


async def _replay(here: Process, claim: Claim, generation: str) -> Answer:
    """The answer that is kept. It costs nothing, and is a request of its key as others that are not held for."""
    try:
        rows = await here.pools.reads.call(READ, [claim.id, generation], Asker(claim.organization, claim.key))
    except DatabaseAway as error:
        raise unavailable(1) from error
    if not rows:  # a day ended at this moment
        raise Conflict(
            "The answer has just been given up. Send the request again.",
            code="idempotency_key_in_use",
            retry_after=RETRY_SECONDS,
        )
    ((sealed,),) = rows
    try:
        if len(sealed) > LIGHT:
            told = await asyncio.to_thread(opened, sealed, claim.id.hex, generation)
        else:
            told = opened(sealed, claim.id.hex, generation)
    except CannotOpen as error:
        raise _not_kept(generation) from error
    answer = Answer(told.body, None, told.status, told.headers)
    answer.headers[REPLAYED] = b"true"
    return answer


def _hash(*parts: bytes) -> UUID:
    """128 bits of HMAC-SHA-256 over the parts, each with its length.

    Under the oldest pepper that still opens keys: a new one in front of it must not make requests of the last 24 hours
    unknown, which would be charged twice.
    """
    mac = hmac.new(settings.KEY_PEPPERS[-1].encode(), digestmod=hashlib.sha256)
    for part in parts:
        mac.update(b"%d:" % len(part))
        mac.update(part)
    return UUID(bytes=mac.digest()[:16])
