"""One image, three ways to run it: the API, the console, or both; and what a stranger may send to the console."""

from collections.abc import Iterator

import httpx
import pytest
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore

from tests.stage.cast import Tenant
from tests.stage.product import Gateway, launch, until
from tests.stage.raw import dial, head

API = ["/v1", "/v1/models", "/api/v1/models", "/readyz", "/metrics"]
FORM = "/console/login/"
MiB = 1024 * 1024


@pytest.fixture(scope="module", params=["console", "all"])
def console(
    request: pytest.FixtureRequest, database: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A web process that serves the console, alone or with the API."""
    server = launch(tmp_path_factory.mktemp(request.param), SERVE=request.param)
    server.client.headers["x-mode"] = request.param
    try:
        until(lambda: server.process.poll() is not None or is_alive(server), 30)
        yield server
    finally:
        server.stop()


def is_alive(server: Gateway) -> bool:
    """Whether the process answers."""
    try:
        return server.client.get("/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def test_the_gateway_serves_no_console(gateway: Gateway) -> None:
    for path in ("/", "/console/", FORM, "/console/accounts/apikey/", "/static/console/theme.css", "/favicon.ico"):
        answer = gateway.client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), path


def test_the_console_is_served_and_the_api_only_where_it_is_asked_for(console: Gateway, alice: Tenant) -> None:
    assert console.client.get(FORM).status_code == 200
    assert console.client.get("/", follow_redirects=True).url.path == FORM
    alone = console.client.headers["x-mode"] == "console"
    found = [console.client.get(path, headers={"x-api-key": alice.secret}) for path in API]
    assert [answer.status_code for answer in found] == ([404] * 5 if alone else [404, 200, 200, 200, 200])
    assert {answer.json()["error"]["code"] for answer in found if answer.status_code == 404} == {"not_found"}


def test_a_stranger_cannot_fill_the_consoles_memory_or_disk(console: Gateway) -> None:
    for headers, body in (
        (["Content-Length: 1000000000"], b""),
        (["Transfer-Encoding: chunked"], (b"100000\r\n" + bytes(MiB) + b"\r\n") * 9),
    ):
        with dial(console) as line:
            line.send(head(f"POST {FORM}", *headers) + body)
            answer = line.answer()
            assert (answer.status, answer.code) == (413, "request_too_large")
            assert answer.headers["connection"] == "close"


def test_a_form_of_the_console_arrives_whole_with_a_session(console: Gateway, alice: Tenant) -> None:
    def login(password: str, **cookies: str) -> httpx.Response:
        with httpx.Client(base_url=console.url, cookies=cookies, timeout=30, trust_env=False) as client:
            page = client.get(FORM)
            token = page.text.partition('name="csrfmiddlewaretoken" value="')[2].partition('"')[0]
            form = {"csrfmiddlewaretoken": token, "username": "nobody", "password": password, "next": "/console/"}
            return client.post(FORM, data=form, headers={"Referer": f"{console.url}{FORM}"})

    session = SessionStore()
    session[SESSION_KEY] = str(alice.user.pk)
    session.create()
    assert session.session_key
    told = login("x" * 60_000)
    assert (told.status_code, "correct" in told.text) == (200, True)
    refused = login("x" * 100_000)
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "request_too_large")
    told = login("x" * 100_000, **{settings.SESSION_COOKIE_NAME: session.session_key})
    assert (told.status_code, "correct" in told.text) == (200, True)
