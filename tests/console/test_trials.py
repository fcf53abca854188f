"""The button that tests a credential: each outcome in plain words, from real servers, and never the secret."""

import json
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.contrib.messages import get_messages
from django.db import connection
from django.urls import reverse

from accounts.models import AuditEvent, User
from accounts.roles import Office
from gateway.console.starting.credentials import LOCK, MOST_A_MINUTE, UNLOCK
from gateway.console.starting.trial import Outcome, Trial, tried
from routing.models import Credential, Offer, Provider
from tests.console.browser import console
from tests.stage.hook import Hook, hook, says
from tests.stage.shelf import add_offer, make_model, make_provider
from tests.upstream.authority import Authority

CHAT = {"choices": [{"message": {"content": "hi"}}]}
OTHERS: dict[str, dict[str, list[Any]]] = {
    "openai_responses": {"output": []},
    "anthropic_messages": {"content": []},
    "google_gemini": {"candidates": []},
}


@pytest.fixture
def vendor(settings: Any) -> Iterator[Hook]:
    """A provider's server, which may be dialled."""
    with hook() as server:
        settings.EGRESS_ALLOW = [server.url]
        yield server


def answering(vendor: Hook, status: int, body: Any) -> None:
    """Has it answer so."""
    said = body if isinstance(body, bytes) else json.dumps(body).encode()
    vendor.answers = lambda got, out: out.write(says(status, "Content-Type: application/json", body=said))


def credential_at(base_url: str, *, offered: bool = True, secret: str = "", **fields: Any) -> Credential:
    """A credential of a fresh provider there, which offers a model."""
    provider = make_provider(base_url, secret or f"sk-{secrets.token_hex(16)}", **fields)
    if offered:
        make_model(provider, "model-1")
    return Credential.objects.select_related("provider").get(provider=provider)


def test_it_works(vendor: Hook) -> None:
    """One call, of a few tokens, with the key; told with how long it took; logged."""
    answering(vendor, 200, CHAT)
    credential = credential_at(f"{vendor.url}/v1", secret="sk-canary-0123456789")
    page = console().post(reverse("credential_test", args=[credential.pk]), follow=True)
    (message,) = get_messages(page.wsgi_request)
    assert message.level_tag == "success"
    assert str(message).startswith("default: It works. model-1 answered in ")
    (got,) = vendor.got
    assert (got.line, got.headers["authorization"]) == (
        "POST /v1/chat/completions HTTP/1.1",
        "Bearer sk-canary-0123456789",
    )
    body = json.loads(got.body)
    assert (body["model"], body["max_tokens"]) == ("model-1", 16)
    event = AuditEvent.objects.get(table="routing_credential", row=str(credential.pk), action="test")
    assert event.note.startswith("works: model-1 answered in ")
    assert "works: model-1 answered in " in page.content.decode()  # and it stays on the provider's page


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (401, {"error": {"message": "Incorrect API key provided: {}"}}, Outcome.WRONG_KEY),
        (403, {"error": {"type": "permission_error", "message": "no"}}, Outcome.WRONG_KEY),
        (404, {"detail": "Not Found"}, Outcome.WRONG_ADDRESS),
        (404, {"error": {"message": "What you name is unknown here"}}, Outcome.WRONG_ADDRESS),
        (200, b"<html>Welcome</html>", Outcome.WRONG_ADDRESS),
        (200, {"hello": "world"}, Outcome.WRONG_ADDRESS),
        (402, {"error": {"message": "Insufficient balance"}}, Outcome.NO_CREDIT),
        (429, {"error": {"code": "insufficient_quota", "message": "You exceeded it"}}, Outcome.NO_CREDIT),
        (429, {"error": {"message": "Slow down"}}, Outcome.BUSY),
        (400, {"error": {"type": "invalid_request_error", "message": "no such thing"}}, Outcome.REFUSED),
        (500, {"error": {"message": "oh"}}, Outcome.FAILED),
    ],
)
def test_what_a_provider_says_is_told_in_plain_words(vendor: Hook, status: int, body: Any, outcome: Outcome) -> None:
    answering(vendor, status, body)
    assert tried(credential_at(f"{vendor.url}/v1")).outcome is outcome


