"""The console's pages in place of those it does not show."""

import re
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.contrib.admin import site
from django.db import connection
from django.test import Client
from django.urls import reverse

from accounts.models import User
from billing.models import Usage
from tests.console.browser import console, url
from tests.stage.cast import NOBODYS
from tests.stage.nursery import Program
from tests.stage.product import ROOT, Gateway, environment


@pytest.mark.parametrize("address", ["/console/nowhere/", "/console/accounts/apikey/not-an-id/revoke/", "/nowhere"])
def test_what_is_not_there_is_told_on_a_page(address: str) -> None:
    response = console().get(address)
    html = response.content.decode()
    assert response.status_code == 404 and response["Content-Type"] == "text/html; charset=utf-8"
    assert "There is no such page" in html and 'href="/console/"' in html and "/console/accounts/apikey/" in html
    assert "style=" not in html.replace("x-bind:style=", "")


def test_what_is_not_theirs_is_told_to_staff_on_a_page() -> None:
    for address in ("/console/health/", url(Usage, "changelist"), "/console/playground/"):
        response = console(superuser=False).get(address)
        html = response.content.decode()
        assert response.status_code == 403 and "This is not yours to see or do" in html
        assert "/console/billing/" not in html


def test_a_stranger_learns_nothing_from_it() -> None:
    response = Client().get(f"/nowhere/{NOBODYS}")
    html = response.content.decode()
    assert response.status_code == 404 and "There is no such page" in html
    assert "/console/billing/" not in html
    assert NOBODYS not in html, html[html.index(NOBODYS) - 300 :][:600]


class Broken(Exception):
    """Of a page that goes wrong."""


def asked(client: Client, address: str, **options: Any) -> Any:
    """The answer as a browser gets it: what goes wrong is answered, not raised."""
    client.raise_request_exception = False
    return client.get(address, **options)


def told(response: Any, status: int, words: str) -> str:
    """Asserts what holds of each page of refusal: status, words, policy, way back, request id; returns that id."""
    html = response.content.decode()
    assert (response.status_code, response["Content-Type"]) == (status, "text/html; charset=utf-8")
    assert words in html and 'href="/console/"' in html and "console/theme" in html
    assert response["Content-Security-Policy"].startswith("default-src 'self'; script-src 'self' 'unsafe-eval'")
    assert "<style" not in html and " style=" not in html and " onclick=" not in html
    id: str = response["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", id) and f"<code>{id}</code>" in html
    return id


def test_every_refusal_says_why_and_the_way_back_and_its_id() -> None:
    operator = console()
    ids = {
        told(
            operator.get(url(Usage, "changelist"), {"error__regex": "a"}),
            400,
            "something in it that the console cannot",
        ),
        told(console(superuser=False).get("/console/health/"), 403, "This is not yours to see or do"),
        told(operator.get("/console/nowhere/"), 404, "There is no such page"),
        told(Client().get("/nowhere"), 404, "There is no such page"),
        told(Client(headers={"host": "evil.example"}).get("/console/"), 400, "cannot read"),
    }
    assert len(ids) == 5


@pytest.mark.parametrize("inside", [True, False])
def test_a_form_from_elsewhere_is_told_what_to_do(inside: bool) -> None:
    client = console(enforce_csrf_checks=True) if inside else Client(enforce_csrf_checks=True)
    people = User.objects.count()
    response = client.post(url(User, "add") if inside else "/console/login/", {"username": "forged"})
    told(response, 403, "Nothing was done. Open its page again")
    assert User.objects.count() == people


