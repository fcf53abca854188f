"""Exports on a schedule: each period once, whole, of whom it is of alone; whatever is killed, late or forbidden."""

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.core.exceptions import ValidationError
from django.utils import timezone

from billing.exports import periods
from billing.exports.generations import OPERATORS
from billing.exports.pages import FORMATS, LAYOUTS
from billing.models import ExportSchedule, StoredExport, Usage
from billing.schedules import ExportFormat, ExportLayout
from billing.sealing import seal
from gateway.storage.storing import store_due
from routing.egress import Egress, parse_allow
from routing.outside import Answer, Outside
from tests.console.browser import make_usage
from tests.console.test_replays import worker
from tests.stage.backbone import database, owner_url
from tests.stage.books import forced
from tests.stage.bucket import Storage
from tests.stage.cast import Tenant, make_tenant
from tests.stage.hook import hook
from tests.stage.product import Gateway, until

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def nothing_is_due() -> Iterator[None]:
    """What a test has left to be stored nobody stores after it."""
    yield
    ExportSchedule.objects.update(active=False)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A period is due as soon as it is over: whatever the hour, the same ones are."""
    monkeypatch.setattr(periods, "GRACE", timedelta(0))


def midnight(days_ago: int) -> datetime:
    now = timezone.now()
    return datetime.combine(now.date(), time(), now.tzinfo) - days_ago * DAY


def settle(tenant: Tenant, at: datetime, **fields: Any) -> Usage:
    row = make_usage(tenant, at, **fields)
    forced("select billing_close(array[%s::uuid])", row.pk)
    return row


def schedule(s3: Storage, tenant: Tenant | None, bucket: str, **fields: Any) -> ExportSchedule:
    """One that stores days, from yesterday on."""
    row = {"name": f"of-{bucket}", "every": "day", "first": midnight(1).date(), "endpoint": s3.url, **fields}
    made = ExportSchedule(organization=tenant.organization if tenant else None, bucket=bucket, path_style=True, **row)
    made.put(s3.secret)
    made.full_clean()
    made.save()
    return made


def client_of(*allowed: str) -> Outside:
    return Outside(Egress(parse_allow(list(allowed))))


def store(client: Outside, made: ExportSchedule) -> int:
    """Stores what is due, with a worker's rights, as somebody has asked: what is to be tried later is tried now."""
    seal()
    made.periods.update(next_try_at=timezone.now())
    with worker():
        return store_due(client)


def rows(file: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.decode(), newline=""), strict=True))


def test_a_model_offers_what_there_is() -> None:
    assert (ExportLayout.values, ExportFormat.values) == (list(LAYOUTS), list(FORMATS))


def test_a_day_is_stored_once_of_its_organization_alone(
    s3: Storage, alice: Tenant, charlie: Tenant, at_once: None
) -> None:
    s3.make("once")
    made = schedule(s3, alice, "once", prefix="finance/meterline")
    inside = [settle(alice, midnight(1), end_user="=HYPERLINK(1)"), settle(alice, midnight(0) - timedelta(seconds=1))]
    for tenant, at in ((alice, midnight(2)), (alice, midnight(0)), (charlie, midnight(1))):
        settle(tenant, at)
    assert store(client_of(s3.url), made) == 1
    name = f"finance/meterline/of-once/generations-{midnight(1):%Y-%m-%d}.csv"
    files = s3.files("once")
    assert set(files) == {name, f"{name}.json"}
    assert [row["id"] for row in rows(files[name])] == [row.pk.hex for row in inside]
    first = rows(files[name])[0]
    assert first["end_user"] == "'=HYPERLINK(1)" and not OPERATORS & set(first)
    told, digest = json.loads(files[f"{name}.json"]), hashlib.sha256(files[name]).hexdigest()
    period = StoredExport.objects.get(schedule=made)
    assert told == {
        "layout": "generations", "format": "csv", "rows": 2, "unpriced": 0, "charge": "0.002640000000",
        "overrun": "0.000000000000", "prompt_tokens": "2000", "completion_tokens": "1000", "sha256": digest,
        "schedule": str(made.pk), "from": f"{midnight(1):%Y-%m-%d}", "file": name, "to": f"{midnight(1):%Y-%m-%d}",
        "late": 0, "bytes": len(files[name]), "organization": alice.organization.slug, "ledger": period.ledger,
    }  # fmt: skip
    assert (period.state, period.tries, period.rows, period.sha256, period.last_error) == ("stored", 1, 2, digest, "")
    assert store(client_of(), made) == 0  # which would not be let out


