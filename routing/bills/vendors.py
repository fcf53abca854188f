"""How vendors tell what they take: which paths, asked for what, with which headers, and how a page names the next one.

OpenAI: `GET /v1/organization/usage/completions` and `/costs`, of its API reference (Usage), with an admin key. Both are
grouped by `api_key_id` besides, where we know which of its keys is which credential.
Anthropic: `GET /v1/organizations/usage_report/messages` and `/cost_report`, of its Admin API's reference. Both give
buckets of a day in pages, `has_more` and `next_page`. Grouped as `billing/bills/files.py` reads them. Anthropic's cost
report knows workspaces and descriptions, no keys.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from billing.bills.sources import BillForm, BillPage
from routing.provider_secret import AuthStyle

BUCKETS = 31  # days a page: what each of the four gives at most
MOST_CURSOR = 2_000  # characters of what asks for the next page

Part = BillPage.Part
Query = list[tuple[str, str]]


class BadPage(Exception):
    """An answer that is no page. The message says why."""


@dataclass(frozen=True, slots=True)
class Vendor:
    """`paths` and how each is grouped, by part. `endpoint` is the one of the vendor itself. `key`: how both are grouped
    by key besides; empty: not both can be.
    """

    endpoint: str
    auth_style: str
    paths: Mapping[Part, tuple[str, tuple[str, str]]]
    key: Query

    def headers(self, secret: str) -> dict[str, str]:
        """What names us."""
        if self.auth_style == AuthStyle.BEARER:
            return {"authorization": f"Bearer {secret}"}
        return {"x-api-key": secret, "anthropic-version": "2023-06-01"}

    def query(self, part: Part, first: date, last: date, cursor: str, *, by_key: bool = False) -> Query:
        """What asks for the buckets of some days, both inclusive, or for the page that `cursor` names."""
        _, grouped = self.paths[part]
        begin, end = (datetime.combine(day, time(), UTC) for day in (first, last + timedelta(days=1)))
        if self.auth_style == AuthStyle.BEARER:
            span = [("start_time", f"{begin.timestamp():.0f}"), ("end_time", f"{end.timestamp():.0f}")]
        else:
            span = [("starting_at", f"{begin:%Y-%m-%dT%H:%M:%SZ}"), ("ending_at", f"{end:%Y-%m-%dT%H:%M:%SZ}")]
        page = [("page", cursor)] if cursor else []
        keys = self.key if by_key else []
        return [*span, ("bucket_width", "1d"), ("limit", str(BUCKETS)), grouped, *keys, *page]


VENDORS: Mapping[str, Vendor] = {
    BillForm.OPENAI: Vendor(
        "https://api.openai.com/v1",
        AuthStyle.BEARER,
        {
            Part.USAGE: ("organization/usage/completions", ("group_by", "model")),
            Part.COST: ("organization/costs", ("group_by", "line_item")),
        },
        [("group_by", "api_key_id")],
    ),
    BillForm.ANTHROPIC: Vendor(
        "https://api.anthropic.com/v1",
        AuthStyle.X_API_KEY,
        {
            Part.USAGE: ("organizations/usage_report/messages", ("group_by[]", "model")),
            Part.COST: ("organizations/cost_report", ("group_by[]", "description")),
        },
        [],
    ),
}


def next_page(content: bytes, before: Sequence[str]) -> str:
    """What asks for the page after this one; empty: it is the last. `before` asked for those until now.

    Raises BadPage for what is no page, and for one that leads in a circle. What is in it is read later.
    """
    try:
        page: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise BadPage("an answer is no JSON") from None
    if not isinstance(page, dict) or not isinstance(page.get("data"), list):
        raise BadPage("an answer is no page of buckets")
    more = page.get("has_more")
    if not isinstance(more, bool):
        raise BadPage("a page does not say whether there are more")
    if not more:
        return ""
    cursor = page.get("next_page")
    if not isinstance(cursor, str) or not cursor or len(cursor) > MOST_CURSOR or not cursor.isprintable():
        raise BadPage("a page says that there are more, and not where")
    if cursor in before:
        raise BadPage("a page leads back to one before it")
    return cursor
