"""/v1/files through a running gateway: what is uploaded, listed and read, by whom, and how much of it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx
import openai
import pytest
from django.utils import timezone

from billing.models import Usage
from gateway.files.store import file_id
from gateway.models import StoredFile
from tests.files.cabinet import DAY, NO_FILE, PDF, bearer, files_key, naming, row, sdk, upload
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, running, synchronize
from tests.stage.shelf import make_model, make_provider


@pytest.fixture
def mine(gateway: Gateway, alice: Tenant) -> Iterator[openai.OpenAI]:
    """Alice's client."""
    with sdk(gateway, files_key(alice)) as client:
        yield client


@pytest.mark.row("B040")
def test_it_works(mine: openai.OpenAI, alice: Tenant) -> None:
    before = timezone.now()
    made = upload(mine)
    assert made.id == file_id(row(made.id).id)
    assert made.model_dump(exclude={"id", "created_at", "expires_at"}) == {
        "object": "file",
        "bytes": len(PDF),
        "filename": "report.pdf",
        "purpose": "user_data",
        "status": "processed",
        "status_details": None,
    }
    assert int(before.timestamp()) <= made.created_at <= timezone.now().timestamp() + 1
    assert made.expires_at == made.created_at + 30 * DAY
    assert mine.files.retrieve(made.id) == made
    assert mine.files.list().data == [made]
    answer = mine.files.content(made.id)
    assert answer.read() == PDF
    assert answer.response.headers["content-type"] == "application/octet-stream"
    assert answer.response.headers["content-disposition"] == 'attachment; filename="report.pdf"'
    assert answer.response.headers["x-content-type-options"] == "nosniff"
    deleted = mine.files.delete(made.id)
    assert deleted.model_dump() == {"id": made.id, "object": "file", "deleted": True}
    assert mine.files.list().data == []
    for call in (mine.files.retrieve, mine.files.content, mine.files.delete):
        with pytest.raises(openai.NotFoundError):
            call(made.id)
    assert not StoredFile.objects.filter(project=alice.project).exists()


def test_the_paths_of_both_prefixes_are_the_same(gateway: Gateway, mine: openai.OpenAI) -> None:
    made = upload(mine)
    for path in ("/files", f"/files/{made.id}", f"/files/{made.id}/content"):
        first, second = (gateway.client.get(prefix + path, headers=bearer(mine)) for prefix in ("/v1", "/api/v1"))
        assert first.status_code == second.status_code == 200
        assert first.content == second.content


@pytest.mark.parametrize("purpose", ["user_data", "assistants", "vision", "batch", "fine-tune", "evals"])
def test_every_purpose_is_taken(mine: openai.OpenAI, purpose: str) -> None:
    assert upload(mine, purpose=purpose).purpose == purpose


def test_a_list_goes_by_pages_in_both_orders_and_by_purpose(mine: openai.OpenAI, gateway: Gateway) -> None:
    made = [upload(mine, name=f"{n}.txt", purpose="vision" if n == 1 else "user_data").id for n in range(5)]
    assert [file.id for file in mine.files.list(limit=2)] == made[::-1]  # the client turns the pages
    assert [file.id for file in mine.files.list(limit=2, order="asc")] == made
    assert [file.id for file in mine.files.list(purpose="vision")] == [made[1]]
    assert [file.id for file in mine.files.list(after=made[3])] == made[2::-1]
    page = gateway.client.get("/v1/files?limit=2", headers=bearer(mine)).json()
    assert {name: value for name, value in page.items() if name != "data"} == {
        "object": "list",
        "first_id": made[4],
        "last_id": made[3],
        "has_more": True,
    }
    empty = gateway.client.get("/v1/files?purpose=batch", headers=bearer(mine)).json()
    assert empty == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=10001", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=1", "after")],
)
def test_a_list_says_what_is_wrong(gateway: Gateway, mine: openai.OpenAI, query: str, param: str) -> None:
    answer = gateway.client.get(f"/v1/files?{query}", headers=bearer(mine))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_name_is_kept_without_its_path(mine: openai.OpenAI) -> None:
    assert upload(mine, name="../../etc/Prüfung 日本.pdf").filename == "Prüfung 日本.pdf"
    assert mine.files.content(upload(mine, name="ü.txt").id).response.headers["content-disposition"] == (
        "attachment; filename*=utf-8''%C3%BC.txt"
    )


def test_other_methods_are_refused(gateway: Gateway, mine: openai.OpenAI) -> None:
    made = upload(mine)
    one, content = f"/v1/files/{made.id}", f"/v1/files/{made.id}/content"
    for method, path in (("DELETE", "/v1/files"), ("PUT", "/v1/files"), ("POST", one), ("DELETE", content)):
        assert gateway.client.request(method, path, headers=bearer(mine)).status_code == 405
    assert mine.files.retrieve(made.id) == made


# --- the wall -------------------------------------------------------------------------------------------------------


def test_charlie_sees_nothing_of_alices(gateway: Gateway, mine: openai.OpenAI, charlie: Tenant) -> None:
    made = upload(mine)
    headers = {"Authorization": f"Bearer {files_key(charlie)}"}
    for method, suffix in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        answers = [
            gateway.client.request(method, f"/v1/files/{name}{suffix}", headers=headers)
            for name in (made.id, file_id(UUID(int=1)), "file-x", "0")
        ]
        assert [answer.status_code for answer in answers] == [404] * 4
        assert [answer.json() for answer in answers] == [{"error": NO_FILE}] * 4
    assert gateway.client.get("/v1/files", headers=headers).json()["data"] == []
    assert gateway.client.get(f"/v1/files?after={made.id}", headers=headers).json()["data"] == []
    assert mine.files.content(made.id).read() == PDF


