"""What the process counts, in Prometheus' format. Labels never hold a tenant or anything a client wrote."""

from functools import lru_cache

from prometheus_client import Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

answers = Counter("meterline_answers", "Answers of the API, by HTTP status.", ["status"])
generations = Counter("meterline_generations", "Generations, by how they ended.", ["status"])
faults = Counter("meterline_upstream_faults", "Failed attempts, by provider and kind.", ["provider", "fault"])
tokens = Counter("meterline_tokens", "Tokens settled.", ["direction"])
open_calls = Gauge("meterline_open_calls", "Generations open in this process.")
tasks = Gauge("meterline_tasks", "Tasks of this process's event loop.")
ttft = Histogram(
    "meterline_first_token_seconds", "Until a stream's first meaningful event.", ["provider"], buckets=SECONDS
)
suspect = Counter("meterline_usage_suspect", "Answers whose token counts were refused.", ["provider"])
unpriced = Counter("meterline_usage_unpriced", "Generations settled at an unknown price.", ["model"])
skipped_events = Counter("meterline_upstream_events_skipped", "Keep-alives sent as data events.", ["provider"])
spooled = Gauge("meterline_spooled_settlements", "Settlements waiting on the local disk.")
snapshot_age = Gauge("meterline_snapshot_age_seconds", "Since the configuration was last read.")
statistics = Gauge("meterline_statistics_timestamp_seconds", "When the statistics in use were published; 0: none.")

# A metric's child, looked up once: `labels` checks and hashes its arguments at each call.
answered = lru_cache(maxsize=64)(answers.labels)
ended = lru_cache(maxsize=64)(generations.labels)
first_token = lru_cache(maxsize=4096)(ttft.labels)
prompt_tokens, completion_tokens = tokens.labels("prompt"), tokens.labels("completion")