def test_the_secret_is_in_no_word_of_it(vendor: Hook) -> None:
    """Also when the provider echoes it, and told or logged."""
    canary = "open-sesame-please"  # that no pattern for keys would find
    answering(vendor, 401, {"error": {"message": f"Incorrect API key provided: {canary} or {canary.upper()}"}})
    credential = credential_at(f"{vendor.url}/v1", secret=canary)
    page = console().post(reverse("credential_test", args=[credential.pk]), follow=True)
    note = AuditEvent.objects.get(row=str(credential.pk), action="test").note
    assert "Incorrect API key provided: [key]" in note
    assert canary not in note + page.content.decode()


@pytest.mark.parametrize("protocol", OTHERS)
def test_each_protocol_is_asked_in_its_own_words(vendor: Hook, protocol: str) -> None:
    answering(vendor, 200, OTHERS[protocol])
    assert tried(credential_at(f"{vendor.url}/v1", protocol=protocol)).outcome is Outcome.WORKS
    path = {
        "openai_responses": "/v1/responses",
        "anthropic_messages": "/v1/messages",
        "google_gemini": "/v1/models/model-1:generateContent",
    }
    assert [one.line.split()[1] for one in vendor.got] == [path[protocol]]


@pytest.mark.parametrize(
    ("variant", "protocol", "path", "fields", "secret"),
    [
        ("deployments", "openai_chat", "/openai", {"api_version": "2024-10-21", "auth_style": "api-key"}, ""),
        (
            "invoke",
            "anthropic_messages",
            "",
            {"auth_style": "sigv4", "region": "us-east-1"},
            "AKIAEXAMPLE:secret12",
        ),
        ("raw_predict", "anthropic_messages", "/v1/projects/p/locations/l", {}, ""),
    ],
)
def test_each_service_is_called_its_own_way(
    vendor: Hook, variant: str, protocol: str, path: str, fields: dict[str, str], secret: str
) -> None:
    """With an offer its model; without one Azure's list, and nothing at those that have none."""
    answering(vendor, 200, {**CHAT, "content": [], "data": [{}, {}]})
    base = f"{vendor.url}{path}"
    credential = credential_at(base, offered=False, protocol=protocol, variant=variant, secret=secret, **fields)
    listed = variant == "deployments"
    assert tried(credential).outcome is (Outcome.WORKS if listed else Outcome.NOT_TRIED)
    assert [one.line.split()[1] for one in vendor.got] == (["/openai/models?api-version=2024-10-21"] if listed else [])
    vendor.got.clear()
    make_model(credential.provider, "model-1")
    assert tried(credential).outcome is Outcome.WORKS
    expected = {
        "deployments": "/openai/deployments/model-1/chat/completions?api-version=2024-10-21",
        "invoke": "/model/model-1/invoke",
        "raw_predict": "/v1/projects/p/locations/l/publishers/anthropic/models/model-1:rawPredict",
    }
    assert [one.line.split()[1] for one in vendor.got] == [expected[variant]]


def test_without_an_offer_the_list_of_models_is_read(vendor: Hook) -> None:
    answering(vendor, 200, {"data": [{}, {}, {}]})
    credential = credential_at(f"{vendor.url}/v1", offered=False)
    add_offer(make_model(make_provider(vendor.url), output_modalities=["embeddings"]), credential.provider)
    trial = tried(credential)
    assert (trial.outcome, trial.words[:19]) == (Outcome.WORKS, "It listed 3 models ")
    assert [one.line for one in vendor.got] == ["GET /v1/models HTTP/1.1"]


def test_what_may_not_be_dialled_is_not(vendor: Hook, settings: Any) -> None:
    settings.EGRESS_ALLOW = []
    trial = tried(credential_at(f"{vendor.url}/v1"))
    assert (trial.outcome, vendor.got) == (Outcome.FORBIDDEN, [])


