"""A vendor's account on a socket: tells usage and cost in pages of buckets, as OpenAI and Anthropic do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, urlsplit

from tests.stage.hook import Got, Hook, hook, says

DATE = date(2026, 10, 5)


@dataclass
class Used:
    """What the bill has of a day: so many calls, tokens in and out, and dollars."""

    calls: int
    input: int
    output: int
    cost: str


@dataclass
class Account:
    """`bill` by day and model, and by key where there are several; `asked` are paths and what they were asked for; at
    most `buckets` days a page.
    """

    server: Hook
    bill: dict[tuple[date, str] | tuple[date, str, str], Used] = field(default_factory=dict)
    asked: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)
    buckets: int = 31

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"{self.server.url}/v1"

    def answer(self, got: Got, out: BinaryIO) -> None:
        """Answers a request."""
        where = urlsplit(got.line.split(" ")[1])
        query = parse_qsl(where.query)
        self.asked.append((where.path, query))
        openai = where.path.startswith("/v1/organization/")
        key = got.headers.get("authorization") if openai else got.headers.get("x-api-key")
        if key not in ("Bearer sk-admin-of-ours", "sk-admin-of-ours"):
            out.write(says(401, body=b'{"error":"no"}'))
            return
        out.write(says(200, body=self._page(where.path, dict(query), ("group_by", "api_key_id") in query).encode()))

    def _page(self, path: str, query: dict[str, str], keys: bool) -> str:
        openai = path.startswith("/v1/organization/")
        if openai:
            first, end = (datetime.fromtimestamp(int(query[name]), UTC) for name in ("start_time", "end_time"))
        else:
            assert query["bucket_width"] == "1d"
            first, end = (datetime.fromisoformat(query[name]) for name in ("starting_at", "ending_at"))
        days = [first.date() + timedelta(days=number) for number in range((end - first).days)]
        at = int(query.get("page", "page_0").removeprefix("page_"))
        length = min(int(query["limit"]), self.buckets)
        data = [self._bucket(path, openai, day, keys) for day in days[at : at + length]]
        more = at + length < len(days)
        page = {"data": data, "has_more": more, "next_page": f"page_{at + length}" if more else None}
        return json.dumps({"object": "page", **page} if openai else page)

    def _bucket(self, path: str, openai: bool, day: date, keys: bool) -> dict[str, Any]:
        used = [(place[1], what) for place, what in self.bill.items() if place[0] == day]
        named = [place[2] if keys and len(place) == 3 else None for place in self.bill if place[0] == day]
        start, end = (datetime.combine(one, time(), UTC) for one in (day, day + timedelta(days=1)))
        results: list[dict[str, Any]]
        if openai:
            bucket: dict[str, Any] = {"object": "bucket", "start_time": int(start.timestamp()),
                                      "end_time": int(end.timestamp())}  # fmt: skip
            if path.endswith("/costs"):
                results = [
                    {"object": "organization.costs.result", "amount": {"value": float(what.cost), "currency": "usd"},
                     "line_item": f"{model}, input", "project_id": None, "api_key_id": key}
                    for (model, what), key in zip(used, named, strict=True)
                ]  # fmt: skip
            else:
                results = [
                    {"object": "organization.usage.completions.result", "input_tokens": what.input,
                     "output_tokens": what.output, "input_cached_tokens": 0, "input_audio_tokens": 0,
                     "output_audio_tokens": 0, "num_model_requests": what.calls, "project_id": None,
                     "user_id": None, "api_key_id": key, "model": model, "batch": None}
                    for (model, what), key in zip(used, named, strict=True)
                ]  # fmt: skip
            return {**bucket, "results": results}
        if path.endswith("/cost_report"):
            results = [
                {"amount": f"{Decimal(what.cost) * 100:f}", "cost_type": "tokens", "currency": "USD", "model": model,
                 "description": f"{model} Usage", "token_type": "uncached_input_tokens", "service_tier": "standard",
                 "context_window": "0-200k", "workspace_id": None} for model, what in used
            ]  # fmt: skip
        else:
            results = [
                {"api_key_id": None, "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
                 "cache_read_input_tokens": 0, "uncached_input_tokens": what.input, "output_tokens": what.output,
                 "model": model, "server_tool_use": {"web_search_requests": 0}} for model, what in used
            ]  # fmt: skip
        return {"starting_at": f"{start:%Y-%m-%dT%H:%M:%SZ}", "ending_at": f"{end:%Y-%m-%dT%H:%M:%SZ}",
                "results": results}  # fmt: skip


@contextmanager
def account() -> Iterator[Account]:
    """One that listens while the block runs."""
    with hook() as server:
        found = Account(server)
        server.answers = found.answer
        yield found
