"""Bearer tokens that Google gives for service accounts' keys: asked for once, kept, and renewed before their end.

One request to a token endpoint serves all that wait for its token, and goes on when they leave. From five minutes
before a token's end the next request begins a renewal and goes on with the token there is: nobody waits, and that an
endpoint is away for minutes is not noticed. It is dialled as a provider is, behind the egress guard.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gateway.upstream import service_account
from gateway.upstream.client import Dial, Target, Upstream
from gateway.upstream.service_account import NoToken, Token
from gateway.upstream.veil import veil_over
from gateway.wire.errors import UpstreamFault, let_go
from routing.base_url import BaseUrl, parse_base_url
from routing.health.faults import Fault
from routing.provider_secret import AuthStyle, ServiceAccount, UnusableSecret, hidden, read_service_account

CONNECT_SECONDS = 5.0
ASK_SECONDS = 10.0  # DNS to the last byte
RENEWAL_REST = 10.0  # seconds until a renewal that failed is tried again
MOST_BYTES = 64 * 1024  # of an answer
MOST_KEPT = 256  # tokens; of keys that are gone some may be among them

_STATUSES = {429: Fault.RATE_LIMITED, 408: Fault.TIMEOUT, 503: Fault.OVERLOADED}


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why there is no token. Each request that waited raises another error for it, since errors are changed."""

    kind: Fault
    detail: str
    status: int | None = None

    def fault(self) -> UpstreamFault:
        """An error of its own."""
        fault = UpstreamFault(self.kind, self.detail, upstream_status=self.status)
        fault.sent = False  # the provider has heard nothing yet
        return fault


class Tokens:
    """The tokens of one process, by the key they are for. Made inside the event loop; `close` it before `upstream`."""

    def __init__(self, upstream: Upstream, clock: Callable[[], float], *, most: int = MOST_KEPT) -> None:
        """`clock`: seconds, going on while the machine sleeps; their beginning does not matter."""
        self._most = most
        self._upstream = upstream
        self._clock = clock
        self._kept: dict[str, Token] = {}
        self._asked: dict[str, asyncio.Task[Token | _Failure]] = {}

    async def get(self, key: str) -> str:
        """A token for a service account's key.

        Raises `UpstreamFault`, of which nothing was sent to the provider: AUTH where the key is refused or is none,
        FORBIDDEN_ADDRESS where its endpoint may not be dialled, or how that failed. Its `detail` tells the operator.
        """
        now = self._clock()
        kept = self._kept.get(key)
        if kept is not None and now < kept.used_until:
            if now >= kept.renewed_from:
                self._ask(key)
            return kept.value
        found = await asyncio.shield(self._ask(key))
        if isinstance(found, _Failure):
            raise found.fault()
        return found.value

    def refused(self, key: str, value: str) -> None:
        """A provider would not take this token: the next request asks for another one."""
        kept = self._kept.get(key)
        if kept is not None and kept.value == value:
            del self._kept[key]

    async def close(self) -> None:
        """Nothing is asked for any more."""
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ask(self, key: str) -> "asyncio.Task[Token | _Failure]":
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.get_running_loop().create_task(self._renewed(key))
        return task

    async def _renewed(self, key: str) -> Token | _Failure:
        try:
            found = await self._fetched(key)
            now = self._clock()
            if isinstance(found, Token):
                self._kept.pop(key, None)  # to the end of the order
                self._kept[key] = found
                self._forget(now)
            elif (kept := self._kept.get(key)) is not None:
                self._kept[key] = Token(kept.value, now + RENEWAL_REST, kept.used_until)
            return found
        finally:
            del self._asked[key]

    def _forget(self, now: float) -> None:
        """Forgets those that are over, and the oldest beyond the bound."""
        for key in [key for key, token in self._kept.items() if token.used_until <= now]:
            del self._kept[key]
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]

    async def _fetched(self, key: str) -> Token | _Failure:
        try:
            account = read_service_account(key)
            # In threads what would hold up the loop: reading a private key takes a tenth of a second, a veil nearly so.
            request = await asyncio.to_thread(service_account.token_request, account, time.time())
        except UnusableSecret as error:
            return _Failure(Fault.AUTH, str(error))
        asked_at = self._clock()
        of_the_key = hidden(AuthStyle.SERVICE_ACCOUNT, key)
        secrets = (request.assertion, *of_the_key)
        await asyncio.to_thread(veil_over, secrets)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                dial = Dial(_target(request), (), request.body, secrets, fresh=True)
                reply = await self._upstream.dial(dial)
                try:
                    body = await reply.read_all(MOST_BYTES)
                finally:
                    reply.abort()  # the next one is an hour away
        except TimeoutError:
            return _failure(account, Fault.TIMEOUT, f"no answer within {ASK_SECONDS:.0f} s")
        except UpstreamFault as fault:
            let_go(fault)
            return _failure(account, fault.kind, _hide(secrets, fault.detail), fault.upstream_status)
        if reply.status != 200:
            kind = _STATUSES.get(reply.status, Fault.SERVER_ERROR if reply.status >= 500 else Fault.AUTH)
            said = f"status {reply.status}: {_words(body)}"
            return _failure(account, kind, _hide(secrets, said), reply.status)
        try:
            token = service_account.read_token(body, asked_at)
        except NoToken as error:
            return _failure(account, Fault.INVALID_RESPONSE, str(error), reply.status)
        await asyncio.to_thread(veil_over, (token.value, *of_the_key))
        return token


def _target(request: service_account.Request) -> Target:
    address = parse_base_url(request.url)
    headers = (
        ("Content-Type", request.content_type),
        ("Accept", "application/json"),
        ("User-Agent", "meterline"),
    )
    return Target("POST", BaseUrl(address.scheme, address.host, address.port), address.path, headers, CONNECT_SECONDS)


def _failure(account: ServiceAccount, kind: Fault, said: str, status: int | None = None) -> _Failure:
    detail = f"no token for {account.client_email} (key {account.private_key_id}) from {account.token_uri}: {said}"
    return _Failure(kind, detail, status)


def _words(body: bytes) -> str:
    """What an endpoint says of a refusal (RFC 6749, 5.2), on one line; a page of its own says nothing."""
    try:
        said = msgspec.json.decode(body)
    except ValueError:
        said = None
    found = [said.get(name) for name in ("error", "error_description")] if type(said) is dict else []
    words = ": ".join(word for word in found if type(word) is str)
    return "".join(char if char.isprintable() else " " for char in words)[:300] or "without a reason"


def _hide(secrets: tuple[str, ...], text: str) -> str:
    veil = veil_over(secrets)
    return veil.over(text) if veil else text