def test_another_project_of_the_organization_sees_nothing(gateway: Gateway, mine: openai.OpenAI, alice: Tenant) -> None:
    made = upload(mine)
    other = alice.organization.projects.create(slug="other", name="Other")
    with sdk(gateway, make_key(other, scopes=["files"])[1]) as client:
        assert client.files.list().data == []
        for call in (client.files.retrieve, client.files.content, client.files.delete):
            with pytest.raises(openai.NotFoundError):
                call(made.id)
    with sdk(gateway, make_key(alice.project, scopes=["files"])[1]) as client:
        assert client.files.content(made.id).read() == PDF


def test_a_key_without_the_scope_is_refused(gateway: Gateway, mine: openai.OpenAI, alice: Tenant) -> None:
    made = upload(mine)
    narrow = files_key(alice, allowed_endpoints=["chat/completions"])
    for secret, code in ((alice.secret, "missing_scope"), (narrow, "endpoint_not_allowed")):
        headers = {"Authorization": f"Bearer {secret}"}
        for method, path in (
            ("POST", "/v1/files"),
            ("GET", "/v1/files"),
            ("GET", f"/v1/files/{made.id}"),
            ("GET", f"/v1/files/{made.id}/content"),
            ("DELETE", f"/v1/files/{made.id}"),
        ):
            answer = gateway.client.request(method, path, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)
    assert [file.id for file in mine.files.list()] == [made.id]


# --- room and time --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that takes files of 1000 bytes, 2500 of them a project, for two days."""
    limits = {"FILES_MAX_BYTES": "1000", "FILES_PROJECT_BYTES": "2500", "FILES_RETENTION_DAYS": "2"}
    with running(tmp_path_factory.mktemp("small"), 1, EGRESS_ALLOW=simulated.url, **limits) as (process,):
        yield process


def test_a_file_past_the_limit_is_refused(small: Gateway, alice: Tenant) -> None:
    with sdk(small, files_key(alice)) as client:
        assert upload(client, bytes(1000)).bytes == 1000
        with pytest.raises(openai.APIStatusError) as caught:
            upload(client, bytes(1001))
        assert (caught.value.status_code, caught.value.code, caught.value.param) == (413, "file_too_large", "file")
        assert len(client.files.list().data) == 1


def test_a_project_has_room_for_so_much_and_gets_it_back(small: Gateway, alice: Tenant, charlie: Tenant) -> None:
    with sdk(small, files_key(alice)) as client, sdk(small, files_key(charlie)) as other:
        first, second = upload(client, bytes(1000)), upload(client, bytes(1000))
        assert upload(client, bytes(500)).bytes == 500
        for content in (b"x", bytes(1000)):
            with pytest.raises(openai.BadRequestError) as caught:
                upload(client, content)
            assert caught.value.code == "file_storage_full"
        assert len(client.files.list().data) == 3
        assert upload(other, bytes(1000)).bytes == 1000
        client.files.delete(first.id)
        assert upload(client, bytes(1000)).bytes == 1000
        StoredFile.objects.filter(pk=row(second.id).pk).update(expires_at=timezone.now())
        assert upload(client, bytes(1000)).bytes == 1000


def test_uploads_at_once_do_not_share_the_room_for_one(small: Gateway, alice: Tenant) -> None:
    headers = {"Authorization": f"Bearer {files_key(alice)}"}

    def attempt(_: int) -> int:
        form: dict[str, Any] = {"files": {"file": ("a.bin", bytes(900))}, "data": {"purpose": "batch"}}
        return httpx.post(f"{small.url}/v1/files", headers=headers, timeout=30, **form).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(attempt, range(8)))
    assert statuses == [200, 200] + [400] * 6
    assert StoredFile.objects.filter(project=alice.project).count() == 2


def test_the_files_of_one_chat_are_bounded_together(
    small: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url)).slug
    synchronize(small)
    with sdk(small, files_key(alice)) as client:
        made = upload(client, bytes(400)).id
        assert small.chat(alice.secret, model, messages=naming(made, made)).status_code == 200
        answer = small.chat(alice.secret, model, messages=naming(made, made, made))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "files_too_large")
    assert error["param"] == "messages[0].content[3].file.file_id"
    assert Usage.objects.filter(organization=alice.organization.id).count() == 1


def test_a_file_is_gone_when_its_time_is_over(small: Gateway, alice: Tenant) -> None:
    with sdk(small, files_key(alice)) as client:
        made, kept = upload(client), upload(client)
        assert made.expires_at == made.created_at + 2 * DAY
        StoredFile.objects.filter(pk=row(made.id).pk).update(expires_at=timezone.now() - timedelta(seconds=1))
        for call in (client.files.retrieve, client.files.content, client.files.delete):
            with pytest.raises(openai.NotFoundError):
                call(made.id)
        assert [file.id for file in client.files.list()] == [kept.id]
        assert row(made.id)


def test_a_client_may_ask_for_less_time_and_gets_no_more(small: Gateway, alice: Tenant) -> None:
    with sdk(small, files_key(alice)) as client:
        asked = upload(client, expires_after={"anchor": "created_at", "seconds": 3600})
        assert asked.expires_at == asked.created_at + 3600
        longer = upload(client, expires_after={"anchor": "created_at", "seconds": 30 * DAY})
        assert longer.expires_at == longer.created_at + 2 * DAY
