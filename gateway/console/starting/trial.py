"""One small real call with a credential, and what came of it in plain words.

What is called, by the provider's protocol:

- where an active offer of the provider chats: its model is asked for a few tokens, as the gateway would ask it,
  whatever the protocol and variant (chat completions, Responses, Messages, generateContent; Bedrock's InvokeModel,
  Vertex's rawPredict, Azure's deployments)
- else its list of models, `GET /models`, which costs nothing, but which some give to anybody: so what is told then is
  less. Bedrock and Vertex have none there, and are not called before they have an offer.

The dialler is the gateway's own: its egress guard, signatures, tokens, and the veil over every word that comes back.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from aiohttp.client_exceptions import ClientConnectorDNSError, ClientSSLError
from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.sealing import CannotOpen
from gateway.protocols import PROTOCOLS
from gateway.protocols.anthropic_messages.variants import VERSION
from gateway.protocols.openai_chat import WHOLE, parse
from gateway.protocols.sides import CHATS, Asking, Ours, UpstreamSide
from gateway.upstream.client import Dial, Target, Upstream
from gateway.upstream.signing import Signer
from gateway.wire import strict_json
from gateway.wire.errors import GatewayError, UpstreamFault
from routing.base_url import parse_base_url, versioned
from routing.egress import Egress, parse_allow
from routing.health.faults import Fault
from routing.models import AuthStyle, Credential, Offer, Protocol, Provider, Variant

SECONDS = 15.0  # from DNS to the last byte
MOST_BYTES = 4 << 20  # of an answer: lists of models are long
MOST_SAID = 200  # characters of a provider's words
TOKENS = 16  # the fewest that all protocols take as a cap: Responses has that minimum
LISTS = (Variant.PLAIN, Variant.DEPLOYMENTS)  # the variants with a list of models at their address
# The field of an answer that shows that it is one, and that of a list.
ANSWERS = {
    Protocol.OPENAI_CHAT: ("choices", "data"),
    Protocol.OPENAI_RESPONSES: ("output", "data"),
    Protocol.ANTHROPIC_MESSAGES: ("content", "data"),
    Protocol.GOOGLE_GEMINI: ("candidates", "models"),
}


class Outcome(StrEnum):
    """What a trial came to. The values stand in the audit log, before its words."""

    WORKS = "works"
    WRONG_KEY = "wrong key"
    WRONG_ADDRESS = "wrong address"
    NO_CREDIT = "no credit"
    BUSY = "busy"
    REFUSED = "call refused"
    UNREACHABLE = "not reachable"
    FORBIDDEN = "forbidden address"
    FAILED = "failed"
    NOT_TRIED = "not tried"


# What each means to who set it up.
MEANS = {
    Outcome.WORKS: gettext_lazy("It works."),
    Outcome.WRONG_KEY: gettext_lazy("The provider does not take this key."),
    Outcome.WRONG_ADDRESS: gettext_lazy("The address is wrong, or nothing of this protocol is there."),
    Outcome.NO_CREDIT: gettext_lazy("The key is known, and its account has no credit left."),
    Outcome.BUSY: gettext_lazy("The provider has too much to do just now, or for this key. Try again."),
    Outcome.REFUSED: gettext_lazy("The provider refused this call, and did not fault the key."),
    Outcome.UNREACHABLE: gettext_lazy("Nobody answers at this address."),
    Outcome.FORBIDDEN: gettext_lazy("The gateway may not dial this address: EGRESS_ALLOW opens it."),
    Outcome.FAILED: gettext_lazy("The provider failed."),
    Outcome.NOT_TRIED: gettext_lazy("Nothing was called."),
}
_OUTCOMES = {
    Fault.AUTH: Outcome.WRONG_KEY,
    Fault.EXHAUSTED: Outcome.NO_CREDIT,
    Fault.RATE_LIMITED: Outcome.BUSY,
    Fault.OVERLOADED: Outcome.BUSY,
    Fault.REJECTED: Outcome.REFUSED,
    Fault.NOT_FOUND: Outcome.WRONG_ADDRESS,
    Fault.FORBIDDEN_ADDRESS: Outcome.FORBIDDEN,
    Fault.UNREACHABLE: Outcome.UNREACHABLE,
    Fault.TIMEOUT: Outcome.UNREACHABLE,
    Fault.INVALID_RESPONSE: Outcome.WRONG_ADDRESS,
}


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one: the outcome, and in `words` what was seen, on one line, with nothing secret in it."""

    outcome: Outcome
    words: str

    def __str__(self) -> str:
        return f"{MEANS[self.outcome]} {self.words}".strip()


@dataclass(frozen=True, slots=True)
class _Call:
    target: Target
    body: bytes
    named: str  # what was called, in words
    field: str  # that its answer has


def tried(credential: Credential) -> Trial:
    """Makes the call, within `SECONDS`. What goes wrong outside is told, and not raised."""
    provider = credential.provider
    try:
        secret = credential.secret() if provider.auth_style != AuthStyle.NONE else ""
    except CannotOpen:
        return Trial(Outcome.NOT_TRIED, _("The stored secret cannot be opened: type it again."))
    call = _call(provider)
    if call is None:
        return Trial(Outcome.NOT_TRIED, _("This service has no list of models: give it an offer, and test again."))
    return _run(_tried(provider, secret, call))


