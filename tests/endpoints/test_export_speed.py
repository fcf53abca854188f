"""Files of many rows: all of them come, and the process that makes them stays as large as it was.

`make exports` has a million rows of ordinary width, prints how fast each file is made, and wants 50,000 rows/s of CSV.
"""

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection

from billing.models import Usage
from tests.console.browser import make_usage
from tests.stage.cast import make_key, make_tenant
from tests.stage.product import Gateway, synchronize

ROWS = int(os.environ.get("EXPORTED_ROWS", "12000"))
WHOLE = ROWS >= 1_000_000
WIDE = "" if WHOLE else "x" * 1500
RATE = 50_000  # rows/s
JULY = {"starting_at": "2026-07-01", "ending_at": "2026-07-31"}
# MiB that the process may grow by: a page and what it is packed into; of Parquet pyarrow itself and a row group.
GROWTH = {"csv": 16, "xlsx": 24, "parquet": 260}


@pytest.fixture(scope="module")
def secret(database: None) -> Iterator[str]:
    """The secret of an export key whose organization has so many generations in July."""
    tenant = make_tenant("alice")
    _, secret = make_key(tenant.project, name="for finance", scopes=["export"])
    metadata = {"team": "core"}
    first = make_usage(tenant, datetime(2026, 7, 2, tzinfo=UTC), end_user=f"u-1{WIDE}", app="Sheets", metadata=metadata)
    columns = [str(field.column) for field in Usage._meta.concrete_fields]
    later = "(lpad(to_hex(('x' || left(replace(u.id::text, '-', ''), 12))::bit(48)::bigint + n), 12, '0')"
    made = [
        f"{later} || '70008000' || lpad(to_hex(n), 12, '0'))::uuid" if name == "id" else f"u.{name}" for name in columns
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            f"insert into billing_usage ({', '.join(columns)}) select {', '.join(made)}"  # noqa: S608 - names of ours
            " from billing_usage u cross join generate_series(1, %s) n where u.id = %s",
            [ROWS - 1, first.pk],
        )
    yield secret
    Usage.objects.filter(organization=tenant.organization.pk).delete()


def peak(gateway: Gateway) -> int:
    """The most memory the process has held since it was asked last, in KiB."""
    process = Path(f"/proc/{gateway.process.pid}")
    found = re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())
    assert found is not None
    (process / "clear_refs").write_text("5")
    return int(found[1])


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("layout", "format", "coding"),
    [
        ("generations", "csv", "identity"),
        ("generations", "csv", "gzip"),
        ("focus-1.2", "csv", "identity"),
        ("generations", "xlsx", "identity"),
        ("generations", "parquet", "identity"),
    ],
)
def test_a_large_file_comes_whole_and_is_not_kept(
    gateway: Gateway, secret: str, layout: str, format: str, coding: str
) -> None:
    synchronize(gateway)
    headers = {"Authorization": f"Bearer {secret}", "Accept-Encoding": coding}
    asked = {**JULY, "layout": layout, "format": format}
    peak(gateway)
    before, size, lines, began = peak(gateway), 0, 0, time.perf_counter()
    with gateway.client.stream(
        "GET", "/v1/exports/generations", params=asked, headers=headers, timeout=timedelta(minutes=15).seconds
    ) as answer:
        assert answer.status_code == 200
        for piece in answer.iter_bytes():
            size += len(piece)
            lines += piece.count(b"\n")  # a piece may end between the two
    took = time.perf_counter() - began
    grown = (peak(gateway) - before) // 1024
    print(f"{layout} {format} {coding}: {ROWS / took:,.0f} generations/s, {size / 1e6:,.0f} MB, {grown} MiB more")
    assert grown < GROWTH[format]
    if format == "csv":
        assert lines == 1 + ROWS * (2 if layout == "focus-1.2" else 1)
        assert not WHOLE or layout == "focus-1.2" or ROWS / took > RATE
