"""Passwords cannot be tried without end, and nobody is locked out by somebody else's trying."""

import re
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path

import httpx
import pytest
from django.contrib.auth.hashers import MD5PasswordHasher, make_password
from django.db import connection
from django.db.models import F
from django.test import Client, override_settings

from accounts.login_attempts import OF_ACCOUNT, OF_NETWORK, TOGETHER, Attempt
from accounts.models import LoginAttempts, User
from tests.stage.product import Gateway, launch, running, until

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def console(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A console behind one proxy, whose clients say where they come from."""
    with running(tmp_path_factory.mktemp("console"), SERVE="all", TRUSTED_PROXY_HOPS="1") as (process,):
        yield process


@pytest.fixture
def operator() -> User:
    """Somebody who may log in."""
    LoginAttempts.objects.all().delete()
    user = User(username=f"operator-{secrets.token_hex(4)}", is_staff=True, is_superuser=True, password=_hash())
    user.save()
    return user


@cache
def _hash() -> str:
    """The password's, by the hasher of the product, which takes a third of a second."""
    return make_password(PASSWORD)


def attempt(console: Gateway, name: str, password: str, address: str) -> httpx.Response:
    """Tries a password from an address."""
    headers = {"X-Forwarded-For": address, "X-Forwarded-Proto": "http"}
    with httpx.Client(base_url=console.url, headers=headers, timeout=30, trust_env=False) as browser:
        page = browser.get("/console/login/").text
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert found is not None
        form = {"csrfmiddlewaretoken": found[1], "username": name, "password": password, "next": "/console/"}
        return browser.post("/console/login/", data=form)


def failed(place: str, count: int, known: bool = False) -> None:
    """So many attempts have failed just now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into accounts_loginattempts values (%s, now(), %s, case when %s then now() end)"
            " on conflict (place) do update set failures = excluded.failures",
            [place, count, known],
        )


def test_wrong_passwords_meet_a_lock_and_the_right_one_from_elsewhere_does_not(
    console: Gateway, operator: User
) -> None:
    for _ in range(TOGETHER):
        assert attempt(console, operator.username, "wrong", "192.0.2.1").status_code == 200
    refused = attempt(console, operator.username, PASSWORD, "192.0.2.1")
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 900
    assert "Too many passwords have been tried" in refused.text
    assert "sessionid" not in refused.cookies
    assert attempt(console, operator.username.upper(), "wrong", "192.0.2.1").status_code == 429
    assert attempt(console, operator.username, PASSWORD, "192.0.2.2").status_code == 302
    assert attempt(console, operator.username, "wrong", "192.0.2.2").status_code == 200


def test_an_address_cannot_try_many_accounts(console: Gateway, operator: User) -> None:
    assert attempt(console, operator.username, PASSWORD, "2001:db8::1").status_code == 302
    failed("2001:db8::/64", OF_NETWORK)
    assert attempt(console, "somebody", "wrong", "2001:db8::2").status_code == 429
    assert attempt(console, operator.username, PASSWORD, "2001:db8::3").status_code == 302  # known from here


def test_an_account_tried_from_everywhere_opens_where_it_has_opened_before(console: Gateway, operator: User) -> None:
    assert attempt(console, operator.username, PASSWORD, "192.0.2.9").status_code == 302
    (account,) = (row.place for row in LoginAttempts.objects.all() if " " not in row.place and "/" not in row.place)
    failed(account, OF_ACCOUNT)
    assert attempt(console, operator.username, PASSWORD, "192.0.2.10").status_code == 429
    assert attempt(console, operator.username, PASSWORD, "192.0.2.9").status_code == 302


def test_names_are_not_kept(console: Gateway, operator: User) -> None:
    attempt(console, "a password typed as a name", "wrong", "192.0.2.30")
    assert not LoginAttempts.objects.filter(place__contains="password").exists()


def test_what_was_counted_before_the_clock_was_set_back_locks_nobody(operator: User) -> None:
    tried = Attempt(operator.username, "192.0.2.50")
    assert [tried.begin() for _ in range(TOGETHER)] == [0] * TOGETHER
    assert 0 < tried.begin() <= 900
    LoginAttempts.objects.update(begun=F("begun") + timedelta(hours=1))
    assert [tried.begin() for _ in range(TOGETHER)] == [0] * TOGETHER
    assert 0 < tried.begin() <= 900


class Meeting(MD5PasswordHasher):
    """A hasher that has each hash wait for two others to be at work with it, for a second at most."""

    algorithm = "meeting"
    together = threading.Barrier(3, timeout=1)
    met = threading.Event()

    def encode(self, password: str, salt: str) -> str:
        """A hash, as the plain one has it."""
        with suppress(threading.BrokenBarrierError):
            self.together.wait()
            self.met.set()
        return super().encode(password, salt)


def test_two_passwords_are_hashed_at_a_time(operator: User) -> None:
    hasher = {"PASSWORD_HASHERS": [f"{__name__}.Meeting"]}

    def attempted(_: int) -> int:
        try:
            return Client().post("/console/login/", {"username": operator.username, "password": "wrong"}).status_code
        finally:
            connection.close()

    with override_settings(**hasher), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(attempted, range(4))) == [200] * 4
    assert not Meeting.met.is_set()


# The console, whose passwords are hashed until the file that is named is there.
SLOW = """
import os, sys, time
import gateway.door.server as server
from django.conf import settings
from django.contrib.auth.hashers import MD5PasswordHasher, make_password

class Slow(MD5PasswordHasher):
    algorithm = "slow"

    def encode(self, password, salt):
        open(f"{os.environ['HASHES']}-{password}", "w").close()
        while not os.path.exists(os.environ["HASHES"]):
            time.sleep(0.01)
        return super().encode(password, salt)

settings.PASSWORD_HASHERS = ["__main__.Slow"]
sys.exit(server.main())
"""


def test_while_passwords_are_hashed_others_are_answered(database: None, tmp_path: Path, operator: User) -> None:
    """The third waits for its turn; neither it nor those that are hashed keep the loop."""
    hashes = tmp_path / "hashes"
    gateway = launch(tmp_path, code=SLOW, SERVE="all", TRUSTED_PROXY_HOPS="1", HASHES=str(hashes))
    try:
        gateway.until_ready()
        with ThreadPoolExecutor(3) as pool:
            tries = [pool.submit(attempt, gateway, "nobody", str(n), f"192.0.2.{60 + n}") for n in range(3)]
            until(lambda: len(list(tmp_path.glob("hashes-*"))) == 2)
            assert gateway.client.get("/healthz").status_code == 200
            assert gateway.client.get("/console/login/").status_code == 200
            assert not any(one.done() for one in tries)
            assert len(list(tmp_path.glob("hashes-*"))) == 2
            hashes.touch()
            assert [one.result().status_code for one in tries] == [200] * 3
        assert len(list(tmp_path.glob("hashes-*"))) == 3
    finally:
        hashes.touch()
        gateway.stop()


def test_behind_tls_the_session_is_this_hosts_alone_and_half_a_day_old_at_most(
    database: None, tmp_path: Path, operator: User
) -> None:
    with running(tmp_path, SERVE="all", TRUSTED_PROXY_HOPS="1", INSECURE_COOKIES="false") as (gateway,):
        secure = {
            "X-Forwarded-For": "192.0.2.40",
            "X-Forwarded-Proto": "https",
            "Referer": f"https://127.0.0.1:{gateway.port}/",
        }
        page = gateway.client.get("/console/login/", headers=secure)
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert found is not None
        cookie = page.headers["set-cookie"].partition(";")[0]
        assert cookie.startswith("__Host-csrftoken=")
        form = {"csrfmiddlewaretoken": found[1], "username": operator.username, "password": PASSWORD}
        answer = gateway.client.post("/console/login/", data=form, headers={**secure, "Cookie": cookie})
    assert answer.status_code == 302
    (session,) = (one for one in answer.headers.get_list("set-cookie") if "sessionid" in one)
    name, *rest = session.split("; ")
    assert name.startswith("__Host-sessionid=")
    assert {"Max-Age=43200", "Path=/", "Secure", "HttpOnly", "SameSite=Lax"} <= set(rest)
    assert not any(one.startswith("Domain") for one in rest)
