"""Generations as CSV: every row once and to the last digit, no cell a formula, memory bounded by a page."""

import csv
import gzip
import io
import json
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from django.db import connection
from django.db.models import QuerySet, Sum
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import User
from billing.exports.csv_file import CsvFile, text_cell
from billing.exports.generations import COLUMNS, GENERATIONS
from billing.exports.manifest import READERS
from billing.exports.pages import chunks
from billing.exports.streams import gzipped, takes_gzip
from billing.models import Usage
from tests.console.browser import make_usage
from tests.stage.cast import Tenant, make_tenant
from tests.stage.product import Gateway, launch, until

MARKS = "=+-@\t\r\n\0\uff1d\uff0b\uff0d\uff20"


def read(text: str) -> list[dict[str, str]]:
    """A file's rows, as a strict reader sees them."""
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def exported(tenant: Tenant, page: int = 2000) -> str:
    """The file of all of `tenant`'s generations."""
    return generations_csv(Usage.objects.filter(organization=tenant.organization.pk), page)


def generations_csv(found: QuerySet[Usage], page: int = 2000, after: UUID | None = None) -> str:
    """The file of `found`, or the rest of it."""
    return b"".join(chunks(found, CsvFile(GENERATIONS), GENERATIONS, page, after)).decode()


def test_it_works(alice: Tenant) -> None:
    at = datetime(2026, 3, 14, 15, 9, 26, 535000, tzinfo=UTC)
    usage = make_usage(
        alice,
        at=at,
        upstream_id="chatcmpl-1",
        end_user='quote " comma , line\r\nbreak',
        app="Sheets",
        metadata={"team": "émea", "note": '=1"'},
        charge=Decimal("0.000000000001"),
        provider_cost=None,
        ttft_ms=None,
        duration_ms=2100,
        tariff_version=7,
    )
    text = exported(alice)
    assert text.splitlines()[0] == ",".join(f'"{name}"' for name in COLUMNS)
    (row,) = read(text)
    expected: dict[str, str] = {
        "id": usage.pk.hex,
        "created_at": "2026-03-14T15:09:26.535000Z",
        "settled_at": "2026-03-14T15:09:26.535000Z",
        "organization_slug": alice.organization.slug,
        "project_slug": "main",
        "key_name": "key",
        "organization": alice.organization.pk.hex,
        "project": alice.project.pk.hex,
        "key": alice.key.pk.hex,
        "model": "lab/model",
        "provider": "vendor",
        "upstream_model": "model-1",
        "upstream_id": "chatcmpl-1",
        "service_tier": "",
        "stream": "true",
        "end_user": 'quote " comma , line\r\nbreak',
        "app": "Sheets",
        "status": "completed",
        "error": "",
        "finish_reason": "",
        "attempts": "1",
        "ttft_ms": "",
        "duration_ms": "2100",
        "prompt_tokens": "1000",
        "completion_tokens": "500",
        "cached_tokens": "0",
        "cache_write_5m_tokens": "0",
        "cache_write_1h_tokens": "0",
        "audio_input_tokens": "0",
        "image_input_tokens": "0",
        "reasoning_tokens": "0",
        "audio_output_tokens": "0",
        "web_searches": "0",
        "video_input_tokens": "0",
        "image_output_tokens": "0",
        "images": "0",
        "seconds": "0",
        "basis": "reported",
        "suspect": "false",
        "tariff_version": "7",
        "charge": "0.000000000001",
        "provider_cost": "",
        "overrun": "0.000000000000",
        "metadata": row["metadata"],
    }
    assert row == expected
    assert json.loads(row["metadata"]) == {"team": "émea", "note": '=1"'}
    assert ",7,0.000000000001,,0.000000000000," in text, "numbers are not quoted"


