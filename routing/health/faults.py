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
    NOT_FOUND = "not_found"  # 404: the provider has no such model, or nothing at the address that is dialled
    REJECTED = "rejected"  # 400, 413, 422, any other 404: the request's own fault
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


def blame(fault: Fault) -> Blame:
    """Who is to blame for `fault`."""
    return _BLAME.get(fault, Blame.OFFER)
