"""What a client is told when its request was refused before it was dialled."""

from collections.abc import Sequence
from decimal import Decimal

from billing.alerts import part_of
from billing.backbone.admission import HoldItem, Refused
from gateway.request.planning import Call
from gateway.wire.errors import (
    GatewayError,
    InsufficientCredit,
    InvalidRequest,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from routing.planning.plan import Candidate

REVOKED = "This API key has been revoked, or may not be used any more."
MOST_NAMED = 3  # offers
MOST_SHOWN = 64  # characters of an end user's name


def unavailable(retry_after: int) -> Unavailable:
    """Neither the database nor the disk can take money matters just now."""
    return Unavailable(
        "Paid requests are not taken just now. Try again shortly.",
        code="billing_unavailable",
        retry_after=retry_after,
    )


def refusal(refused: Refused, call: Call, item: HoldItem) -> GatewayError:
    """Whose budget or limit had no room for what a call wanted to hold."""
    caller = call.caller
    whose = {caller.key: "key", caller.project: "project", caller.organization: "organization"}
    subject = whose.get(refused.subject, "key") if refused.subject else "key"
    limit = f"{refused.limit.normalize():f}" if refused.limit is not None else "?"
    part = part_of(refused.model, refused.end_user[:MOST_SHOWN] if refused.end_user else refused.end_user)
    match refused.verdict:
        case "key":
            return Unauthenticated(REVOKED)
        case "credit" | "unpriced":
            offers = call.plan.ordered()
            bound = "hard budget" if refused.limit is not None else "prepaid balance"
            unpriced = [one for one in offers if one.worst.fixed is None or one.worst.rate is None]
            if len(unpriced) == len(offers):
                return InsufficientCredit(
                    f"The {subject} has a {bound}{part}, which takes no request at an unknown price: "
                    f"{_named(unpriced)}. "
                    "Whoever runs this gateway can give it a price; until then ask for another model.",
                    code="unknown_price",
                )
            besides = f" Left out for want of a price: {_named(unpriced)}." if unpriced else ""
            if refused.limit is None:
                left = refused.money or Decimal(0)
                short = f"of ${left.normalize():f} does not cover this request at its worst"
                return InsufficientCredit(
                    f"The {subject}'s {bound} {short if left else 'is used up'}. "
                    f"Top it up, or ask for fewer output tokens.{besides}"
                )
            return InsufficientCredit(
                f"The {subject}'s budget of ${limit}{part} does not cover this request at its worst. "
                f"Raise the budget, or ask for fewer output tokens.{besides}"
            )
        case "never":
            return InvalidRequest(
                f"About {item.least} tokens of prompt and at least {item.min_cap * item.copies} of output never fit "
                f"the {subject}'s limit of {limit} tokens a minute. Shorten the prompt, or raise the limit.",
                code="token_limit_too_low",
            )
        case "users":
            return RateLimited(
                f"The {subject} has a budget for each end user, and no more than {limit} are counted in a window. "
                "Name one who is, or come back when the next window begins.",
                code="too_many_end_users",
                retry_after=refused.retry_after,
            )
    return RateLimited.reached(subject, refused.verdict, limit, refused.retry_after)


def _named(offers: Sequence[Candidate]) -> str:
    """Offers without a price, and what they lack."""
    return ", ".join(
        f"'{one.model.slug}' at {one.offer.provider.slug}/{one.offer.upstream_model} has {_lack(one)}"
        for one in offers[:MOST_NAMED]
    )


def _lack(offer: Candidate) -> str:
    if offer.tariff_version is None:
        return "no tariff in force"
    missing = {item for item, _, _ in offer.prices.lacking()}
    return f"a tariff without a rate for {', '.join(sorted(missing)) or 'web_search'}"
