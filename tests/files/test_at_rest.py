"""Uploaded files in the database: sealed, shown to operators without their content, deleted when their time is over."""

import os
import secrets
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import openai
import pytest
from django.conf import LazySettings
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection, transaction
from django.utils import timezone

from accounts.sealing import CannotOpen, current_head, open_bytes
from billing.backbone.connections import Connections
from billing.ids import new_id
from gateway.celery import app
from gateway.files.store import STORE, Files, file_id, place
from gateway.management.commands.reseal_files import reseal_files, under_other_keys
from gateway.models import StoredFile
from gateway.wire.errors import Unavailable
from tests.console.browser import console, console_role, url
from tests.files.cabinet import PDF, files_key, row, sdk, upload
from tests.stage.cast import Tenant
from tests.stage.product import ROOT, Gateway, environment, free_port


@pytest.fixture
def mine(gateway: Gateway, alice: Tenant) -> Iterator[openai.OpenAI]:
    """Alice's client."""
    with sdk(gateway, files_key(alice)) as client:
        yield client


@pytest.fixture
def theirs(gateway: Gateway, charlie: Tenant) -> Iterator[openai.OpenAI]:
    """Charlie's client."""
    with sdk(gateway, files_key(charlie)) as client:
        yield client


def test_content_is_sealed_for_its_file_and_project(mine: openai.OpenAI, theirs: openai.OpenAI, alice: Tenant) -> None:
    canary = secrets.token_bytes(64)
    stored, other = row(upload(mine, canary).id), row(upload(theirs, canary).id)
    sealed = bytes(stored.content)
    assert len(sealed) == 11 + 12 + 64 + 16
    assert not any(canary[at : at + 8] in sealed for at in range(57))
    assert open_bytes(sealed, place(stored.id, alice.project.id)) == canary
    for elsewhere in (place(other.id, alice.project.id), place(stored.id, other.project_id)):
        with pytest.raises(CannotOpen):
            open_bytes(sealed, elsewhere)
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for broken in (changed, sealed[:30], sealed[:15], b"", b"2" + sealed[1:]):
        with pytest.raises(CannotOpen):
            open_bytes(broken, place(stored.id, alice.project.id))


def test_a_row_copied_to_another_does_not_open(mine: openai.OpenAI, theirs: openai.OpenAI) -> None:
    secret, bait = row(upload(mine, b"Alice's secret").id), row(upload(theirs, b"Charlie's bait").id)
    StoredFile.objects.filter(pk=bait.pk).update(content=secret.content)
    with pytest.raises(openai.InternalServerError) as caught:
        theirs.files.content(file_id(bait.pk))
    assert caught.value.code == "file_unreadable"


def test_a_large_file_comes_back_as_it_was(mine: openai.OpenAI) -> None:
    content = os.urandom(9 * 1024 * 1024 + 1)
    assert mine.files.content(upload(mine, content).id).read() == content
    # Sealed, this one is a whole number of the pieces it is read in.
    content = os.urandom(2 * 1024 * 1024 - 39)
    made = upload(mine, content)
    assert len(row(made.id).content) == 2 * 1024 * 1024
    assert mine.files.content(made.id).read() == content


def test_an_upload_sent_again_is_stored_once_and_room_is_counted_exactly(alice: Tenant) -> None:
    id, end = new_id(), 3600

    def store(id: UUID, *, size: int, most_bytes: int, most_files: int) -> tuple[Any, ...]:
        row = (id, alice.project.pk, alice.key.pk, "a", "batch", "text/plain", size, b"sealed", end)
        with connection.cursor() as cursor:
            cursor.execute("set role meterline_app")
            cursor.execute(STORE, (*row, most_bytes, most_files))
            found: tuple[Any, ...] = cursor.fetchone()
            cursor.execute("reset role")
        return found

    first = store(id, size=10, most_bytes=10, most_files=1)
    assert first[0] == "stored" and first[2] - first[1] == timedelta(seconds=3600)
    assert store(id, size=10, most_bytes=10, most_files=1) == first
    assert store(new_id(), size=1, most_bytes=10, most_files=9) == ("bytes", None, None)
    assert store(new_id(), size=1, most_bytes=11, most_files=1) == ("files", None, None)
    assert store(new_id(), size=1, most_bytes=11, most_files=2)[0] == "stored"
    assert StoredFile.objects.filter(project=alice.project).count() == 2


async def test_files_wait_for_a_database_that_is_away() -> None:
    away = Files(Connections(f"postgres://nobody@127.0.0.1:{free_port()}/none"))
    for call in (away.find(new_id(), [new_id()]), away.delete(new_id(), new_id())):
        with pytest.raises(Unavailable) as caught:
            await call
        assert caught.value.retry_after == 1