def _run(trial: Coroutine[Any, Any, Trial]) -> Trial:
    """In a loop of its own, which does not wait for a resolver that still looks (`asyncio.run` would)."""
    with closing(asyncio.new_event_loop()) as loop:
        return loop.run_until_complete(trial)


def _call(provider: Provider) -> _Call | None:
    answer, listed = ANSWERS[Protocol(provider.protocol)]
    offers = Offer.objects.filter(provider=provider, active=True, model__active=True).select_related("model")
    chats = offers.filter(model__output_modalities__overlap=sorted(CHATS))
    offer = chats.order_by("pk").first()
    to = partial(_target, provider)
    if offer is not None:
        body = {"model": offer.model.slug, "messages": [{"role": "user", "content": "Say hi."}], "max_tokens": TOKENS}
        asking = Asking(
            model=offer.upstream_model,
            output_cap=TOKENS,
            fit=WHOLE,
            prefill="",
            takes=(),
            cap_field=provider.cap_field,
            ask_usage=False,
            variant=provider.variant,
            ours=Ours("trial", 0, offer.model.slug),
        )
        sent = _side(provider).sent(parse(body, len(strict_json.dumps(body))), asking)
        return _Call(to("POST", sent.path, sent.headers), sent.body, offer.upstream_model, answer)
    if provider.variant not in LISTS:
        return None
    version = (("anthropic-version", VERSION),) if provider.protocol == Protocol.ANTHROPIC_MESSAGES else ()
    return _Call(to("GET", "/models", version), b"", "", listed)


def _side(provider: Provider) -> UpstreamSide:
    return PROTOCOLS[provider.protocol].upstream


def _target(provider: Provider, method: str, path: str, more: tuple[tuple[str, str], ...]) -> Target:
    headers = (("Accept", "application/json"), ("User-Agent", "meterline"), *more)
    if method == "POST":
        headers = (("Content-Type", "application/json"), *headers)
    base = parse_base_url(provider.base_url)
    return Target(method, base, versioned(path, provider.api_version), headers, min(SECONDS, provider.connect_timeout))


async def _tried(provider: Provider, secret: str, call: _Call) -> Trial:
    upstream = Upstream(Egress(parse_allow(settings.EGRESS_ALLOW)))
    signer = Signer(upstream, time.monotonic)
    began = time.monotonic()
    try:
        async with asyncio.timeout(SECONDS):
            signed = await signer.sign(provider.auth_style, secret, provider.region, call.target, call.body)
            reply = await upstream.dial(Dial(call.target, signed.headers, call.body, signed.hidden, True))
            try:
                said = await reply.read_all(MOST_BYTES)
            finally:
                reply.abort()
            if not 200 <= reply.status < 300:
                return _refused(_side(provider).fault(reply.status, reply.headers, said), call)
            return _answered(call, said, reply.status, round(1000 * (time.monotonic() - began)))
    except TimeoutError:
        return Trial(Outcome.UNREACHABLE, _("No answer within %(seconds)g s.") % {"seconds": SECONDS})
    except GatewayError as error:
        return _refused(error, call)
    finally:
        await signer.close()
        await upstream.close()


def _refused(error: GatewayError, call: _Call) -> Trial:
    """Of an answer that is none, or that did not come."""
    if not isinstance(error, UpstreamFault):
        return Trial(Outcome.REFUSED, _line(error.message))
    outcome = _OUTCOMES.get(error.kind, Outcome.FAILED)
    words = _line(error.detail)
    if error.upstream_status == 404:
        outcome = Outcome.WRONG_ADDRESS
        if call.named:
            words = _("Or it has no model %(name)s. It said: %(words)s") % {"name": call.named, "words": words}
    match error.__cause__:
        case ClientConnectorDNSError():
            outcome, words = Outcome.WRONG_ADDRESS, _("There is no such name: %(words)s") % {"words": words}
        case ClientSSLError():
            outcome, words = Outcome.WRONG_ADDRESS, _("TLS failed: %(words)s") % {"words": words}
    return Trial(outcome, words)


def _answered(call: _Call, said: bytes, status: int, ms: int) -> Trial:
    """Of an answer whose status is 2xx: it works only if it is what was asked for."""
    try:
        answer = strict_json.loads_answer(said)
    except strict_json.BadJson:
        answer = None
    found = answer.get(call.field) if isinstance(answer, Mapping) else None
    if found is None:
        words = _("Status %(status)d, but no answer of this protocol.") % {"status": status}
        return Trial(Outcome.WRONG_ADDRESS, words)
    if call.named:
        seen = _("%(name)s answered in %(ms)d ms.") % {"name": call.named, "ms": ms}
    else:
        facts = {"count": len(found), "ms": ms}
        seen = _("It listed %(count)d models in %(ms)d ms. With an offer, a model is asked, which tells more.") % facts
    return Trial(Outcome.WORKS, seen)


def _line(text: str) -> str:
    words = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return words if len(words) <= MOST_SAID else f"{words[: MOST_SAID - 1]}…"
