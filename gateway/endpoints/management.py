"""The management endpoints: balance and usage of the caller's own organization, and what a key has left.

Amounts are dollars, exact. Errors have the dialect's envelope, answers `{"success": true, "data": …}`. A key reads each
so many times a minute, and past that gets a 422 (`read_limit`).
"""

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.http import HttpRequest

from accounts.models import Scope
from billing.credit.prepaid import BALANCE
from billing.ids import first_id
from gateway.door.answers import Answer, json_answer
from gateway.door.view import ApiView
from gateway.endpoints.generations import EitherScope
from gateway.endpoints.periods import Days, day, span, today
from gateway.endpoints.read_limit import count_read, read
from gateway.wire.errors import InvalidRequest
from gateway.wire.strict_json import number

MOST_DAYS = 31
USUAL_DAYS = 7
ZERO = Decimal(0)

# The running periods of budgets for all calls, on the database's clock as admission has it; the widest first.
BUDGETS = """
    select b.period, b.amount, coalesce(n.used, 0), coalesce(n.held, 0)
      from billing_budget b
      left join lateral (
           select c.used, c.held from billing_counter c
            where c.subject = b.subject and c.measure = 'money' and c.period = b.period
              and c.period_start = billing_window(b.period, now(), b.time_zone)
            order by c.version desc limit 1) n on true
     where b.subject = %s and b.model = '' and b.end_user = ''
     order by array_position(array['total', 'month', 'week', 'day'], b.period::text)
"""


class Balance(ApiView):
    """GET /v1/management/payg/balance and /v1/user/balance.

    The balance is what a prepaid organization has left of its credits, those that were given apart from those that were
    paid. For others it is what is left of their budget `in total`, its amount less what has been spent, and all of it
    topped up. What open requests hold is still in it, and told apart. Without either the amounts are null.
    """

    scope = Scope.MANAGEMENT
    endpoint = "management"

    async def get(self, request: HttpRequest) -> Answer:
        """The balance; negative when a soft budget was passed."""
        await count_read(self.caller, "balance")
        amounts: tuple[Decimal | None, ...] = (None,) * 4
        if prepaid := await read(self.caller, BALANCE, [self.caller.organization]):
            amounts = prepaid[0]
        else:
            budgets = await read(self.caller, BUDGETS, [self.caller.organization])
            for _, amount, used, held in (budget for budget in budgets if budget[0] == "total"):
                amounts = (amount - used, ZERO, amount - used, held)
        left, given, paid, held = (None if amount is None else number(amount) for amount in amounts)
        data = {
            "currency": "usd",
            "total_credits": left,
            "top_up_credits": paid,
            "bonus_credits": given,
            "held_credits": held,
        }
        return json_answer({"success": True, "data": data})


class TokenUsage(EitherScope):
    """GET /api/usage/token: what the calling key itself may still spend.

    From the key's own budget: the one in total, else the month's, the week's or the day's; `period` says which.
    A key without one is bound by its project's and organization's alone, and has an unlimited quota here: granted and
    available are 0 then, and used is null, since nobody counts it.
    """

    endpoint = "usage/token"

    async def get(self, request: HttpRequest) -> Answer:
        """The key's quota in dollars, with its models and the end of its life (Unix seconds; 0: none)."""
        caller = self.caller
        await count_read(caller, "token")
        budgets = await read(caller, BUDGETS, [caller.key])
        period, granted, used, held = budgets[0] if budgets else (None, ZERO, None, ZERO)
        data = {
            "object": "token_usage",
            "name": caller.name,
            "total_granted": number(granted),
            "total_used": None if used is None else number(used),
            "total_available": number(granted - (used or ZERO)),
            "total_held": number(held),
            "currency": "usd",
            "period": period,
            "unlimited_quota": not budgets,
            "model_limits": dict.fromkeys(sorted(caller.allowed_models), True),
            "model_limits_enabled": bool(caller.allowed_models),
            "expires_at": int(caller.expires_at.timestamp()) if caller.expires_at else 0,
        }
        return json_answer({"code": True, "message": "ok", "data": data})


class UsageReport(ApiView):
    """GET /v1/management/usage: what the organization used, by day, by model, or both.

    - `starting_at`, `ending_at`: UTC days like 2026-01-31, both inclusive, at most 31; by default the last seven
    - `group_by`: day (the default), model, or day,model
    """

    scope = Scope.MANAGEMENT
    endpoint = "management"

    # The range of ids lets the index and the partitions work; their clock is the process's, that of the column is not.
    QUERY = """
        select case when %s then to_char(created_at at time zone 'UTC', 'YYYY-MM-DD') end as day,
               case when %s then model end as model,
               count(*), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens),
               coalesce(sum(charge), 0), count(*) filter (where charge is null or arithmetic @> '[{"charge": null}]')
          from billing_usage
         where organization = %s and id >= %s and id < %s and created_at >= %s and created_at < %s
         group by 1, 2 order by 1, 2
    """

    async def get(self, request: HttpRequest) -> Answer:
        """One row a group that has generations; what of `unpriced_requests` has no price is not in `cost`."""
        await count_read(self.caller, "usage")
        days = _days(request)
        groups = _groups(request.GET.get("group_by") or "day")
        hour = timedelta(hours=1)
        rows = await read(
            self.caller,
            self.QUERY,
            [
                "day" in groups,
                "model" in groups,
                self.caller.organization,
                first_id(days.begin - hour),
                first_id(days.end + hour),
                days.begin,
                days.end,
            ],
        )
        data = {
            "currency": "usd",
            "starting_at": days.first.isoformat(),
            "ending_at": days.last.isoformat(),
            "group_by": groups,
            "entries": [_entry(row, groups) for row in rows],
        }
        return json_answer({"success": True, "data": data})


def _entry(row: tuple[Any, ...], groups: list[str]) -> dict[str, Any]:
    date, model, requests, prompt, completion, cached, reasoning, charge, unpriced = row
    keys = {"day": ("date", date), "model": ("model", model)}
    return {
        **dict(keys[group] for group in groups),
        "requests": requests,
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "cached_tokens": cached,
        "reasoning_tokens": reasoning,
        "cost": number(charge),
        "unpriced_requests": unpriced,
    }


def _groups(text: str) -> list[str]:
    groups = text.split(",")
    if len(set(groups)) != len(groups) or not set(groups) <= {"day", "model"}:
        raise InvalidRequest("group_by must be day, model or day,model.", param="group_by", code="invalid_value")
    return groups


def _days(request: HttpRequest) -> Days:
    last = day(request, "ending_at") or today()
    first = day(request, "starting_at") or last - timedelta(days=USUAL_DAYS - 1)
    return span(first, last, MOST_DAYS)
