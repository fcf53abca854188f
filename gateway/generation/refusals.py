"""What a client is told when its request was refused before it was dialled."""

from accounts.callers import Caller
from billing.backbone.admission import Refused
from gateway.wire.errors import GatewayError, InsufficientCredit, RateLimited, Unauthenticated, Unavailable

REVOKED = "This API key has been revoked, or may not be used any more."
_WORDS = {"requests": "requests a minute", "tokens": "tokens a minute", "open": "open requests"}


def unavailable(retry_after: int) -> Unavailable:
    """Neither the database nor the disk can take money matters just now."""
    return Unavailable(
        "Paid requests are not taken just now. Try again shortly.",
        code="billing_unavailable",
        retry_after=retry_after,
    )


def refusal(refused: Refused, caller: Caller, model: str) -> GatewayError:
    """Whose budget or limit had no room for a request for `model`."""
    whose = {caller.key: "key", caller.project: "project", caller.organization: "organization"}
    subject = whose.get(refused.subject, "key") if refused.subject else "key"
    limit = f"{refused.limit.normalize():f}" if refused.limit is not None else "?"
    match refused.verdict:
        case "key":
            return Unauthenticated(REVOKED)
        case "credit":
            return InsufficientCredit(
                f"The {subject}'s budget of ${limit} does not cover this request at its worst. "
                "Raise the budget, or ask for fewer output tokens."
            )
        case "unpriced":
            return InsufficientCredit(
                f"The price of '{model}' is unknown and a hard budget applies.",
                code="unknown_price",
            )
    return RateLimited(
        f"The {subject}'s limit of {limit} {_WORDS[refused.verdict]} is reached.",
        retry_after=refused.retry_after,
        headers={
            f"x-ratelimit-limit-{refused.verdict}": limit,
            f"x-ratelimit-remaining-{refused.verdict}": "0",
            f"x-ratelimit-reset-{refused.verdict}": f"{refused.retry_after}s",
        },
    )
