"""The console's pages in place of those it does not show."""

import psycopg
import pytest
from django.db import connection
from django.test import Client

from billing.models import Usage
from tests.console.browser import console, url
from tests.stage.cast import NOBODYS


@pytest.mark.parametrize("address", ["/console/nowhere/", "/console/accounts/apikey/not-an-id/revoke/", "/nowhere"])
def test_what_is_not_there_is_told_on_a_page(address: str) -> None:
    response = console().get(address)
    html = response.content.decode()
    assert response.status_code == 404 and response["Content-Type"] == "text/html; charset=utf-8"
    assert "There is no such page" in html and 'href="/console/"' in html and "/console/accounts/apikey/" in html
    assert "style=" not in html.replace("x-bind:style=", "")


def test_what_is_not_theirs_is_told_to_staff_on_a_page() -> None:
    for address in ("/console/health/", url(Usage, "changelist"), "/console/health/model/1/"):
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


def test_a_statement_that_takes_too_long_ends_in_what_to_narrow() -> None:
    client, list_of_all = console(), url(Usage, "changelist")
    parameters = {name: connection.get_connection_params()[name] for name in ("host", "port", "dbname", "user")}
    with psycopg.connect(**parameters, password=connection.get_connection_params().get("password")) as other:
        other.execute("lock table billing_usage in access exclusive mode")
        with connection.cursor() as cursor:
            cursor.execute("set statement_timeout = '300ms'")
        try:
            response = client.get(list_of_all, {"model": "no/such-model"})
        finally:
            with connection.cursor() as cursor:
                cursor.execute("reset statement_timeout")
        other.rollback()
    assert response.status_code == 503
    assert "Narrow the range of time, or choose an organization, a project or a key." in response.content.decode()
    assert client.get(list_of_all, {"model": "no/such-model"}).status_code == 200
