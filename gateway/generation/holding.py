"""What a generation asks for before its first dial, and which of its offers the money does not cover.

The hold is money, for whichever offer answers: each may write as much as that money pays for at its own price. So an
offer never lowers another one's cap, and one that costs nothing is never cut. Where a hard budget covers less than the
worst case, offers that it does not cover with the key's least cap are left out of the plan.
"""

from decimal import Decimal
from math import ceil
from typing import Any

from msgspec import UNSET

from billing.backbone.admission import Admission, Held, HoldItem, Refused
from billing.backbone.connections import DatabaseAway
from billing.backbone.settlement import Try
from billing.pricing import ZERO
from billing.tokens import Tokens, estimate
from gateway.generation import continuation
from gateway.generation.refusals import refusal, unavailable
from gateway.process.lengths import Lengths
from gateway.request.planning import Call
from routing.planning.ordering import Reason
from routing.planning.plan import Candidate


def hold_item(
    call: Call,
    first: Candidate,
    dial: Try,
    facts: dict[str, Any],
    continues: bool,
    expected: tuple[float, int] | None,
) -> HoldItem:
    """What to hold for a call whose first `dial` is to `first`, one of its offers.

    `continues`: another offer may go on with what one began; `expected` is from `gateway.process.lengths`.
    """
    in_order = call.offers
    if in_order[0] is not first:
        in_order = [first, *(one for one in in_order if one is not first)]
    offers: list[tuple[Decimal | None, Decimal | None, int]] = []
    cap, tokens, answer = 0, call.input_tokens, None
    money: Decimal | None = ZERO  # at worst, whichever of them answers; None: the price of one is unknown
    for one in in_order:
        worst, its_cap = one.worst, one.output_cap
        offers.append((worst.fixed, worst.rate, its_cap))
        cap = its_cap if its_cap > cap else cap
        its_money = worst.at(its_cap)
        if its_money is None or money is None:
            money = None
        elif its_money > money:
            money = its_money
    if continues:
        money = continuation.worst_case(in_order, tokens).at(cap)
    if expected is not None:
        share, answer = expected
        tokens = ceil(tokens * share)
    elif continues:
        tokens = 2 * tokens + cap  # the prompt is read twice, and what was said is read once
    return HoldItem(
        id=call.id,
        attempt=dial.id,
        key=call.caller.key,
        model=dial.model,
        money=money,
        offers=offers,
        cap=cap,
        min_cap=min(call.caller.min_output_cap, cap),
        tokens=tokens,
        least=min(tokens, estimate(call.asked.text_bytes)),
        answer=answer,
        copies=call.asked.n,
        facts=facts,
        models=[*(one.model.slug for one in in_order), *call.plan.models] if call.plan.several else UNSET,
    )


async def hold(admission: Admission, call: Call, item: HoldItem) -> Held | None:
    """What a call is given. Its plan is left with the offers that the money covers; None: the first was not among them,
    so nothing is held, and what the plan begins with now may be asked for.

    Raises what the client is told when there is no room.
    """
    try:
        held = await admission.hold(item)
    except Refused as refused:
        error = refusal(refused, call, item)
        if refused.money is not None and leave_out(call, refused.money, refused.model) and call.plan.taken:
            return None
        raise error from refused
    except DatabaseAway as error:
        raise unavailable(1) from error
    if call.arrival is not None:
        call.arrival.held()
    call.budget_room = held.room
    if held.by_model is not None:
        places = enumerate(call.plan.ordered())
        if out := {place: Reason.CREDIT for place, one in places if held.by_model.get(one.model.slug, ()) is None}:
            call.plan.leave_out(out)
    if held.hard:
        call.be_careful()
        if held.money is not None and (held.money != item.money or held.by_model is not None):
            leave_out(call, held.money)
    return held


def learn(lengths: Lengths, call: Call, answered: Candidate, tokens: Tokens) -> None:
    """Notes what an answer came to, for what the next ones of its key and model may."""
    share = tokens.prompt / max(1, call.input_tokens)
    lengths.learn(call.caller.digest, answered.model.id, share, ceil(tokens.completion / call.asked.n))


def leave_out(call: Call, money: Decimal, model: str = "") -> bool:
    """Takes the offers out of the plan that so many dollars do not cover, of a `model` alone if the budget was its own;
    whether there are any.
    """
    least = max(1, call.caller.min_output_cap)
    short = {
        place: Reason.UNPRICED if one.worst.fixed is None or one.worst.rate is None else Reason.CREDIT
        for place, one in enumerate(call.plan.ordered())
        if one.worst.cap_within(money) < min(least, one.output_cap) and model in ("", one.model.slug)
    }
    if short:
        call.plan.leave_out(short)
    return bool(short)


def cap_paid(candidate: Candidate, money: Decimal) -> int:
    """Output tokens that an offer may write for so many dollars."""
    return min(candidate.output_cap, max(1, candidate.worst.cap_within(money)))