def test_a_month_of_everybody_in_each_layout_has_what_the_operator_pays(
    s3: Storage, alice: Tenant, charlie: Tenant, at_once: None
) -> None:
    s3.make("months")
    first = (midnight(0).replace(day=1) - DAY).replace(day=1)
    both = {settle(tenant, first + at).pk.hex for tenant in (alice, charlie) for at in (timedelta(0), DAY)}
    empty = make_tenant("empty")
    for format in FORMATS:
        made = schedule(s3, empty, "months", name=f"empty-{format}", format=format)
        assert store(client_of(s3.url), made) == 1
        told = json.loads(s3.files("months")[f"{periods.file_name(made, made.first)}.json"])
        assert (told["rows"], told["charge"]) == (0, "0")
    for layout, format in (("generations", "parquet"), ("focus-1.4", "xlsx")):
        made = schedule(s3, None, "months", name=f"all-{format}", every="month", first=first.date(), layout=layout,
                        format=format)  # fmt: skip
        assert store(client_of(s3.url), made) == 1
        name = f"all-{format}/{layout}-{first:%Y-%m}.{format}"
        told = json.loads(s3.files("months")[f"{name}.json"])
        assert (told["to"], told["organization"]) == (f"{midnight(0).replace(day=1) - DAY:%Y-%m-%d}", None)
        if layout == "generations":
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(io.BytesIO(s3.files("months")[name]))
            assert both <= set(table["id"].to_pylist()) and "provider_cost" in told
            assert told["rows"] == table.num_rows


class Killed(BaseException):
    """A worker ends here."""


class Dying(Outside):
    """Ends before its request number `at` is sent, or after its answer has come."""

    def __init__(self, url: str, at: int, after: bool) -> None:
        super().__init__(Egress(parse_allow([url])))
        self.left, self.after = at, after

    def ask(self, *args: Any, **kwargs: Any) -> Answer:
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Killed
        answer = super().ask(*args, **kwargs)
        if self.left < 0:
            raise Killed
        return answer


def test_whenever_a_worker_is_killed_each_period_is_stored_once_and_whole(
    s3: Storage, alice: Tenant, at_once: None
) -> None:
    s3.make("killed")
    row = settle(alice, midnight(1))
    tries = {}
    for at in range(3):
        for after in {False, at == 2}:  # what is before a request is after the one before
            made = schedule(s3, alice, "killed", name=f"killed-{at}-{'after' if after else 'before'}")
            with pytest.raises(Killed):
                store(Dying(s3.url, at, after), made)
            name = periods.file_name(made, made.first)
            manifest = s3.files("killed").get(f"{name}.json")
            assert (manifest is not None) == (at == 2 and after)
            assert store(client_of(s3.url), made) == 1
            files = s3.files("killed")
            told = json.loads(files[f"{name}.json"])
            assert [one["id"] for one in rows(files[name])] == [row.pk.hex]
            assert manifest in (None, files[f"{name}.json"])  # what was told is never taken back
            period = StoredExport.objects.get(schedule=made)
            assert (period.state, period.rows, period.ledger) == ("stored", 1, told["ledger"])
            tries[at, after] = period.tries
            assert store(client_of(), made) == 0
    assert set(tries.values()) == {2}
    assert len(s3.files("killed")) == 2 * len(tries)


