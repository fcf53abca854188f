"""A settled generation as its organization may see it: what it used, what it cost and how it went. Pure.

Providers are not named unless the plan is asked for, and what they cost never is: that is not the tenant's to see.
Amounts are dollars and exact, rates dollars per million tokens, or each for requests, searches, pictures and seconds;
durations are milliseconds, times UTC.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from billing.pricing import Line, Rate
from billing.tokens import Tokens
from gateway.endpoints.model_lists import PRICE_NAMES
from gateway.generation.explaining import FIELD, recorded
from gateway.protocols.openai_chat.usage.shown import show
from gateway.wire.strict_json import number

ZERO = Decimal(0)
API = "chat.completions"  # The one surface that generations come from.
SERVED_AS_THEY_ARE = (
    "model", "status", "error", "finish_reason", "native_finish_reason", "stream", "ttft_ms", "duration_ms",
    "prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens",
    "audio_input_tokens", "image_input_tokens", "reasoning_tokens", "audio_output_tokens", "web_searches", "basis",
    "video_input_tokens", "image_output_tokens", "images", "seconds", "service_tier",
    "end_user", "metadata", "app", "charge", "overrun",
)  # fmt: skip


def generation(usage: Mapping[str, Any], tries: Sequence[Mapping[str, Any]], *, named: bool = False) -> dict[str, Any]:
    """The lookup's answer from a usage row and its attempts by number, amounts and rates in them as text.

    `named`: with providers, in the plan and in the attempts.
    """
    moment = _iso(usage["created_at"])
    ttft, duration = usage["ttft_ms"], usage["duration_ms"]
    charge = _decimal(usage["charge"])
    return {
        "id": UUID(usage["id"]).hex,
        "object": "generation",
        "api": API,
        "generationId": UUID(usage["id"]).hex,
        **{name: usage[name] for name in SERVED_AS_THEY_ARE},
        "created_at": usage["created_at"],
        "createAt": moment,
        "createdAt": moment,
        "generationTime": None if ttft is None or duration is None else duration - ttft,
        "latency": ttft,
        "nativeTokens": show(_tokens(usage)),
        "streamed": usage["stream"],
        "finishReason": usage["finish_reason"] or None,
        "nativeFinishReason": usage["native_finish_reason"] or None,
        "usage": None if charge is None else number(charge),
        "ratingResponses": rating(usage["arithmetic"], charge, Decimal(usage["overrun"]), usage["tariff_version"]),
        "arithmetic": [
            {"item": line["item"], "quantity": line["quantity"], "rate": line["charge"]} for line in usage["arithmetic"]
        ],
        "requestRetryTimes": max(usage["attempts"] - 1, 0),
        "finalRetry": True,  # Only what is settled is shown, and nothing is tried after that.
        "attempts": [_attempt(row, named=named) for row in tries],
        FIELD: usage["plan"] and recorded(usage["plan"], named=named),
    }


def rating(
    arithmetic: Sequence[Mapping[str, Any]], charge: Decimal | None, discount: Decimal, version: int | None
) -> dict[str, Any]:
    """The bill, line by line: bill = origin - discount in every line and in the sum, and the lines add up to the sum.

    `discount` is what the hard budgets did not cover, which nobody pays; it is taken off the first lines. A line of
    unknown price has null for its amounts and is not in the sum, which is null itself when no price is known.
    """
    left = discount
    details = []
    for line in arithmetic:
        rate = _decimal(line["charge"])
        origin = Line(line["item"], line["quantity"], Rate(None, rate)).amount(rate)
        off = None if origin is None or charge is None else min(origin, left)
        left -= off or ZERO
        details.append(
            {
                "feeItemCode": PRICE_NAMES[line["item"]][0],
                "quantity": line["quantity"],
                "rate": None if rate is None else number(rate),
                **_amounts(origin, off),
            }
        )
    whole = None if charge is None else charge + discount
    return {
        **_amounts(whole, None if whole is None else discount),
        "priceVersion": None if version is None else str(version),
        "ratingDetails": details,
    }


def _amounts(origin: Decimal | None, discount: Decimal | None) -> dict[str, Any]:
    return {
        "originAmount": None if origin is None else number(origin),
        "discountAmount": None if discount is None else number(discount),
        "billAmount": None if origin is None or discount is None else number(origin - discount),
    }


def _attempt(row: Mapping[str, Any], *, named: bool) -> dict[str, Any]:
    return {
        **({"provider": row["provider"], "endpoint": row["upstream_model"]} if named else {}),
        "number": row["number"],
        "status": row["status"],
        "fault": row["fault"] or None,
        "model": row["model"] or None,
        "duration": row["duration_ms"],
        "ttft": row["ttft_ms"],
    }


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    return Tokens(
        prompt=usage["prompt_tokens"],
        completion=usage["completion_tokens"],
        cached=usage["cached_tokens"],
        cache_write_5m=usage["cache_write_5m_tokens"],
        cache_write_1h=usage["cache_write_1h_tokens"],
        audio_input=usage["audio_input_tokens"],
        image_input=usage["image_input_tokens"],
        reasoning=usage["reasoning_tokens"],
        audio_output=usage["audio_output_tokens"],
        web_searches=usage["web_searches"],
        video_input=usage["video_input_tokens"],
        image_output=usage["image_output_tokens"],
        images=usage["images"],
        seconds=usage["seconds"],
    )


def _decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def _iso(text: str) -> str:
    moment = datetime.fromisoformat(text).astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
