"""Which counts of a provider can be at all, beside what was sent and what came back.

A byte-level tokenizer never makes more tokens than bytes. So what is counted beyond the bytes has to be something that
is not seen here: thoughts, pictures or sound that were made, what the provider's own tools read and wrote, what it adds
to every prompt. As much is believed as the offer's row says that there can be; the rule, and what becomes of the rest:
"What a provider says" in docs/design.md.
"""

from billing.tokens import Tokens
from gateway.protocols.openai_chat.request.reasoning import SPELLINGS
from gateway.protocols.sides import Answer
from gateway.request.parameters import supported_by
from gateway.request.planning import Call
from gateway.request.side_effects import side_effects
from routing.planning.plan import Candidate

# Tokens that are believed beyond all that is known of:
SPARE_WRITTEN = 1_024  # of each answer, for its ends and what is left out of it
SPARE_CALLED = 128  # of each call of a tool, for its name and form
SPARE_THOUGHT = 16_384  # beyond the longest answer by the offer's row, which may have been written without its thoughts
SPARE_READ = 32_768  # of a prompt, for the provider's instructions, templates and descriptions of tools

# Paths of prompts that no chat can carry: of completions and embeddings, which run no tools.
PROMPTS = frozenset({"prompt", "input"})
SEARCHES = frozenset({"web_search_options", "plugins", "search_parameters", "enable_search"})


def plausible(usage: Tokens, call: Call, candidate: Candidate, reader: Answer) -> bool:
    """Whether an answer's `usage` can be. Of most answers two numbers are compared."""
    if usage.completion <= SPARE_WRITTEN and usage.prompt <= SPARE_READ:
        return True
    return _runs_tools(usage, call, candidate) or (
        _read(usage, call, candidate) and _written(usage, call, candidate, reader)
    )


def _runs_tools(usage: Tokens, call: Call, candidate: Candidate) -> bool:
    """Whether the provider may have asked the model several times over: nobody knows how often, nor what it read.

    By what was asked, and of searches that nobody asked for by the offer's row: not by the answer's word alone.
    """
    asked = call.asked
    native = asked.spoken is not None and not PROMPTS.issuperset(asked.spoken.only_native)
    searched = usage.web_searches and not SEARCHES.isdisjoint(_takes(candidate))
    return bool(searched or asked.searches or native or side_effects(asked.unknown, asked.body, frozenset()))


def _read(usage: Tokens, call: Call, candidate: Candidate) -> bool:
    asked = call.asked
    if asked.images or asked.audios or asked.files:  # what they are to a model is not in their bytes
        context = candidate.offer.context_length
        return not context or usage.prompt <= context + SPARE_READ
    most = asked.text_bytes + call.plan.wanted.kept_tokens
    if call.plan.policy.continues_streams:  # of what another offer has said
        most += candidate.output_cap
    return usage.prompt <= most * asked.n + SPARE_READ


def _written(usage: Tokens, call: Call, candidate: Candidate, reader: Answer) -> bool:
    asked, longest, cap = call.asked, candidate.offer.max_output, candidate.output_cap
    spare = SPARE_WRITTEN * asked.n
    seen = reader.relayed_bytes + asked.echoed_bytes + reader.calls * SPARE_CALLED
    if asked.body.get("prediction"):  # what of it was not taken is billed as if it had been written
        seen += asked.text_bytes * asked.n
    if reader.abandoned is not None or usage.completion <= seen + spare:
        return True
    said_unseen = usage.reasoning + usage.audio_output + usage.image_output
    withheld = reader.finish_reason == "content_filter" or _best_of(call)
    if not (said_unseen or withheld or _may_make_more(candidate)):
        return False
    # Some count thoughts beside the cap that they were told, and say how many they are.
    if cap < longest and usage.completion - said_unseen > cap * asked.n + spare:
        return False
    return not longest or usage.completion <= longest * asked.n + SPARE_THOUGHT


def _may_make_more(candidate: Candidate) -> bool:
    """Whether the model may think, or make something else than text, as far as its rows say; unknown: it may."""
    model, takes = candidate.model, _takes(candidate)
    return not takes or not takes.isdisjoint(SPELLINGS) or set(model.output_modalities) != {"text"}


def _best_of(call: Call) -> bool:
    """Whether more texts are written than come back."""
    spoken = call.asked.spoken
    return spoken is not None and (spoken.body.get("best_of") or 1) > (spoken.body.get("n") or 1)


def _takes(candidate: Candidate) -> frozenset[str]:
    return supported_by(candidate.offer.supported_parameters, candidate.model.capabilities)
