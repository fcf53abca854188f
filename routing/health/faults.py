"""How a provider can fail, and who is to blame: the offer, the credential, the moment, or nobody here."""

from enum import StrEnum


class Fault(StrEnum):
    """How a provider failed. The rows of `gateway.wire.errors.SHOWN` and of the attempt table."""

    UNREACHABLE = "unreachable"  # refused, DNS, TLS, reset before the answer began
    TIMEOUT = "timeout"  # a deadline of ours passed: connect, first byte, between chunks, total
    TRUNCATED = "truncated"  # the answer broke off after it had begun
    INVALID_RESPONSE = "invalid_response"  # not HTTP, not JSON, not an answer, or past a size cap
    AUTH = "auth"  # 401 / 403: our credential, never the tenant's
    RATE_LIMITED = "rate_limited"  # 429
    EXHAUSTED = "exhausted"  # 402, or a 429 that speaks of spend: the account has no credit
    OVERLOADED = "overloaded"  # 503, 529
    SERVER_ERROR = "server_error"  # any other 5xx, an unexpected redirect
    REJECTED = "rejected"  # 400, 404, 413, 422: the request's own fault; only a 404 is tried elsewhere
    FORBIDDEN_ADDRESS = "forbidden_address"  # the egress guard refused the dial


class Blame(StrEnum):
    """What a fault speaks against, and so what rests for it."""

    OFFER = "offer"  # enough of these open its breaker
    CREDENTIAL = "credential"  # rests at once, wherever it is used
    COOL = "cool"  # this offer with this credential is used too much just now
    NOBODY = "nobody"  # the request's own fault: the offer answered, and the credential was taken


_BLAME = {
    Fault.AUTH: Blame.CREDENTIAL,
    Fault.EXHAUSTED: Blame.CREDENTIAL,
    Fault.RATE_LIMITED: Blame.COOL,
    Fault.REJECTED: Blame.NOBODY,
}


def blame(fault: Fault, status: int | None = None) -> Blame:
    """Who is to blame for `fault`, which came with HTTP status `status` (None: none was read).

    A 404 speaks of the provider's own catalog: it no longer has the model under that name.
    """
    if status == 404:
        return Blame.OFFER
    return _BLAME.get(fault, Blame.OFFER)
