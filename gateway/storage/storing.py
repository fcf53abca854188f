"""Storing what is due: each period of a schedule once, its manifest last, whatever is killed meanwhile.

One worker of an installation stores at a time, by a lock that ends with its connection; a period after the other, so
that each begins in the ledger where the one before ended. A try is written down before it begins, and is made again
after a while, for as long as it takes: the periods after it wait. A manifest that is there already says that the
period is stored, by a worker that was killed before it could write that down; so nothing is stored twice. What was
killed before its manifest is done again under the same name, and nobody has been told that the first was whole.

A file is made on this machine's disk (EXPORT_DIR's, else where temporary files are), under no name, so that a killed
worker leaves nothing there; its manifest is read from itself, and parts of it can be sent again.
"""

import io
import json
import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from django.conf import settings
from django.db import connection

from accounts.sealing import CannotOpen
from billing.exports import periods
from billing.exports.manifest import manifest
from billing.models import ExportSchedule, StorageKind, StoredExport
from gateway.storage.bucket import Address, Bucket
from gateway.storage.folder import Folder
from gateway.storage.refusal import Refused
from routing.base_url import BadUrl
from routing.egress import ForbiddenAddress
from routing.outside import NoAnswer, Outside
from routing.provider_secret import UnusableSecret, read_aws_key

# After how long a try is made again; the last for all that follow.
BACK_OFF = tuple(timedelta(minutes=minutes) for minutes in (5, 15, 60, 240))
MOST_MANIFEST = 16_384  # bytes
MOST_SAID = 300  # characters of an error
MOST_PERIODS = 400  # of a schedule a run: a year of days
LOCK = "billing_exports"
HOLDS_LOCK = """
select exists (select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and granted
                  and database = (select oid from pg_database where datname = current_database())
                  and objid = (hashtext(%s)::bigint & 4294967295)::oid and objsubid = 1)
"""

logger = logging.getLogger(__name__)


class Place(Protocol):
    """Where files go."""

    def get(self, name: str, most: int) -> bytes | None:
        """What is under a name, if anything is."""

    def put(self, name: str, file: BinaryIO, size: int) -> None:
        """Puts `size` bytes under a name, in place of what was there."""


def store_due(client: Outside) -> int:
    """Stores what is due; how many periods that was. 0 while another stores."""
    with _alone() as alone:
        if not alone:
            return 0
        return sum(_store_periods(client, one) for one in ExportSchedule.objects.filter(active=True).order_by("name"))


def _store_periods(client: Outside, schedule: ExportSchedule) -> int:
    for count in range(MOST_PERIODS):
        with connection.cursor() as cursor:
            cursor.execute("select clock_timestamp()")
            (now,) = cursor.fetchone()
        start = periods.next_start(schedule)
        if not periods.is_due(schedule, start, now):
            return count
        ledger = periods.sealed_beyond(schedule, start)
        if ledger is None:
            return count
        period, _ = StoredExport.objects.get_or_create(schedule=schedule, start=start, defaults={"next_try_at": now})
        if period.next_try_at > now or not _store(client, period, ledger, now):
            return count
    return MOST_PERIODS


def _store(client: Outside, period: StoredExport, ledger: int, now: datetime) -> bool:
    """Makes a try; whether the period is stored."""
    period.tries += 1
    period.next_try_at = now + BACK_OFF[min(period.tries, len(BACK_OFF)) - 1]
    period.save(update_fields=["tries", "next_try_at"])
    try:
        told = _told(client, period, ledger)
    except (BadUrl, ForbiddenAddress) as error:
        why = f"not dialled: {error}"
    except (Refused, NoAnswer, OSError) as error:
        why = str(error) or type(error).__name__
    except CannotOpen:
        why = "the access key cannot be opened: type it again"
    except UnusableSecret as error:
        why = str(error)
    except Exception as error:  # one that nobody thought of must not keep the other schedules waiting
        logger.exception("an export was not stored")
        why = type(error).__name__
    else:
        period.state, period.last_error, period.upload = StoredExport.State.STORED, "", ""
        period.name, period.ledger = told["file"], told["ledger"]
        period.rows, period.late, period.bytes = told["rows"], told["late"], told["bytes"]
        period.sha256, period.stored_at = told["sha256"], now
        period.save()
        return True
    period.last_error = "".join(char if char.isprintable() else " " for char in why)[:MOST_SAID]
    period.save(update_fields=["last_error"])
    logger.warning("export %s was not stored: %s", period, period.last_error)
    return False