def test_the_sum_of_the_file_is_the_sum_of_the_rows(alice: Tenant, charlie: Tenant) -> None:
    now = timezone.now()
    for number in range(25):
        charge = None if number == 7 else Decimal(number) * Decimal("0.000000000001") + Decimal(secrets.randbelow(99))
        make_usage(alice, at=now + timedelta(milliseconds=number // 2), charge=charge, provider_cost=charge)
        make_usage(charlie, at=now + timedelta(milliseconds=number), charge=Decimal(1000))
    rows = Usage.objects.filter(organization=alice.organization.pk)
    ids = [pk.hex for pk in rows.order_by("pk").values_list("pk", flat=True)]
    for page in (1, 3, 5, 25, 26, 2000):
        file = read(exported(alice, page))
        assert [row["id"] for row in file] == ids
        total = sum((Decimal(row["charge"]) for row in file if row["charge"]), Decimal(0))
        assert total == rows.aggregate(total=Sum("charge"))["total"]


def test_no_rows_are_a_header(alice: Tenant) -> None:
    assert exported(alice) == ",".join(f'"{name}"' for name in COLUMNS) + "\r\n"


def written(text: str | None) -> str:
    """A cell of a text, as the server writes it."""
    with connection.cursor() as cursor:
        cursor.execute(f"select coalesce({text_cell('t')}, '') from (select %s::text as t) one", [text])  # noqa: S608
        ((found,),) = cursor.fetchall()
    return str(found)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", '"\'=1+1"'),
        ("+1", '"\'+1"'),
        ("-1", '"\'-1"'),
        ("@SUM(A1)", '"\'@SUM(A1)"'),
        ("\t=1", '"\'\t=1"'),
        ("\rx", '"\'\rx"'),
        ("\nx", '"\'\nx"'),
        ("\uff1d1", '"\'\uff1d1"'),
        ("\uff0b1", '"\'\uff0b1"'),
        ("\uff0d1", '"\'\uff0d1"'),
        ("\uff20x", '"\'\uff20x"'),
        (" =1", '"\' =1"'),
        ("\u00a0\ufeff=1", '"\'\u00a0\ufeff=1"'),
        ("\u2003\u200b\x1f\x85=1", '"\'\u2003\u200b\x1f\x85=1"'),
        ("=cmd|' /C calc'!A1\",\"x", '"\'=cmd|\' /C calc\'!A1"",""x"'),
        ("a;=1", '"a;=1"'),
        ("a=1", '"a=1"'),
        ("'=1", '"\'=1"'),
        ("(a)", '"(a)"'),
        ("\u00e9=1", '"\u00e9=1"'),
        ("", '""'),
        (None, ""),
    ],
)
def test_a_text(text: str | None, cell: str) -> None:
    assert written(text) == cell


# PostgreSQL holds no NUL in a text.
HELD = st.characters(exclude_characters="\0", exclude_categories=["Cs"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(HELD) | st.text(alphabet=MARKS.replace("\0", "") + " \"',;a\ufeff\u200b", max_size=6))
def test_a_text_is_never_a_formula_and_never_lost(text: str) -> None:
    cell = written(text)
    assert cell[0] == cell[-1] == '"'
    shown = cell[1:-1].replace('""', '"')
    assert shown in (text, f"'{text}")
    assert shown[:1] not in set(MARKS) and shown.lstrip()[:1] not in set(MARKS)
    assert next(csv.reader(io.StringIO(f"{cell},1\r\n", newline=""), strict=True)) == [shown, "1"]


@pytest.mark.parametrize("amount", ["0.000000000001", "999999999999.999999999999", "0", "1000", None])
def test_an_amount_is_exact_and_has_no_exponent(alice: Tenant, amount: str | None) -> None:
    make_usage(alice, charge=amount and Decimal(amount))
    (row,) = read(exported(alice))
    assert row["charge"] == ("" if amount is None else f"{Decimal(amount):.12f}")


def test_it_goes_on_where_it_broke_off(alice: Tenant) -> None:
    rows = [make_usage(alice, at=timezone.now() - timedelta(minutes=n)) for n in (3, 2, 1)]
    whole = exported(alice)
    mine = Usage.objects.filter(organization=alice.organization.pk)
    for number, row in enumerate(rows, 2):
        rest = generations_csv(mine, 1, after=row.pk)
        assert rest == "".join(whole.splitlines(keepends=True)[number:])


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        *(("gzip", True), ("br, gzip;q=0.5", True), ("*", True), ("x-gzip", True), ("GZIP ; q=1", True)),
        *(("", False), ("identity", False), ("gzip;q=0", False), ("br, gzip; q=0.0", False), ("gzippy", False)),
    ],
)
def test_who_takes_gzip(said: str, taken: bool) -> None:
    assert takes_gzip(said) == taken