def test_a_name_that_is_none_is_a_wrong_address(settings: Any) -> None:
    settings.EGRESS_ALLOW = ["http://nowhere.invalid:80"]
    trial = tried(credential_at("http://nowhere.invalid/v1"))
    assert (trial.outcome, trial.words[:23]) == (Outcome.WRONG_ADDRESS, "There is no such name: ")


def test_a_certificate_that_nobody_vouches_for_is_a_wrong_address(settings: Any, tmp_path: Path) -> None:
    """Nor is the secret sent there."""
    with hook() as vendor:
        vendor.socket = Authority(tmp_path).serving("127.0.0.1").wrap_socket(vendor.socket, server_side=True)
        base = vendor.url.replace("http:", "https:")
        settings.EGRESS_ALLOW = [base]
        trial = tried(credential_at(f"{base}/v1"))
        assert (trial.outcome, trial.words[:12]) == (Outcome.WRONG_ADDRESS, "TLS failed: ")
        assert vendor.got == []


def test_where_nobody_listens_is_not_reachable(settings: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{free.getsockname()[1]}"
        settings.EGRESS_ALLOW = [base]
        assert tried(credential_at(f"{base}/v1")).outcome is Outcome.UNREACHABLE


def test_who_answers_too_late_is_not_reachable(vendor: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.console.starting.trial.SECONDS", 0.1)
    over = Event()
    vendor.answers = lambda got, out: over.wait(10)
    try:
        assert tried(credential_at(f"{vendor.url}/v1")) == Trial(Outcome.UNREACHABLE, "No answer within 0.1 s.")
    finally:
        over.set()


def test_a_credential_is_not_tried_too_often(vendor: Hook) -> None:
    answering(vendor, 200, CHAT)
    client, credential = console(), credential_at(f"{vendor.url}/v1")
    for _ in range(MOST_A_MINUTE):
        client.post(reverse("credential_test", args=[credential.pk]))
    client.cookies.pop("messages")
    page = client.post(reverse("credential_test", args=[credential.pk]), follow=True)
    assert len(vendor.got) == MOST_A_MINUTE
    assert [message.level_tag for message in get_messages(page.wsgi_request)] == ["warning"]


def test_one_is_tried_at_a_time(vendor: Hook) -> None:
    answering(vendor, 200, CHAT)
    credential = credential_at(f"{vendor.url}/v1")
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute(LOCK)
        console().post(reverse("credential_test", args=[credential.pk]))
        cursor.execute(UNLOCK)
    other.close()
    assert vendor.got == []
    assert not AuditEvent.objects.filter(row=str(credential.pk), action="test").exists()


def test_it_is_for_operators_alone(vendor: Hook) -> None:
    """Of the installation, and by POST."""
    credential = credential_at(f"{vendor.url}/v1")
    address = reverse("credential_test", args=[credential.pk])
    for office in (Office.FINANCE, Office.AUDITOR):
        client = console(superuser=False)
        User.objects.get(pk=client.session["_auth_user_id"]).groups.add(Group.objects.get(name=office))
        assert client.post(address).status_code == 403
    assert console(superuser=False).post(address).status_code == 403
    assert console().get(address).status_code == 405
    assert vendor.got == []


def test_the_button_is_where_a_credential_is(vendor: Hook) -> None:
    credential = credential_at(f"{vendor.url}/v1")
    page = console().get(reverse("admin:routing_provider_change", args=[credential.provider_id])).content.decode()
    assert reverse("credential_test", args=[credential.pk]) in page
    empty = Provider.objects.create(slug=f"p-{secrets.token_hex(4)}", name="P", base_url="https://p.example/v1")
    page = console().get(reverse("admin:routing_provider_change", args=[empty.pk])).content.decode()
    assert "/test/" not in page
    assert Offer.objects.filter(provider=credential.provider).count() == 1