def _told(client: Outside, period: StoredExport, ledger: int) -> dict[str, Any]:
    """Stores it, and gives what its manifest says. Raises what the place does."""
    schedule, name = period.schedule, periods.file_name(period.schedule, period.start)
    place = _place(client, schedule, period)
    there = place.get(f"{name}.json", MOST_MANIFEST)
    if there is not None:
        return _same(there, schedule, period.start, name, ledger)
    if period.upload and isinstance(place, Bucket):
        place.forget(name, period.upload)
        _note_upload(period, "")
    if settings.EXPORT_DIR is not None:
        settings.EXPORT_DIR.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=settings.EXPORT_DIR) as file:
        late = periods.write(file, schedule, period.start, ledger)
        file.flush()
        size = file.seek(0, os.SEEK_END)
        told = manifest(Path(f"/dev/fd/{file.fileno()}"), periods.layout(schedule), schedule.format)
        told |= _identity(schedule, period.start, name)
        told |= {"to": str(schedule.after(period.start) - timedelta(days=1)), "late": late, "bytes": size}
        told |= {"organization": schedule.organization.slug if schedule.organization else None, "ledger": ledger}
        file.seek(0)
        place.put(name, file, size)
    _still_alone()
    content = json.dumps(told, indent=2).encode() + b"\n"
    place.put(f"{name}.json", io.BytesIO(content), len(content))
    return told


def _identity(schedule: ExportSchedule, start: date, name: str) -> dict[str, str]:
    """By what a manifest is known as this period's."""
    return {"schedule": str(schedule.pk), "from": str(start), "file": name}


def _same(content: bytes, schedule: ExportSchedule, start: date, name: str, ledger: int) -> dict[str, Any]:
    """What a manifest says that is there. Raises `Refused` when it is another one's."""
    wanted = _identity(schedule, start, name)
    try:
        told = json.loads(content)
        counts = [told[key] for key in ("rows", "late", "bytes")]
        whole = (
            {key: told[key] for key in wanted} == wanted
            and all(type(count) is int and 0 <= count < 2**63 for count in counts)
            and type(told["ledger"]) is int
            and periods.NOTHING <= told["ledger"] <= ledger
            and re.fullmatch("[0-9a-f]{64}", told["sha256"]) is not None
        )
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise Refused(f"{name}.json is there, and is not this schedule's")
    return dict(told)


def _place(client: Outside, schedule: ExportSchedule, period: StoredExport) -> Place:
    if schedule.kind == StorageKind.FOLDER:
        if settings.EXPORT_DIR is None:
            raise Refused("EXPORT_DIR is not set")
        return Folder(settings.EXPORT_DIR)
    address = Address(schedule.endpoint, schedule.region, schedule.bucket, schedule.path_style)
    return Bucket(client, address, read_aws_key(schedule.secret()), lambda upload: _note_upload(period, upload))


def _note_upload(period: StoredExport, upload: str) -> None:
    """Written down before its first part, so that a later try can give it up."""
    period.upload = upload
    period.save(update_fields=["upload"])


@contextmanager
def _alone() -> Iterator[bool]:
    """Whether nobody else stores while the block runs."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_try_advisory_lock(hashtext(%s))", [LOCK])
        (alone,) = cursor.fetchone()
    try:
        yield alone
    finally:
        if alone:
            with connection.cursor() as cursor:
                cursor.execute("select pg_advisory_unlock(hashtext(%s))", [LOCK])


def _still_alone() -> None:
    """Raises `Refused` when the lock has ended with its connection: another one may be at it."""
    with connection.cursor() as cursor:
        cursor.execute(HOLDS_LOCK, [LOCK])
        if cursor.fetchone() != (True,):
            raise Refused("the database was away meanwhile")