# --- the console ----------------------------------------------------------------------------------------------------


def test_the_console_lists_and_deletes(mine: openai.OpenAI) -> None:
    made, kept = row(upload(mine, b"canary-in-a-file").id), row(upload(mine, name="kept.txt").id)
    client, everything = console(), url(StoredFile, "changelist")
    for address in (everything, url(StoredFile, "change", made.pk), url(StoredFile, "history", made.pk)):
        page = client.get(address)
        assert page.status_code == 200
        assert "canary-in-a-file" not in page.content.decode()
    found = client.get(everything, {"q": file_id(made.pk)}).content.decode()
    assert file_id(made.pk) in found and file_id(kept.pk) not in found
    assert client.get(url(StoredFile, "add")).status_code == 403
    assert client.post(url(StoredFile, "change", made.pk), {"filename": "x"}).status_code == 403
    ticked = {"action": "delete_selected", "_selected_action": str(made.pk), "post": "yes"}
    assert client.post(everything, ticked).status_code == 302
    assert [file.id for file in mine.files.list()] == [file_id(kept.pk)]
    assert client.get(url(StoredFile, "delete", kept.pk)).status_code == 200
    assert client.post(url(StoredFile, "delete", kept.pk), {"post": "yes"}).status_code == 302
    assert mine.files.list().data == []


def test_the_consoles_role_can_neither_read_content_nor_change_a_file(mine: openai.OpenAI) -> None:
    stored = StoredFile.objects.filter(pk=row(upload(mine).id).pk)
    for forbidden in (stored.get, lambda: stored.values_list("content").get(), lambda: stored.update(filename="x")):
        with console_role(), pytest.raises(ProgrammingError, match="permission denied"):
            forbidden()
    assert stored.get().filename == "report.pdf"


def test_the_console_shows_files_to_operators_alone(mine: openai.OpenAI) -> None:
    stored = row(upload(mine).id)
    client = console(superuser=False)
    for address in (url(StoredFile, "changelist"), url(StoredFile, "delete", stored.pk)):
        assert client.get(address).status_code == 403
        assert client.post(address, {"post": "yes"}).status_code == 403
    assert StoredFile.objects.filter(pk=stored.pk).exists()


# --- housekeeping ---------------------------------------------------------------------------------------------------


def test_the_worker_deletes_what_has_expired(mine: openai.OpenAI) -> None:
    gone, kept = row(upload(mine).id), row(upload(mine).id)
    StoredFile.objects.filter(pk=gone.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    code = "import django; django.setup(); from gateway.tasks import prune_files; prune_files()"
    env = environment() | {"DATABASE_ROLE": "app", "DJANGO_SETTINGS_MODULE": "gateway.settings"}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True)
    assert not StoredFile.objects.filter(pk=gone.pk).exists()
    assert mine.files.content(file_id(kept.pk)).read() == PDF


def test_the_worker_is_told_to() -> None:
    app.loader.import_default_modules()
    assert app.conf.beat_schedule["files"]["task"] in app.tasks


@contextmanager
def undone() -> Iterator[None]:
    """The command goes through everybody's files: all it does is rolled back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_a_new_sealing_key_takes_over(mine: openai.OpenAI, settings: LazySettings) -> None:
    made = [row(upload(mine).id).id for _ in range(3)]
    with undone():
        StoredFile.objects.exclude(pk__in=made).delete()
        # No longer what was sealed for it.
        StoredFile.objects.filter(pk=made[2]).update(content=StoredFile.objects.get(pk=made[1]).content)
        assert under_other_keys() == []
        settings.SEALING_KEYS = [urlsafe_b64encode(os.urandom(32)).decode(), *settings.SEALING_KEYS]
        assert under_other_keys() == made
        steps: list[int] = []
        assert reseal_files(made, lambda: steps.append(1)) == (2, [made[2]])
        assert len(steps) == 3
        assert under_other_keys() == [made[2]]
        with pytest.raises(CommandError, match=f"1 cannot be opened .*: {file_id(made[2])}"):
            call_command("reseal_files", stdout=StringIO())
        settings.SEALING_KEYS = settings.SEALING_KEYS[:1]  # the old key is gone for good
        for stored in StoredFile.objects.filter(pk__in=made[:2]):
            assert bytes(stored.content).startswith(current_head())
            assert open_bytes(bytes(stored.content), place(stored.id, stored.project_id)) == PDF
