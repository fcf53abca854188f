"""`python -m bench.planning`: what it costs to plan one request, by offers and strategy. In us, the best of five.

The target: 50 offers below 50 us, whatever the strategy. Nothing is dialled, and no database is needed.
"""

import os
import timeit
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

TARGET = 50.0  # microseconds, for MANY offers
MANY = 50
CALLS = 2000


def measure() -> Iterator[tuple[str, int, float, float]]:
    """What was planned, over how many offers, what the plan took and what its record takes, in microseconds."""
    from routing.health.health import Health
    from routing.planning.plan import plan
    from routing.planning.policy import Policy, together
    from routing.planning.prospect import prospect
    from tests.routing.plans import make_model, make_offer, measured, rates, wanting

    priced = rates(input="1", output="2", cached_input="0.1")
    cases: list[tuple[str, int, dict[str, Any], dict[str, Any]]] = [
        ("priority", 1, {}, {}),
        ("priority", 3, {}, {}),
        ("priority", MANY, {}, {}),
        ("priority, all alike", -MANY, {}, {}),
        ("price", MANY, {"strategy": "priority", "factor": "price"}, {}),
        ("least latency", MANY, {"strategy": "least_latency"}, {}),
        ("round robin", MANY, {"strategy": "round_robin"}, {}),
        ("a list", MANY, {"strategy": "order", "providers": ("p30", "p7")}, {}),
        ("a conversation", -MANY, {}, {"seat": 30}),
        ("a highest price", MANY, {}, {"max_price": Decimal(1)}),
    ]
    for name, size, said, wanted in cases:
        offers = [make_offer(id, priority=id if size > 0 else 0, versions=priced) for id in range(1, abs(size) + 1)]
        prospects, health = [prospect(make_model(*offers), together([Policy(**said)]))], Health()
        for offer in offers:
            measured(health, offer, 0.1 + offer.id / 100)
        asked = wanting(**wanted)

        def planned(
            prospects: Any = prospects, asked: Any = asked, health: Any = health
        ) -> Any:  # bound now: the loop goes on
            return plan(prospects, asked, health, 7)

        yield name, abs(size), best(planned), best(planned().record)


def best(work: Any) -> float:
    """Microseconds a call."""
    return min(timeit.repeat(work, number=CALLS, repeat=5)) / CALLS * 1e6


def main() -> int:
    """Prints the table. 1 if the target is missed."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    django.setup()
    missed = False
    print(f"{'planned':22} {'offers':>6} {'plan':>8} {'record':>8}  us")
    for name, offers, took, record in measure():
        missed = missed or took > TARGET
        print(f"{name:22} {offers:6} {took:8.1f} {record:8.1f}")
    print(f"target: {MANY} offers below {TARGET:.0f} us: {'missed' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