def test_parts_that_a_killed_worker_has_left_are_given_up(s3: Storage, alice: Tenant, at_once: None) -> None:
    s3.make("parts")
    made = schedule(s3, alice, "parts")
    name = periods.file_name(made, made.first)
    left = s3.client.create_multipart_upload(Bucket="parts", Key=name)["UploadId"]
    s3.client.upload_part(Bucket="parts", Key=name, UploadId=left, PartNumber=1, Body=b"half")
    period = StoredExport.objects.create(
        schedule=made, start=made.first, tries=1, upload=left, next_try_at=timezone.now()
    )
    assert s3.unfinished("parts") == [left]
    assert store(client_of(s3.url), made) == 1
    period.refresh_from_db()
    assert (period.state, period.tries, period.upload) == ("stored", 2, "")
    assert s3.unfinished("parts") == [] and set(s3.files("parts")) == {name, f"{name}.json"}


def test_what_settles_late_or_is_corrected_is_in_the_next_file_and_no_generation_in_none(
    s3: Storage, alice: Tenant, charlie: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.make("late")
    made = schedule(s3, alice, "late", first=midnight(2).date())
    monkeypatch.setattr(periods, "GRACE", DAY)
    early = settle(alice, midnight(2) + timedelta(hours=1))
    dead = settle(alice, midnight(2) + timedelta(hours=2), status="abandoned", charge=Decimal(0), provider_cost=None)
    settle(alice, midnight(3))  # from before its first day
    seal()
    unsealed = settle(alice, midnight(2) + timedelta(hours=3))
    with worker():
        assert store_due(client_of(s3.url)) == 1
    late = settle(alice, midnight(1) - timedelta(seconds=1))
    settle(charlie, midnight(1) - timedelta(seconds=2))
    own = settle(alice, midnight(1))
    forced("update billing_usage set status = 'completed', charge = 5 where id = %s", dead.pk)
    forced("select billing_close(array[%s::uuid])", dead.pk)
    monkeypatch.setattr(periods, "GRACE", timedelta(0))
    assert store(client_of(s3.url), made) == 1
    first, second = (periods.file_name(made, midnight(days).date()) for days in (2, 1))
    files = s3.files("late")
    assert [row["id"] for row in rows(files[first])] == [early.pk.hex, dead.pk.hex]
    found = rows(files[second])
    assert [row["id"] for row in found] == [row.pk.hex for row in (dead, unsealed, late, own)]
    assert Decimal(found[0]["charge"]) == 5
    assert [json.loads(files[f"{name}.json"])["late"] for name in (first, second)] == [0, 3]


def test_nothing_is_stored_before_the_ledger_is_sealed_beyond_the_period(
    s3: Storage, alice: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = schedule(s3, alice, "unsealed")
    seal()
    monkeypatch.setattr(periods, "SEALED_AT", "select now() - interval '2 days'")
    with worker():
        assert store_due(client_of()) == 0
    assert not made.periods.exists()


def test_inner_addresses_are_not_dialled_and_a_wrong_key_is_told(s3: Storage, alice: Tenant, at_once: None) -> None:
    with hook() as inside:
        made = schedule(s3, alice, "inside", endpoint=inside.url)
        assert store(client_of(), made) == 0
        period = StoredExport.objects.get(schedule=made)
        assert period.last_error.startswith("not dialled: ") and inside.got == []
        assert store(client_of(inside.url), made) == 0  # it says 200 and ok to all
        period.refresh_from_db()
        assert period.last_error == f"{periods.file_name(made, made.first)}.json is there, and is not this schedule's"
        assert [got.line.partition(" ")[0] for got in inside.got] == ["GET"]
    s3.make("wrong-key")
    other = schedule(s3, alice, "wrong-key")
    other.put(s3.secret.partition(":")[0] + ":another")
    other.save()
    assert store(client_of(s3.url), other) == 0
    period = StoredExport.objects.get(schedule=other)
    assert (period.state, period.tries, period.last_error) == ("waiting", 1, "status 403 SignatureDoesNotMatch")
    assert period.next_try_at > timezone.now()
    with worker():
        assert store_due(client_of(s3.url)) == 0  # its time has not come; nobody has asked for it
    assert StoredExport.objects.get(schedule=other).tries == 1
    other.put(s3.secret)
    other.save()
    assert store(client_of(s3.url), other) == 1


def test_a_name_that_is_another_ones_stays(s3: Storage, alice: Tenant, at_once: None) -> None:
    s3.make("taken")
    made = schedule(s3, alice, "taken")
    name = periods.file_name(made, made.first)
    s3.client.put_object(Bucket="taken", Key=f"{name}.json", Body=b'{"schedule": "another"}')
    assert store(client_of(s3.url), made) == 0
    assert s3.files("taken") == {f"{name}.json": b'{"schedule": "another"}'}


def test_what_fails_is_counted_in_the_metrics(s3: Storage, alice: Tenant, at_once: None, gateway: Gateway) -> None:
    made = schedule(s3, alice, "counted")

    def told(count: int) -> bool:
        return f"meterline_exports_failing {count}.0\n" in gateway.client.get("/metrics").text

    until(lambda: told(0))
    assert store(client_of(), made) == 0
    until(lambda: told(1))
    ExportSchedule.objects.filter(pk=made.pk).update(active=False)
    until(lambda: told(0))


def test_one_stores_at_a_time(s3: Storage, alice: Tenant, at_once: None) -> None:
    made = schedule(s3, alice, "alone")
    with database(owner_url()) as other:
        other.execute("select pg_advisory_lock(hashtext('billing_exports'))")
        assert store(client_of(), made) == 0
        assert not made.periods.exists()


# --- folders ---------------------------------------------------------------------------------------------------------


def folder(tenant: Tenant, name: str, **fields: Any) -> ExportSchedule:
    made = ExportSchedule(
        name=name, organization=tenant.organization, kind="folder", every="day", first=midnight(1).date(), **fields
    )
    made.full_clean()
    made.save()
    return made


def test_a_folder_has_whole_files_that_nobody_else_reads(
    alice: Tenant, at_once: None, settings: LazySettings, tmp_path: Path
) -> None:
    settings.EXPORT_DIR = tmp_path / "exports"
    row = settle(alice, midnight(1))
    made = folder(alice, "nightly", prefix="a/b")
    assert store(client_of(), made) == 1
    name = f"generations-{midnight(1):%Y-%m-%d}.csv"
    there = sorted((tmp_path / "exports" / "a" / "b" / "nightly").iterdir())
    assert [path.name for path in there] == [name, f"{name}.json"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in there)
    assert [one["id"] for one in rows(there[0].read_bytes())] == [row.pk.hex]
    assert json.loads(there[1].read_text())["sha256"] == hashlib.sha256(there[0].read_bytes()).hexdigest()
    assert store(client_of(), made) == 0


def test_nothing_is_written_outside_of_the_folder(
    alice: Tenant, at_once: None, settings: LazySettings, tmp_path: Path
) -> None:
    for prefix in ("..", "a/../b", "/etc", "a//b", "./a", "a/..", "a\\b", "a\n", "a%2e", "...", "a/", "é"):
        with pytest.raises(ValidationError):
            folder(alice, "traversal", prefix=prefix)
    for name in ("..", "a/b", "A", "a.b", ""):
        with pytest.raises(ValidationError):
            folder(alice, name)
    settings.EXPORT_DIR, elsewhere = tmp_path / "exports", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "exports").mkdir()
    (tmp_path / "exports" / "linked").symlink_to(elsewhere)
    made = folder(alice, "traversal", prefix="linked")
    assert store(client_of(), made) == 0
    assert "is not below EXPORT_DIR" in StoredExport.objects.get(schedule=made).last_error
    assert list(elsewhere.iterdir()) == []
    settings.EXPORT_DIR = None
    assert store(client_of(), made) == 0
    assert StoredExport.objects.get(schedule=made).last_error == "EXPORT_DIR is not set"


def test_what_does_not_go_together_is_refused(s3: Storage, alice: Tenant) -> None:
    for wrong in (
        {"every": "month", "first": date(2026, 6, 2)},
        {"endpoint": ""},
        {"bucket": ""},
        {"bucket": "a.b", "path_style": False},
        {"bucket": "a/b"},
        {"bucket": "Upper"},
        {"region": "a b"},
    ):
        made = ExportSchedule(**{"name": "wrong", "endpoint": s3.url, "bucket": "fine", **wrong})
        with pytest.raises(ValidationError) as caught:
            made.full_clean()
        assert set(caught.value.error_dict) & {"first", "endpoint", "bucket", "path_style", "region"}
