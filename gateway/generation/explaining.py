"""A plan in words: why a request went where it went, or would go. Pure.

It is told to whoever owns the key, on request: to `X-Gateway-Explain: 1` in the answer, by POST /v1/route, in the
generation lookup. It names providers by their slugs and offers by what a request may call them (`provider/endpoint`);
it never holds a provider's address, a credential, what a provider takes for a call, or anything of another tenant.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from billing.tokens import Tokens, estimate
from gateway.wire import strict_json
from gateway.wire.errors import GatewayError
from gateway.wire.header_fields import Fields
from gateway.wire.strict_json import number
from routing.planning.ordering import WORDS
from routing.planning.plan import LIKELY_ANSWER, Candidate, Plan

if TYPE_CHECKING:
    from gateway.generation.attempt import Attempt
    from gateway.request.planning import Call

HEADER = "X-Gateway-Explain"
FIELD = "x_gateway_plan"  # beside the answer's own fields
NAMING = ("providers", "only_providers", "fallback")  # what of a policy may name a provider
DONE = b"data: [DONE]"
WHY: dict[str, str] = {reason.value: text for reason, text in WORDS.items()}


def wished(fields: Fields) -> bool:
    """Whether a request wants its plan told, by `X-Gateway-Explain: 1` or `true`."""
    return fields.get(b"x-gateway-explain", b"").strip().lower() in (b"1", b"true")


def told(plan: Plan) -> dict[str, Any]:
    """A plan just made, with what each candidate is expected to cost the tenant, in dollars.

    `expected_price` is for the prompt, estimated, and an answer of `LIKELY_ANSWER` tokens or the cap if that is less;
    `price_at_most` is what a hold takes for it. null: a price is not known, or was not worked out.
    """
    shown = recorded(plan.record(), named=True)
    for line, candidate in zip(shown["candidates"], plan.candidates(), strict=True):
        line |= _prices(candidate, plan)
    return shown


def recorded(record: Mapping[str, Any], *, named: bool) -> dict[str, Any]:
    """A plan as it was kept with its generation (`Plan.record`); without `named` no provider can be told from it."""
    policy = {name: value for name, value in record.get("policy", {}).items() if named or name not in NAMING}
    shown: dict[str, Any] = {
        "model": record["model"],
        "policy": {"source": record["by"], **policy},
        "seed": record["seed"],
        "candidates": list(lines(record, named=named)),
    }
    if "choice" in record:
        shown["choice"] = record["choice"]
    return shown


def lines(record: Mapping[str, Any], *, named: bool = True) -> Iterable[dict[str, Any]]:
    """The candidates of a kept plan: those in the order they were tried in, from 1, then those left out."""
    most = record["taken"]
    in_order: Sequence[Sequence[Any]] = record["offers"]
    for place, line in enumerate((*in_order, *record.get("out", ())), 1):
        _, provider, endpoint, reason, score, *model = line
        ordered = place <= len(in_order)
        yield {
            "order": place if ordered else None,
            "taken": ordered and place <= most,
            "model": model[0] if model else record["model"],
            **({"provider": provider, "endpoint": endpoint} if named else {}),
            "reason": reason,
            "why": words(reason),
            "score": score,
        }


def words(reason: str) -> str:
    """A reason in words; one that an older or newer version wrote stands for itself."""
    return WHY.get(reason, reason)


def attempted(tries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The dials of a generation, from 1; durations are milliseconds."""
    names = ("number", "provider", "model", "status", "duration_ms", "ttft_ms")
    return [{**{name: row[name] for name in names}, "fault": row["fault"] or None} for row in tries]


def final(part: bytes, call: "Call", attempts: Sequence["Attempt"]) -> bytes:
    """The last part of an answer to `call`, with its plan in it if the client wants that."""
    return into_answer(part, _done(call, attempts)) if call.explain else part


def beside(error: GatewayError, call: "Call", attempts: Sequence["Attempt"]) -> None:
    """Puts the plan beside the error that ends `call`, if the client wants that."""
    if call.explain:
        error.more[FIELD] = _done(call, attempts)


def _done(call: "Call", attempts: Sequence["Attempt"]) -> dict[str, Any]:
    return {**told(call.plan), "attempts": attempted(asdict(attempt.row) for attempt in attempts)}


def into_answer(part: bytes, plan: Mapping[str, Any]) -> bytes:
    """The last part of an answer, a whole JSON body or the closing events of a stream, with the plan in it.

    What is there stays as it is, byte for byte. In a stream the plan is in the last chunk before `[DONE]`.
    """
    head, done, tail = part.rpartition(DONE) if part.rstrip().endswith(DONE) else (part, b"", b"")
    text = head.rstrip()
    if text.endswith(b"]"):  # of a stream that is one array
        text, done = text[:-1], b"]"
        head = text
    more = b'"' + FIELD.encode() + b'":' + strict_json.dumps(plan) + b"}"
    comma = b"" if text.endswith(b"{}") else b","
    return text[:-1] + comma + more + head[len(text) :] + done + tail


def _prices(candidate: Candidate, plan: Plan) -> dict[str, Any]:
    wanted = plan.wanted
    answer = min(LIKELY_ANSWER, candidate.output_cap) * wanted.copies
    likely = (
        candidate.prices.of(wanted.service).price(Tokens(prompt=estimate(wanted.text_bytes), completion=answer)).charge
    )
    most = candidate.worst.at(candidate.output_cap)
    return {
        "expected_price": None if likely is None else number(likely),
        "price_at_most": None if most is None else number(most),
    }
