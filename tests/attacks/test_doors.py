"""Doors that stand open unasked: other hosts, metrics, addresses, written bytes."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models import F

from accounts.models import Scope
from gateway.models import FilesWritten
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import ROOT, Gateway, running

TOKEN = "a-token-of-the-scraper"


@pytest.fixture(scope="module")
def guarded(
    database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway of one host, behind two proxies, with small limits."""
    settings = {
        "ALLOWED_HOSTS": "127.0.0.1,gateway.example,.wide.example",
        "METRICS_TOKEN": TOKEN,
        "TRUSTED_PROXY_HOPS": "2",
        "FILES_PROJECT_HOURLY_BYTES": "2500",
    }
    with running(tmp_path_factory.mktemp("guarded"), 1, EGRESS_ALLOW=simulated.url, **settings) as (process,):
        yield process


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("gateway.example", 200), ("gateway.example:8000", 200), ("a.wide.example", 200), ("127.0.0.1", 200),
        ("evil.example", 400), ("gateway.example.evil.example", 400), ("10.0.0.1", 400),
    ],
)  # fmt: skip
def test_the_api_answers_its_own_hosts(guarded: Gateway, alice: Tenant, host: str, status: int) -> None:
    headers = {"Authorization": f"Bearer {alice.secret}", "Host": host}
    answer = guarded.client.get("/v1/models", headers=headers)
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["error"]["code"] == "unknown_host"
    assert guarded.client.get("/healthz", headers={"Host": host}).status_code == 200


def test_metrics_are_for_who_has_the_token(guarded: Gateway, gateway: Gateway) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
        refused = guarded.client.get("/metrics", headers=headers)
        assert refused.status_code == 401
        assert "meterline_answers" not in refused.text
    told = guarded.client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert "meterline_buffered_bytes" in told.text
    assert gateway.client.get("/metrics").status_code == 200  # without a token: this machine


def test_a_key_of_some_addresses_is_refused_where_none_is_known(guarded: Gateway, alice: Tenant) -> None:
    _, secret = make_key(alice.project, allowed_ips=["127.0.0.0/8", "192.0.2.1/32"])

    def ask(forwarded: str | None = None) -> int:
        headers = {"Authorization": f"Bearer {secret}"}
        if forwarded is not None:
            headers["X-Forwarded-For"] = forwarded
        return guarded.client.get("/v1/models", headers=headers).status_code

    assert ask("192.0.2.1, 10.0.0.1") == 200
    assert ask("192.0.2.2, 10.0.0.1") == 403
    assert ask("192.0.2.1, 192.0.2.2, 10.0.0.1") == 403
    assert ask("192.0.2.1") == 403  # one proxy was gone around
    assert ask() == 403
    assert ask("") == 403


def test_a_project_writes_so_much_an_hour_whatever_it_deletes(guarded: Gateway, alice: Tenant, charlie: Tenant) -> None:
    def upload(tenant: Tenant) -> tuple[int, dict[str, str], str]:
        _, secret = make_key(tenant.project, scopes=[Scope.FILES])
        headers = {"Authorization": f"Bearer {secret}"}
        answer = guarded.client.post(
            "/v1/files", headers=headers, data={"purpose": "user_data"}, files={"file": ("a.txt", b"w" * 1000)}
        )
        if answer.status_code == 200:
            assert guarded.client.delete(f"/v1/files/{answer.json()['id']}", headers=headers).status_code == 200
            return 200, {}, ""
        return answer.status_code, dict(answer.headers), answer.json()["error"]["code"]

    assert [upload(alice)[0] for _ in range(2)] == [200, 200]
    status, headers, code = upload(alice)
    assert (status, code) == (429, "file_uploads_exhausted")
    assert 0 < int(headers["retry-after"]) <= 3600
    assert upload(charlie)[0] == 200
    # As if the clock had been set back: that hour is over, whenever it comes.
    FilesWritten.objects.filter(project=alice.project.pk).update(hour=F("hour") + timedelta(hours=2))
    assert upload(alice)[0] == 200
    assert FilesWritten.objects.get(project=alice.project.pk).bytes == 1000


def test_secrets_of_a_deployment_are_its_owners_alone(tmp_path: Path) -> None:
    command, file = [sys.executable, str(ROOT / "deploy" / "new_env.py"), str(tmp_path / ".env")], tmp_path / ".env"
    subprocess.run(command, check=True, umask=0)
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    written = file.read_text()
    assert "SECRET_KEY=" in written
    assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode != 0  # those in use are kept
    assert file.read_text() == written
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
