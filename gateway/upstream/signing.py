"""How a provider's secret is put on a request: a closed set of styles, as data.

Which style a provider uses is a column of its row. A secret goes into a header, never into a URL: URLs end up in logs.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from gateway.upstream import sigv4
from gateway.upstream.client import Target, Upstream
from gateway.upstream.tokens import Tokens
from gateway.wire.errors import UpstreamFault
from routing.base_url import request_target
from routing.health.faults import Fault
from routing.provider_secret import AuthStyle, UnusableSecret, check_word, hidden, read_aws_key

AWS_SERVICE = "bedrock"  # whose requests are signed
# Bytes; what is larger is hashed in a thread: so many take 0.7 ms.
HASHED_AT_ONCE = 1 << 20

# Style -> header name, and what stands before the secret; None: no header.
_HEADER: dict[str, tuple[str, str] | None] = {
    AuthStyle.BEARER: ("Authorization", "Bearer "),  # RFC 6750, 2.1
    AuthStyle.API_KEY: ("api-key", ""),
    AuthStyle.X_API_KEY: ("x-api-key", ""),
    AuthStyle.X_GOOG_API_KEY: ("x-goog-api-key", ""),
    AuthStyle.NONE: None,
}


class Signed(NamedTuple):
    """The headers that prove who asks, and what of them nobody may read in an answer."""

    headers: Sequence[tuple[str, str]]
    hidden: tuple[str, ...]


def headers(style: str, secret: str) -> list[tuple[str, str]]:
    """The headers that carry `secret` in this style: one, or for `none` no header, whatever the secret.

    Raises ValueError for a style that does not present the secret itself, `UnusableSecret` for a secret that cannot
    stand in a header.
    """
    if style not in _HEADER:
        raise ValueError(f"{style!r} is not an AuthStyle that presents its secret")
    header = _HEADER[style]
    if header is None:
        return []
    check_word(secret)
    name, prefix = header
    return [(name, prefix + secret)]


@lru_cache(maxsize=1024)
def _presented(style: str, secret: str) -> Signed:
    """The proof that is the secret itself, and the same for every request."""
    return Signed(tuple(headers(style, secret)), hidden(style, secret))


class Signer:
    """Proves to providers who asks, in each style. One a process, since it keeps tokens; closed before `upstream`."""

    def __init__(self, upstream: Upstream, clock: Callable[[], float]) -> None:
        """`clock`: seconds, going on while the machine sleeps."""
        self._tokens = Tokens(upstream, clock)

    async def sign(self, style: str, secret: str, region: str, target: Target, body: bytes) -> Signed:
        """The proof for a request whose every other byte is final; `region` is AWS's.

        Raises `UpstreamFault`, of which nothing was sent to the provider, where there is none: AUTH for a secret that
        is none of this style, and what `Tokens.get` raises.
        """
        try:
            if style in _HEADER:
                return _presented(style, secret)
            match style:
                case AuthStyle.SIGV4:
                    made = await _signature(secret, region, target, body)
                case AuthStyle.SERVICE_ACCOUNT:
                    token = await self._tokens.get(secret)
                    return Signed(headers(AuthStyle.BEARER, token), (token, *hidden(style, secret)))
                case _:
                    made = headers(style, secret)
        except UnusableSecret as error:
            fault = UpstreamFault(Fault.AUTH, f"the credential is unusable: {error}")
            fault.sent = False
            raise fault from None
        return Signed(made, hidden(style, secret))

    def refused(self, style: str, secret: str, signed: Signed) -> None:
        """The provider's answer was a 401: what can be had anew is not used again."""
        if style == AuthStyle.SERVICE_ACCOUNT:
            self._tokens.refused(secret, signed.hidden[0])

    async def close(self) -> None:
        """Nothing is asked for any more."""
        await self._tokens.close()


async def _signature(secret: str, region: str, target: Target, body: bytes) -> list[tuple[str, str]]:
    key, sent = read_aws_key(secret), [header for header in target.headers if header[0].lower() != "user-agent"]

    def made() -> list[tuple[str, str]]:
        return sigv4.headers(
            key,
            region=region,
            service=AWS_SERVICE,
            method=target.method,
            authority=target.base.authority,
            path=request_target(target.base.path, target.path),
            body=body,
            sent=sent,
            at=datetime.now(UTC),
        )

    return await asyncio.to_thread(made) if len(body) > HASHED_AT_ONCE else made()