def test_a_gzipped_file_can_be_read_as_it_comes() -> None:
    pieces = [b"a" * 1000, b"", b"b,\r\n" * 1000]
    reader, seen = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), b""
    *begun, end = gzipped(pieces)
    for piece, zipped in zip(pieces, begun, strict=True):
        seen += piece
        assert reader.decompress(zipped) == piece and not reader.eof
    reader.decompress(end)
    assert reader.eof and gzip.decompress(b"".join([*begun, end])) == seen


@pytest.fixture(scope="module")
def server(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A process that serves the console, under the console's role."""
    process = launch(tmp_path_factory.mktemp("console"), SERVE="console")

    def answers() -> bool:
        try:
            return process.client.get("/console/login/").status_code == 200
        except httpx.HTTPError:
            return False

    try:
        until(answers, 30)
        yield process
    finally:
        process.stop()


@contextmanager
def log_in(server: Gateway, *, superuser: bool = True) -> Iterator[httpx.Client]:
    """A browser's session with the console."""
    name, password = f"op-{secrets.token_hex(4)}", secrets.token_urlsafe()
    User.objects.create_user(name, password=password, is_staff=True, is_superuser=superuser)
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        client.get("/console/login/")
        fields = {"username": name, "password": password, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        assert client.post("/console/login/", data=fields).status_code == 302
        yield client


EXPORT = "/console/billing/usage/export/"


def test_the_console_exports_what_is_filtered(server: Gateway, alice: Tenant, charlie: Tenant) -> None:
    failed = make_usage(alice, status="failed")
    wanted = [make_usage(alice, at=timezone.now() - timedelta(minutes=n)) for n in (3, 2, 1)]
    make_usage(charlie)
    make_usage(alice, at=timezone.now() - timedelta(days=30))
    with log_in(server) as client:
        asked = {"organization": str(alice.organization.pk), "status": "completed"}
        before = timezone.now()
        page = client.get("/console/billing/usage/", params=asked)
        assert f"{EXPORT}?organization={alice.organization.pk}&amp;status=completed" in page.text
        response = client.get(EXPORT, params=asked)
        everything = client.get(EXPORT, params={**asked, "status": "", "created_at_from_0": "2020-01-01"})
        nothing = client.get(EXPORT, params={**asked, "created_at_from_0": "nonsense"})
        plain = client.get(EXPORT, params=asked, headers={"Accept-Encoding": "identity"})
    assert response.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert response.text == plain.text
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    named = response.headers["content-disposition"]
    bound = datetime.strptime(named, 'attachment; filename="generations-until-%Y%m%dT%H%M%S.%fZ.csv"').replace(
        tzinfo=UTC
    )
    assert before <= bound <= timezone.now()
    assert "no-store" in response.headers["cache-control"]
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    assert [row["id"] for row in read(response.text)] == [usage.pk.hex for usage in wanted]
    assert len(read(everything.text)) == 5 and failed.pk.hex in everything.text
    assert read(nothing.text) == []


def test_the_console_exports_each_layout_in_each_format(server: Gateway, alice: Tenant, tmp_path: Path) -> None:
    usage = make_usage(alice)
    make_usage(alice, status="failed")
    asked = {"organization": str(alice.organization.pk), "status": "completed"}
    with log_in(server) as client:
        page = client.get("/console/billing/usage/", params=asked).text
        for layout, name in (("generations", "id"), ("focus-1.2", "x_GenerationId"), ("focus-1.4", "x_GenerationId")):
            for format, reader in READERS.items():
                path = f"{EXPORT}{layout}/{format}/"
                answer = client.get(path, params=asked)
                assert answer.status_code == 200 and answer.headers["content-disposition"].endswith(f'.{format}"')
                file = tmp_path / f"{layout}.{format}"
                file.write_bytes(answer.content)
                assert {row[name] for row in reader(file, (name,))} == {usage.pk.hex}
                offered = (layout == "generations" and format != "csv") or (layout, format) == ("focus-1.2", "csv")
                assert (f"{path}?organization=" in page) == offered
        for path in ("nonsense/csv/", "generations/pdf/", "focus-1.3/csv/"):
            assert client.get(EXPORT + path, params=asked).status_code == 404
    with log_in(server, superuser=False) as client:
        assert client.get(f"{EXPORT}focus-1.2/csv/").status_code == 403


def test_the_console_exports_nothing_to_others(server: Gateway, alice: Tenant) -> None:
    make_usage(alice)
    with httpx.Client(base_url=server.url, trust_env=False) as stranger:
        assert stranger.get(EXPORT).headers["location"] == f"/console/login/?next={EXPORT}"
    with log_in(server, superuser=False) as client:
        assert client.get(EXPORT).status_code == 403
    with log_in(server) as client:
        assert client.get(EXPORT, params={"metadata__regex": "a"}).status_code == 400


def peak(server: Gateway) -> int:
    """The most memory the process has held, in KiB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


ROWS = 25_000
WIDE = "x" * 700  # a row makes a kilobyte
COPY_ROWS = """
insert into billing_usage
select (jsonb_populate_record(u, jsonb_build_object('id', lpad(to_hex(('x' || left(replace(u.id::text, '-', ''), 12))
           ::bit(48)::bigint + n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0')))).*
  from billing_usage u cross join generate_series(1, %s) n where u.id = %s
"""


def test_a_large_export_streams(server: Gateway) -> None:
    tenant = make_tenant("alice")
    first = make_usage(tenant, at=timezone.now() - timedelta(hours=1), end_user=WIDE)
    with connection.cursor() as cursor:
        cursor.execute(COPY_ROWS, [ROWS - 1, first.pk])
    asked = {"organization": str(tenant.organization.pk)}
    with log_in(server) as client:
        client.get(EXPORT, params={**asked, "status": "failed"})
        before = peak(server)
        size, lines = 0, 0
        with client.stream("GET", EXPORT, params=asked) as response:
            for chunk in response.iter_bytes():
                size += len(chunk)
                lines += chunk.count(b"\n")
        assert client.get("/console/").status_code == 200
    assert lines == ROWS + 1
    assert size > 25_000_000
    assert (peak(server) - before) * 1024 < size / 3, "the file was held in memory"
    Usage.objects.filter(organization=tenant.organization.pk).delete()


def test_a_reader_who_leaves_frees_the_connection(server: Gateway) -> None:
    tenant = make_tenant("alice")
    first = make_usage(tenant, at=timezone.now() - timedelta(hours=1), end_user=WIDE)
    with connection.cursor() as cursor:
        cursor.execute(COPY_ROWS, [8_000, first.pk])
    with log_in(server) as client:
        with client.stream("GET", EXPORT, params={"organization": str(tenant.organization.pk)}) as response:
            next(response.iter_raw())
            with connection.cursor() as cursor:
                cursor.execute(
                    "select count(*) from pg_stat_activity where datname = current_database() and "
                    "state = 'idle in transaction' and query like '%%billing_usage%%'"
                )
                assert cursor.fetchone() == (0,), "a transaction is open while the reader reads"
        assert client.get("/console/").status_code == 200

    def console_connections() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "select count(*) from pg_stat_activity where datname = current_database() "
                "and usename like '%%console%%' and query like '%%billing_usage%%' and state <> 'active'"
            )
            return int(cursor.fetchone()[0])

    until(lambda: console_connections() == 0, 20)
    Usage.objects.filter(organization=tenant.organization.pk).delete()
