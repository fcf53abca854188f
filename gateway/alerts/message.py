"""What an alert says, to programs and to people: the same at every try, since it is made of the crossing alone."""

from datetime import UTC, datetime

import msgspec

from accounts.exact import plain
from billing.credit.credits import BALANCE
from billing.models import Crossing

KIND, LOW = "budget.threshold_reached", "balance.low"
PERIODS = {"day": "daily budget", "week": "weekly budget", "month": "monthly budget", "total": "budget in total"}


def payload(crossing: Crossing) -> bytes:
    """The body of a webhook: `type`, `timestamp` (when it was seen) and `data`. Amounts are dollars, exact, as text."""
    organization = {"id": str(crossing.organization), "slug": crossing.organization_slug}
    if crossing.period == BALANCE:
        data = {
            "organization": organization,
            "below": plain(crossing.amount),
            "left": plain(crossing.used),
            "currency": "USD",
            "credited_at": _moment(crossing.period_start),
        }
        return msgspec.json.encode({"type": LOW, "timestamp": _moment(crossing.crossed_at), "data": data})
    return msgspec.json.encode(
        {
            "type": KIND,
            "timestamp": _moment(crossing.crossed_at),
            "data": {
                "organization": organization,
                "project": {"id": str(crossing.project), "slug": crossing.project_slug} if crossing.project else None,
                "key": {"id": str(crossing.key), "name": crossing.key_name} if crossing.key else None,
                "model": crossing.model or None,
                "end_user": crossing.end_user,
                "period": crossing.period,
                "period_start": None if crossing.period == "total" else _moment(crossing.period_start),
                "percent": crossing.percent,
                "amount": plain(crossing.amount),
                "used": plain(crossing.used),
                "currency": "USD",
                "hard": crossing.hard,
            },
        }
    )


def subject(crossing: Crossing) -> str:
    """The subject of a mail, on one line whatever a key is called."""
    if crossing.period != BALANCE:
        what = f"{crossing.percent} % of the {PERIODS[crossing.period]} is spent"
    elif crossing.used:
        what = f"less than ${plain(crossing.amount)} of the prepaid balance is left"
    else:
        what = "the prepaid balance is used up"
    words = f"{crossing.whom()}: {what}"
    return " ".join("".join(char if char.isprintable() else " " for char in words).split())


def text(crossing: Crossing) -> str:
    """The text of a mail."""
    seen = f"Seen at {crossing.crossed_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC."
    if crossing.period == BALANCE:
        refused = "Once it is used up, what costs is refused."
        return "\n".join([f"{subject(crossing)}.", "", f"Left: ${plain(crossing.used)}.", refused, seen]) + "\n"
    since = "" if crossing.period == "total" else f" since {crossing.period_start.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    lines = [
        f"{subject(crossing)}.",
        "",
        f"Spent{since}: ${plain(crossing.used)} of ${plain(crossing.amount)}.",
        "It is a hard budget: once it is spent, what costs is refused."
        if crossing.hard
        else "It is a soft budget: nothing is refused.",
        seen,
    ]
    return "\n".join(lines) + "\n"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
