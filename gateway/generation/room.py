"""How long an answer may be beside its prompt in an offer's context, where the cap sent is not the client's own.

Providers refuse a prompt and a cap that are more together than their context, and many a model's longest answer is as
long as its context. Nobody knows the prompt's tokens before the provider does. So the most careful count is taken that
leaves an ample answer: a token a byte, which is never too few; two bytes; what a token of this model stands for.
"""

from math import ceil

from gateway.process.tokenizers import LEAST, USUAL, Tokenizers
from gateway.request.planning import Call
from routing.planning.plan import Candidate

AMPLE = 8_192  # tokens of an answer
SURE = 1.0
SPARE = 1.125  # what a fair count may be too low by
LEAST_SHARE = 32  # a prompt that leaves less than one part of so many is the provider's to refuse, in its words


def room(call: Call, candidate: Candidate, tokenizers: Tokenizers) -> int:
    """Tokens of an answer, at most what the offer may write, that its context has room for; at least 1."""
    offer, most = candidate.offer, candidate.output_cap
    if not offer.context_length:
        return most
    ample = min(AMPLE, most // 2)
    left = 0
    for bytes_a_token in (SURE, LEAST, min(USUAL, tokenizers.bytes_a_token(candidate.model.slug)) / SPARE):
        left = max(left, offer.context_length - _prompt(call, candidate, bytes_a_token))
        if left >= ample:
            break
    return max(1, min(most, max(left, offer.context_length // LEAST_SHARE)))


def _prompt(call: Call, candidate: Candidate, bytes_a_token: float) -> int:
    asked, model = call.asked, candidate.model
    return (
        ceil(asked.text_bytes / bytes_a_token)
        + asked.images * model.image_token_bound
        + asked.audios * model.audio_token_bound
        + max(asked.files * model.file_token_bound, ceil(asked.file_bytes / bytes_a_token))
        + ceil(call.plan.wanted.kept_tokens / bytes_a_token)
    )
