"""What is stored of a generation: what its hold keeps, should the process die, and the usage row of its settlement."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from billing.backbone.admission import Held
from billing.backbone.settlement import Settlement
from billing.models import Status
from gateway.generation.attempt import Attempt
from gateway.generation.bill import Bill
from gateway.request.planning import Call
from routing.planning.plan import Candidate

_COMPLETED = Status.COMPLETED.value
MOST_WORD = 64  # characters of a provider's own word that are kept


def facts(call: Call, candidate: Candidate) -> dict[str, Any]:
    """What a usage row says of a call that is about to be held, to be dialled at `candidate`."""
    caller, asked = call.caller, call.asked
    return {
        "organization": caller.organization,
        "project": caller.project,
        "organization_slug": caller.organization_slug,
        "project_slug": caller.project_slug,
        "key_name": caller.name,
        "provider": candidate.offer.provider.slug,
        "upstream_model": candidate.offer.upstream_model,
        "tariff_version": candidate.tariff_version,
        "stream": asked.stream,
        "end_user": asked.end_user or "",
        "metadata": asked.metadata,
        "app": call.app,
        "request_id": call.request_id or None,
    }


def settlement(
    call: Call, held_for: Mapping[str, Any], attempts: Sequence[Attempt], held: Held, bill: Bill, status: str
) -> Settlement:
    """How a call ended that was `held_for` these `facts`: with the last of `attempts`, and what all of them come to.

    Its error and its times are the caller's to write.
    """
    last = attempts[-1]
    row = Settlement(
        **held_for,
        id=call.id,
        key=call.caller.key,
        model=last.row.model,
        created_at=held.admitted_at,
        settled_at=datetime.now(UTC),
        status=status,
        basis=bill.basis,
    )
    # The others one by one: a struct looks for each name it is called with, which takes 5 us for so many.
    # Whose answer it is: perhaps another than was held for, and so its model and tariff. When one that should have gone
    # on with a text said nothing of it, the text is that of the one before.
    whose = last
    if status != _COMPLETED:
        whose = next((attempt for attempt in reversed(attempts) if attempt.relayed), last)
    row.provider = whose.row.provider
    row.upstream_model = whose.row.upstream_model
    row.tariff_version = whose.candidate.tariff_version
    if whose.reader is not None:
        row.service_tier = whose.served[:MOST_WORD] or None
    row.plan = call.plan.record()
    row.counters = held.counted(row.model)
    row.attempts = len(attempts)
    for attempt in attempts:
        row.tries.append(attempt.row)
        if attempt.reader is not None and attempt.reader.usage_suspect:
            row.suspect = True
            claim = attempt.reader.usage_claim
            if attempt is not whose and claim is not None:
                claim = {"said": claim["said"]}  # of another offer than is billed: nothing to be charged by
            if attempt is whose or "claimed" not in row.plan:
                row.plan["claimed"] = claim
    reader = last.reader
    if reader is not None:
        row.upstream_id = reader.upstream_id
        row.finish_reason = (reader.finish_reason or "")[:MOST_WORD]
        row.native_finish_reason = (reader.native_finish_reason or "")[:MOST_WORD]
    tokens = bill.tokens
    row.prompt_tokens = tokens.prompt
    row.completion_tokens = tokens.completion
    if not tokens.plain:
        row.cached_tokens = tokens.cached
        row.cache_write_5m_tokens = tokens.cache_write_5m
        row.cache_write_1h_tokens = tokens.cache_write_1h
        row.audio_input_tokens = tokens.audio_input
        row.image_input_tokens = tokens.image_input
        row.reasoning_tokens = tokens.reasoning
        row.audio_output_tokens = tokens.audio_output
        row.web_searches = tokens.web_searches
        row.video_input_tokens = tokens.video_input
        row.image_output_tokens = tokens.image_output
        row.images = tokens.images
        row.seconds = tokens.seconds
    row.charge = bill.charge
    row.provider_cost = bill.cost
    row.arithmetic = bill.arithmetic
    return row
