"""What an alert says, to programs and to people: the same at every try, since it is made of the crossing alone."""

from datetime import UTC, datetime
from decimal import Decimal

import msgspec

from billing.models import Crossing

KIND = "budget.threshold_reached"
PERIODS = {"day": "daily budget", "week": "weekly budget", "month": "monthly budget", "total": "budget in total"}


def payload(crossing: Crossing) -> bytes:
    """The body of a webhook: `type`, `timestamp` (when it was seen) and `data`. Amounts are dollars, exact, as text."""
    return msgspec.json.encode(
        {
            "type": KIND,
            "timestamp": _moment(crossing.crossed_at),
            "data": {
                "organization": {"id": str(crossing.organization), "slug": crossing.organization_slug},
                "project": {"id": str(crossing.project), "slug": crossing.project_slug} if crossing.project else None,
                "key": {"id": str(crossing.key), "name": crossing.key_name} if crossing.key else None,
                "model": crossing.model or None,
                "end_user": crossing.end_user,
                "period": crossing.period,
                "period_start": None if crossing.period == "total" else _moment(crossing.period_start),
                "percent": crossing.percent,
                "amount": _plain(crossing.amount),
                "used": _plain(crossing.used),
                "currency": "USD",
                "hard": crossing.hard,
            },
        }
    )


def subject(crossing: Crossing) -> str:
    """The subject of a mail, on one line whatever a key is called."""
    words = f"{crossing.whom()}: {crossing.percent} % of the {PERIODS[crossing.period]} is spent"
    return " ".join("".join(char if char.isprintable() else " " for char in words).split())


def text(crossing: Crossing) -> str:
    """The text of a mail."""
    since = "" if crossing.period == "total" else f" since {crossing.period_start.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    lines = [
        f"{subject(crossing)}.",
        "",
        f"Spent{since}: ${_plain(crossing.used)} of ${_plain(crossing.amount)}.",
        "It is a hard budget: once it is spent, what costs is refused."
        if crossing.hard
        else "It is a soft budget: nothing is refused.",
        f"Seen at {crossing.crossed_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC.",
    ]
    return "\n".join(lines) + "\n"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}" if amount else "0"
