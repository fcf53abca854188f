"""Going on with a text that broke off: another offer of the model is sent what has been said, and says the rest.

Only where the policy wants it, and only plain text: a half-said call, object, thought or log probability cannot be
handed over. What was said goes as the last message, an assistant's, to an offer that is known to go on from there
(the word `prefill` among its parameters or its model's capabilities). It happens once a generation: the hold covers
that the prompt is read twice, and what was said once more.
"""

from collections.abc import Iterable
from functools import reduce

from billing.pricing import Ceiling, WorstCase
from gateway.protocols.sides import CHATS
from gateway.request.planning import Call
from routing.planning.plan import Candidate

WORD = "prefill"
# Fields with which an answer may be something else than text.
_NOT_TEXT = ("tools", "functions", "response_format", "modalities", "audio", "web_search_options", "prediction")


def may_continue(call: Call) -> bool:
    """Whether the stream of this call is continued when it breaks."""
    asked = call.asked
    return bool(
        call.plan.policy.continues_streams
        and asked.stream
        and asked.n == 1
        and asked.makes is CHATS
        and not asked.logprobs
        and not any(asked.body.get(name) for name in _NOT_TEXT)
        and len(call.plan.taken) > 1
        and not any(call.fit(candidate).enforced_stops for candidate in call.plan.taken)
        and any(goes_on(candidate) for candidate in call.plan.taken)
    )


def goes_on(candidate: Candidate) -> bool:
    """Whether an offer goes on with a last message of the assistant's."""
    return WORD in candidate.offer.supported_parameters or WORD in candidate.model.capabilities


def worst_case(candidates: Iterable[Candidate], input_tokens: int) -> WorstCase:
    """What an answer comes to at worst that one of these begins and another ends."""
    # The second one's prompt is longer by what the first one wrote.
    ceilings = (one.prices.ceilings().at(input_tokens + one.output_cap) for one in candidates)
    return reduce(Ceiling.over, ceilings).worst_continued(input_tokens)
