"""Sketches of positive values: counts by bucket, each within 5 % of what fell into it, merged by adding.

Made in SQL (`routing/sql/sketches.sql`): bucket `b` holds the values above 1.1^(b-1) up to 1.1^b, and stands for
2 x 1.1^b / 2.1, the number whose relative error is the least at both of its ends. So are DDSketch's (Masson and
others, VLDB 2019) buckets, without a limit on their number: a day in milliseconds is bucket 192.
"""

import math
from collections.abc import Iterable, Mapping

GROWTH = 1.1

Sketch = Mapping[str, int]  # {bucket: count}


def bucket(value: float) -> int:
    """The bucket of a value; what is below 1 counts as 1."""
    return math.ceil(math.log(max(value, 1)) / math.log(GROWTH))


def middle(bucket: int) -> float:
    """The value that a bucket stands for."""
    return 2 * GROWTH**bucket / (GROWTH + 1)


def merged(sketches: Iterable[Sketch]) -> dict[str, int]:
    """The sum of sketches."""
    found: dict[str, int] = {}
    for sketch in sketches:
        for key, count in sketch.items():
            found[key] = found.get(key, 0) + count
    return found


def quantile(sketch: Sketch, share: float) -> float | None:
    """The value below which a share (0 to 1) of the values lies; 0 is the least one, 1 the greatest. None: empty."""
    wanted = max(1, math.ceil(share * sum(sketch.values())))
    upto = 0
    for key in sorted(sketch, key=int):
        upto += sketch[key]
        if upto >= wanted:
            return middle(int(key))
    return None


def mean(sketch: Sketch) -> float | None:
    """The mean of the values. None: empty."""
    total = sum(sketch.values())
    return sum(middle(int(key)) * count for key, count in sketch.items()) / total if total else None
