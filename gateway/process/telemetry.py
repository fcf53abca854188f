"""What the process counts, in Prometheus' format. Labels never hold a tenant or anything a client wrote."""

import time
from collections.abc import Iterator
from functools import lru_cache

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Tally(Collector):
    """A counter with one label, for what every request counts, in the event loop's one thread.

    `prometheus_client`'s own counters check themselves and take a lock each time. `values` of the label are there from
    the start, at 0; a further one from its first count on.
    """

    def __init__(self, name: str, documentation: str, label: str, *values: str) -> None:
        self._name, self._documentation, self._label = name, documentation, label
        self._counts: dict[str | int, int] = {}
        self._since: dict[str | int, float] = {}
        for value in values:
            self.count(value, 0)
        REGISTRY.register(self)

    def count(self, value: str | int, amount: int = 1) -> None:
        """Counts `amount` of what the label calls `value`."""
        try:
            self._counts[value] += amount
        except KeyError:
            self._counts[value] = amount
            self._since[value] = time.time()

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What a scrape is told."""
        family = CounterMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, count in self._counts.items():
            family.add_metric([str(value)], count, created=self._since[value])
        yield family


answers = Tally("meterline_answers", "Answers of the API, by HTTP status.", "status")
generations = Tally("meterline_generations", "Generations, by how they ended.", "status")
faults = Counter("meterline_upstream_faults", "Failed attempts, by provider and kind.", ["provider", "fault"])
payloads = Tally(
    "meterline_payloads",
    "Prompts and answers that were to be kept, by what came of it; memory, full, refused, away: they are lost.",
    "outcome",
    *("kept", "memory", "full", "refused", "away"),
)
tokens = Tally("meterline_tokens", "Tokens settled.", "direction", "prompt", "completion")
drained = Tally(
    "meterline_drained",
    "Answers whose clients left, by what they were billed by; refused: there was no place to read on.",
    "outcome",
    *("counted", "estimated", "refused"),
)
drains = Gauge("meterline_drains", "Answers read on for clients that have left.")
uncounted = Counter("meterline_attempts_uncounted", "Answers that nobody could count, by provider.", ["provider"])
turned_away = Tally(
    "meterline_turned_away", "Requests refused as soon as their key was known.", "reason", "requests", "under_way"
)
before_hold = Gauge("meterline_requests_before_hold", "Requests under way that are not held for yet.")
open_calls = Gauge("meterline_open_calls", "Generations open in this process.")
tasks = Gauge("meterline_tasks", "Tasks of this process's event loop.")
ttft = Histogram(
    "meterline_first_token_seconds", "Until a stream's first meaningful event.", ["provider"], buckets=SECONDS
)
suspect = Counter("meterline_usage_suspect", "Answers whose token counts were refused.", ["provider"])
unpriced = Counter("meterline_usage_unpriced", "Generations settled at an unknown price.", ["model"])
skipped_events = Counter("meterline_upstream_events_skipped", "Keep-alives sent as data events.", ["provider"])
buffered = Gauge("meterline_buffered_bytes", "Held for callers: bodies, files, answers that were not read yet.")
out_of_memory = Counter("meterline_out_of_memory", "Requests refused since too much was held for callers.")
spooled = Gauge("meterline_spooled_settlements", "Settlements waiting on the local disk.")
snapshot_age = Gauge("meterline_snapshot_age_seconds", "Since the configuration was last read.")
statistics = Gauge("meterline_statistics_timestamp_seconds", "When the statistics in use were published; 0: none.")

connections = Gauge(
    "meterline_database_connections",
    "Connections, by purpose: in use, idle, and the most there may be.",
    ["pool", "state"],
)
connections_wanted = Gauge(
    "meterline_database_connections_wanted", "Connections that all living processes may have together."
)
connections_allowed = Gauge("meterline_database_connections_allowed", "Connections that server and role allow.")
calls_waiting = Gauge("meterline_database_calls_waiting", "Calls that wait for a connection, by purpose.", ["pool"])
calls_refused = Gauge("meterline_database_calls_refused_total", "Calls that got no connection in time.", ["pool"])
clock_ahead = Gauge("meterline_clock_ahead_seconds", "How far this clock is ahead of the database's.")
oldest_transaction = Gauge(
    "meterline_database_oldest_transaction_seconds",
    "How long the oldest open transaction, which holds back the database's cleaning, has been seen.",
)
findings = Gauge("meterline_audit_findings", "What does not agree in the books, by the last audit.")
audited = Gauge("meterline_audit_timestamp_seconds", "When the books were audited last; 0: never.")
exports_failing = Gauge("meterline_exports_failing", "Periods of scheduled exports whose last try failed.")
hold_patience = Gauge("meterline_hold_patience_seconds", "How long a request waits for its hold.")

# A metric's child, looked up once: `labels` checks and hashes its arguments at each call.
first_token = lru_cache(maxsize=4096)(ttft.labels)