def test_what_goes_wrong_is_told_without_a_word_of_it_and_logged_with_its_id(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Inside the frame; outside where not even that can be made, as without a database."""
    page = site._registry[Usage]

    def breaks(*_: Any, **__: Any) -> Any:
        raise Broken("secret-of-the-inside")

    client = console()
    monkeypatch.setattr(page, "get_queryset", breaks)
    inside = asked(client, url(Usage, "changelist"))
    id = told(inside, 500, "It is our fault, not yours.")
    assert (
        "secret-of-the-inside" not in inside.content.decode() and "/console/billing/usage/" in inside.content.decode()
    )
    (line,) = (one for one in caplog.records if one.exc_info and "secret-of-the-inside" in str(one.exc_info[1]))
    assert line.getMessage() == f"unexpected, request {id}, view admin:billing_usage_changelist"

    monkeypatch.setattr(site, "each_context", breaks)
    outside = asked(client, url(Usage, "changelist"))
    told(outside, 500, "It is our fault, not yours.")
    assert "/console/billing/usage/" not in outside.content.decode()


def test_the_apis_errors_stay_json(gateway: Gateway) -> None:
    for address, status in (("/v1/nowhere", 404), ("/v1/models", 401), ("/api/v1/generation?id=x", 401)):
        response = httpx.get(gateway.url + address)
        assert response.headers["content-type"].startswith("application/json"), address
        assert response.status_code == status and "error" in response.json()
        assert response.headers["x-request-id"]


def test_a_value_that_no_column_takes_is_told_on_a_page() -> None:
    """Of each list: by its name and by each kind of column, and in the address of a row."""
    client, kinds = console(), set()
    for admin in site._registry.values():
        meta = admin.model._meta
        address = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
        asked = [f"{address}%00/change/"]
        for field in meta.fields:
            if type(field) not in kinds:
                kinds.add(type(field))
                asked += [f"{address}?{field.name}__exact={value}" for value in ("%00", "9" * 40)]
        for one in asked:
            assert client.get(one).status_code in (200, 302, 400, 403, 404), one
    assert len(kinds) > 10
    html = client.get(reverse("admin:accounts_organization_changelist") + "?name__exact=%00").content.decode()
    assert "The address or the form has a value that nothing can have." in html


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (
            {"statement_timeout": "300ms", "lock_timeout": "0"},
            "Narrow the range of time, or choose an organization, a project or a key.",
        ),
        ({"statement_timeout": "0", "lock_timeout": "300ms"}, "Something else is at work on the same rows."),
    ],
)
def test_a_statement_that_takes_too_long_ends_in_what_to_do(bounds: dict[str, str], words: str) -> None:
    client, list_of_all = console(), url(Usage, "changelist")
    settings = connection.get_connection_params()
    reach: dict[str, Any] = {name: settings.get(name) for name in ("host", "port", "dbname", "user", "password")}
    with psycopg.connect(**reach) as other, connection.cursor() as cursor:
        other.execute("lock table billing_usage in access exclusive mode")
        for name, value in bounds.items():
            cursor.execute(f"set {name} = '{value}'")
        try:
            response = client.get(list_of_all, {"model": "no/such-model"})
        finally:
            for name in bounds:
                cursor.execute(f"reset {name}")
        other.rollback()
    assert response.status_code == 503
    assert words in response.content.decode()
    assert client.get(list_of_all, {"model": "no/such-model"}).status_code == 200


@pytest.mark.parametrize(
    ("role", "bounds"),
    [("console", ("7s", "9s")), ("app", ("0", "9s")), ("owner", ("0", "0"))],
)
def test_what_the_orms_connections_are_bounded_by(role: str, bounds: tuple[str, str], tmp_path: Path) -> None:
    """The console's statements by their time, and no transaction of anybody's stays open; migrations take theirs."""
    code = """
import django
django.setup()
from django.contrib.admin import site
from django.db import connection
with connection.cursor() as cursor:
    for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
        cursor.execute(f"show {name}")
        print(*cursor.fetchone())
"""
    env = environment(CONSOLE_STATEMENT_SECONDS="7", IDLE_TRANSACTION_SECONDS="9")
    env |= {"DATABASE_ROLE": role, "DJANGO_SETTINGS_MODULE": "gateway.settings"}
    told = tmp_path / "told"
    told.touch()
    assert Program(["-c", code], env, ROOT, told).wait(60) == 0, told.read_text()
    assert tuple(told.read_text().split()) == bounds
