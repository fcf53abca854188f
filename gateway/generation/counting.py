"""The tokens of a request as the provider counts them that would answer it, which costs nothing.

Only a provider of the client's own protocol is asked. It is one call, with little time, beside everything that a
generation is: nothing is held or written, no health hears of it, and who gets no count is told our estimate.
"""

import asyncio
import logging

from gateway.generation.dialling import target
from gateway.process.process import Process
from gateway.protocols import PROTOCOLS
from gateway.protocols.sides import Asking, Counting, Ours
from gateway.request.planning import Call
from gateway.upstream.client import Dial
from gateway.wire import strict_json
from gateway.wire.errors import UpstreamFault, let_go
from routing.base_url import versioned
from routing.catalog import Credential, Provider

logger = logging.getLogger(__name__)

SECONDS = 5.0  # that a client waits for a provider's count
MOST_BYTES = 64 * 1024  # of its answer
MOST_TOKENS = 2**31


async def counted(process: Process, call: Call) -> int | None:
    """The count of the provider that a call would go to first; None: it gave none."""
    candidate = call.offers[0]
    offer, provider = candidate.offer, candidate.offer.provider
    asking = Asking(
        model=offer.upstream_model,
        output_cap=None,
        fit=call.fit(candidate),
        prefill="",
        takes=call.takes(candidate),
        cap_field=provider.cap_field,
        ask_usage=False,
        variant=provider.variant,
        ours=Ours(call.id, 0, call.model.slug),
    )
    made, asked = PROTOCOLS[provider.protocol].upstream.counting, call.asked
    counting = await asyncio.to_thread(made, asked, asking) if asked.is_long else made(asked, asking)
    if counting is None:
        return None
    try:
        async with asyncio.timeout(SECONDS):
            return await _asked(process, provider, candidate.credential, counting)
    except (UpstreamFault, TimeoutError, strict_json.BadJson) as error:
        why = error.detail if isinstance(error, UpstreamFault) else repr(error)
        logger.info("%s: %s counted nothing, so it is estimated: %s", call.request_id, provider.slug, why)
        let_go(error)
        return None


async def _asked(process: Process, provider: Provider, credential: Credential | None, counting: Counting) -> int:
    path = versioned(counting.path, provider.api_version)
    to = target(provider.base_url, provider.connect_timeout, "application/json", path, counting.headers)
    secret = credential.secret if credential is not None else ""
    signed = await process.signer.sign(provider.auth_style, secret, provider.region, to, counting.body)
    # On a connection of its own: one that was kept may just have ended, and then there would be no count.
    reply = await process.upstream.dial(Dial(to, signed.headers, counting.body, signed.hidden, True))
    try:
        said = await reply.read_all(MOST_BYTES)
    finally:
        reply.abort()  # does nothing once it has been read
    if not 200 <= reply.status < 300:
        raise PROTOCOLS[provider.protocol].upstream.fault(reply.status, reply.headers, said)
    answer = strict_json.loads_answer(said)
    tokens = answer.get(counting.field) if type(answer) is dict else None
    if type(tokens) is not int or not 0 <= tokens <= MOST_TOKENS:
        raise strict_json.BadJson(f"it has no {counting.field}")
    return tokens
