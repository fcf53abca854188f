"""Whether the time of a refusal tells what is wrong with a key: unknown, revoked, or expired.

A key's checksum is public, so a mistyped one may be refused sooner and is not among them. Kinds are interleaved and
compared by the medians of blocks, which a busy machine disturbs alike; Welch's t, which does not ask for equal
variances, says how far apart two kinds are in terms of their own scatter.
"""

import math
import random
import socket
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

ROUNDS = 15  # of each kind in a block
SEPARABLE = 4.5  # by custom of leakage assessment: beyond it two kinds count as told apart


@dataclass(frozen=True)
class Refusals:
    """What was found: the median time of each kind in microseconds, and |t| of each pair."""

    median_us: dict[str, float]
    t: dict[str, float]
    refused: int

    @property
    def worst(self) -> float:
        """The largest |t|."""
        return max(self.t.values())


def time_refusals(port: int, keys: Mapping[str, Sequence[str]], blocks: int) -> Refusals:
    """Has keys of each kind refused, `blocks` times `ROUNDS` each. Raises RuntimeError unless each answer is a 401."""
    chance = random.Random(2)
    medians: dict[str, list[float]] = {kind: [] for kind in keys}
    for _ in range(blocks):
        taken: dict[str, list[float]] = {kind: [] for kind in keys}
        for _ in range(ROUNDS):
            for kind in chance.sample(sorted(keys), len(keys)):
                taken[kind].append(_refused(port, chance.choice(keys[kind])))
        for kind, times in taken.items():
            medians[kind].append(statistics.median(times))
    return Refusals(
        {kind: statistics.median(found) * 1e6 for kind, found in medians.items()},
        {
            f"{one} and {other}": abs(welch(medians[one], medians[other]))
            for one, other in combinations(sorted(keys), 2)
        },
        blocks * ROUNDS * len(keys),
    )


def welch(one: Sequence[float], other: Sequence[float]) -> float:
    """Welch's t of two samples of at least two values each; 0 when neither varies and both are the same."""
    apart = statistics.fmean(one) - statistics.fmean(other)
    scatter = math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))
    if scatter:
        return apart / scatter
    return 0.0 if apart == 0 else float("inf")


def _refused(port: int, key: str) -> float:
    """Seconds from the request to the refusal, on a connection of its own: the server closes a refused one anyway."""
    body = b'{"model":"none","messages":[{"role":"user","content":"hi"}]}'
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        asked = time.perf_counter()
        line.sendall(head.encode() + body)
        answer, answered = b"", asked
        while part := line.recv(65_536):
            answer += part
            answered = time.perf_counter()
    if not answer.startswith(b"HTTP/1.1 401 "):
        raise RuntimeError(f"a key that must be refused was answered {answer[:200]!r}")
    return answered - asked
