"""How many requests a minute the subjects may make that have such a limit, as every gateway keeps it in memory.

Those that are held are counted in PostgreSQL; this is for the others (`gateway.process.arrivals`).
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

TABLE = "billing_limit"  # its changes are noted by subject
QUERY = "select subject, value from billing_limit where measure = 'requests'"
CHANGED = QUERY + " and subject = any(%(subjects)s)"


def from_rows(rows: Iterable[tuple[Any, ...]]) -> dict[UUID, int]:
    """The limits by subject, from rows of `QUERY`."""
    return dict(rows)
