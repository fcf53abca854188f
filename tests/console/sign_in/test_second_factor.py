"""A second factor: asked for, used once, not to be got round; and required where a setting says so."""

import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO

import pytest
from django.conf import LazySettings
from django.contrib.sessions.models import Session
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection
from django.urls import reverse

from accounts.login_attempts import OF_CODES, TOGETHER, Attempt
from accounts.models import RecoveryCode, Totp, User
from accounts.sign_in import recovery_codes, totp
from gateway.console.menu import NAVIGATION
from gateway.console.sign_in.entering import HALF_WAY
from routing.management.commands.reseal import reseal
from tests.console.browser import Console
from tests.console.sign_in.steps import (
    CONSOLE,
    LOGIN,
    ME,
    PASSWORD,
    code,
    codes_on,
    inside,
    is_in,
    is_known,
    log_in,
    person,
    seed_on,
    stale,
    with_app,
)

SECOND, APP, AGAIN = "/console/login/second/", "/console/me/app/", "/console/me/again/"


def test_an_app_is_added_and_asked_for_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    user = person()
    client, _ = log_in(user)
    elsewhere, _ = log_in(user)
    assert is_in(elsewhere)
    seed = seed_on(client.get(APP))
    kept = Session.objects.get(pk=client.session.session_key)
    assert seed not in str(kept.get_decoded()) and "1." in kept.get_decoded()["new_seed"]
    assert client.post(APP, {"code": "000000"}).status_code == 200 and not Totp.objects.filter(user=user).exists()
    shown = client.post(APP, {"code": code(seed)})
    assert len(set(codes_on(shown))) == 10 and shown["Cache-Control"] == "no-store, private"
    row = Totp.objects.get(user=user)
    assert seed not in row.sealed and row.secret() == seed
    assert codes_on(client.get(ME)) == [] and is_in(client)
    assert not is_in(elsewhere)  # had the password alone

    browser, answer = log_in(user, next="/console/health/")
    assert (answer.status_code, answer["Location"]) == (302, SECOND)
    assert not is_known(browser) and not is_in(browser)
    half = browser.session.session_key
    assert browser.post(SECOND, {"code": code(seed)}).status_code == 200 and not is_in(browser)  # used to add it
    answer = browser.post(SECOND, {"code": code(seed, 1)})
    assert (answer.status_code, answer["Location"]) == (302, "/console/health/")
    assert is_in(browser) and browser.session.session_key != half
    assert not Session.objects.filter(pk=half).exists()
    assert browser.get(SECOND)["Location"] == LOGIN  # and is no way in any more
    told = caplog.text
    assert f"'{user.username}' signed in from 127.0.0.1, how 'password, authenticator app'" in told
    assert "sent a wrong code from" in told
    assert not [one for one in (seed, PASSWORD, *codes_on(shown), code(seed), code(seed, 1)) if one in told]


def test_a_code_is_good_once_whoever_sends_it_at_the_same_time() -> None:
    user = person()
    shown = code(with_app(user))

    def taken(_: int) -> bool:
        try:
            return totp.take(user, shown)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(taken, range(8))) == [False] * 7 + [True]
    codes = recovery_codes.renew(user)

    def used(_: int) -> bool:
        try:
            return recovery_codes.take(user, codes[0].lower().replace("-", " "))
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(used, range(8))) == [False] * 7 + [True]
    assert RecoveryCode.objects.filter(user=user).count() == 9
    assert not recovery_codes.take(person(), codes[1])  # another one's
    recovery_codes.renew(user)
    assert not recovery_codes.take(user, codes[1])  # of before


def test_a_code_is_of_its_time() -> None:
    """RFC 6238, appendix B: its seed, 59 s and others, in the last six of its eight digits."""
    seed = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    found = {at: totp.code_of(seed, at // 30) for at in (59, 1111111109, 1234567890, 20000000000)}
    assert found == {59: "287082", 1111111109: "081804", 1234567890: "005924", 20000000000: "353130"}
    now = int(time.time()) // 30
    seed = totp.new_seed()
    near = {step: totp.code_of(seed, now + step) for step in range(-3, 5)}
    good = {step for step, one in near.items() if totp.matching_step(seed, one) is not None}
    assert {0, 1} <= good <= {-1, 0, 1, 2}
    assert [totp.matching_step(seed, one) for one in ("", "12345", "\u0660" * 6, "1" * 64)] == [None] * 4


def test_codes_cannot_be_tried_without_end_and_passwords_are_not_locked_by_that() -> None:
    user = person()
    seed = with_app(user)
    client, _ = log_in(user)
    assert [client.post(SECOND, {"code": "12345"}).status_code for _ in range(TOGETHER)] == [200] * TOGETHER
    refused = client.post(SECOND, {"code": code(seed)})
    assert refused.status_code == 429 and 0 < int(refused["Retry-After"]) <= 900
    assert not is_known(client) and Totp.objects.get(user=user).last_step == 0
    assert log_in(user)[1]["Location"] == SECOND
    other = person()
    begun = [Attempt(str(other.pk), f"192.0.2.{n}", "code").begin() for n in range(OF_CODES)]
    assert begun == [0] * OF_CODES and Attempt(str(other.pk), "192.0.2.99", "code").begin() > 0
    assert Attempt(str(other.pk), "192.0.2.99").begin() == 0  # somebody called by that number


def test_who_is_half_way_is_nobody_and_not_for_long() -> None:
    user = person()
    seed = with_app(user)
    client, _ = log_in(user)
    session = client.session
    session[HALF_WAY] = {**session[HALF_WAY], "until": time.time() - 1}
    session.save()
    assert client.post(SECOND, {"code": code(seed)})["Location"] == LOGIN and not is_known(client)
    client, _ = log_in(user)
    user.set_password("another one entirely")
    user.save()
    assert client.post(SECOND, {"code": code(seed)})["Location"] == LOGIN and not is_known(client)
    client, _ = log_in(person())
    User.objects.filter(pk=client.session["_auth_user_id"]).update(is_active=False)
    assert not is_in(client)
    assert Console().post(SECOND, {"code": code(seed)})["Location"] == LOGIN
    assert Totp.objects.get(user=user).last_step == 0


def test_a_session_with_a_password_alone_is_out_once_there_is_a_second_factor() -> None:
    user = person()
    client, _ = log_in(user)
    assert is_in(client)
    seed = with_app(user)
    other = totp.new_seed()
    assert client.post(APP, {"code": code(other)})["Location"] == LOGIN
    assert not is_known(client) and Totp.objects.get(user=user).secret() == seed
    client, _ = log_in(user)
    for path in (ME, AGAIN, APP, "/console/me/codes/", "/console/me/passkeys/"):  # the last step first
        assert client.post(path, {"code": code(other)}).status_code in (302, 405), path
    assert not is_known(client) and not RecoveryCode.objects.filter(user=user).exists()


def test_nothing_of_it_is_changed_by_who_has_not_proved_lately_who_they_are() -> None:
    user = person()
    seed = with_app(user)
    codes = recovery_codes.renew(user)
    client = inside(user)
    stale(client)
    for path in (APP, "/console/me/app/remove/", "/console/me/codes/", "/console/me/passkeys/",
                 "/console/me/passkeys/options/", "/console/password_change/"):  # fmt: skip
        answer = client.post(path, {"old_password": PASSWORD, "new_password1": "x" * 12, "new_password2": "x" * 12})
        assert (answer.status_code, answer["Location"]) == (302, f"{AGAIN}?next={ME}"), path
    assert Totp.objects.filter(user=user).exists() and RecoveryCode.objects.filter(user=user).count() == 10
    assert User.objects.get(pk=user.pk).check_password(PASSWORD)
    before = client.session.session_key
    assert client.post(AGAIN, {"password": PASSWORD}).status_code == 200  # is not enough
    assert client.post("/console/me/codes/")["Location"] == f"{AGAIN}?next={ME}"
    answer = client.post(AGAIN, {"code": code(seed), "next": "https://evil.example/"})
    assert (answer.status_code, answer["Location"]) == (302, CONSOLE)
    assert client.session.session_key != before and not Session.objects.filter(pk=before).exists()
    fresh = codes_on(client.post("/console/me/codes/"))
    assert len(fresh) == 10 and not set(fresh) & set(codes)


def test_a_password_is_enough_to_be_asked_again_where_there_is_nothing_else() -> None:
    user = person()
    client = inside(user)
    stale(client)
    assert client.get(APP)["Location"] == f"{AGAIN}?next={APP}"
    assert client.post(AGAIN, {"password": "wrong"}).status_code == 200
    assert client.get(APP).status_code == 302
    assert client.post(AGAIN, {"password": PASSWORD, "next": APP})["Location"] == APP
    assert client.get(APP).status_code == 200


def test_required_leaves_nothing_open_but_getting_one(settings: LazySettings) -> None:
    settings.CONSOLE_SECOND_FACTOR = "required"
    user = person()
    client, _ = log_in(user)
    for _, items in NAVIGATION:
        for _, _, view in items:
            assert client.get(reverse(view))["Location"] == ME, view
    assert client.post("/console/accounts/organization/add/", {"slug": "x", "name": "x"})["Location"] == ME
    assert "A second factor is required here" in client.get(ME).content.decode()
    assert len(codes_on(client.post(APP, {"code": code(seed_on(client.get(APP)))}))) == 10
    assert is_in(client)
    page = client.post("/console/me/app/remove/", follow=True)
    assert "Add another one first" in page.content.decode() and Totp.objects.filter(user=user).exists()
    settings.CONSOLE_SECOND_FACTOR = "operators"
    assert not is_in(log_in(person())[0]) and is_in(log_in(person(superuser=False))[0])
    settings.CONSOLE_SECOND_FACTOR = "optional"
    assert "Removed" in client.post("/console/me/app/remove/", follow=True).content.decode()
    assert not Totp.objects.filter(user=user).exists() and not RecoveryCode.objects.filter(user=user).exists()


def test_a_lost_one_is_forgotten_on_the_machine_and_nowhere_else() -> None:
    user, peer = person(), inside(person())
    seed = with_app(user)
    recovery_codes.renew(user)
    client = inside(user)
    assert Totp.objects.get(user=user).secret() == seed
    for path in ("/console/me/app/remove/", "/console/me/codes/"):
        assert peer.post(path, {"user": user.pk}).status_code in (302, 404)
    assert Totp.objects.filter(user=user).exists() and RecoveryCode.objects.filter(user=user).count() == 10
    said = StringIO()
    call_command("forget_second_factor", user.username, by="root", stdout=said)
    assert said.getvalue() == f"{user.username} has no second factor; 1 sessions ended.\n"
    assert not Totp.objects.filter(user=user).exists() and not is_in(client) and is_in(log_in(user)[0])


def test_seeds_are_resealed_and_bound_to_their_person(settings: LazySettings) -> None:
    first, second = person(), person()
    seed = with_app(first)
    with_app(second)
    ours = Totp.objects.filter(user__in=(first, second)).exclude(sealed="")
    settings.SEALING_KEYS = ["9" * 43 + "=", *settings.SEALING_KEYS]
    assert reseal(ours, lambda count: None) == (2, [])
    assert Totp.objects.get(user=first).secret() == seed
    Totp.objects.filter(user=second).update(sealed=Totp.objects.get(user=first).sealed)
    client, _ = log_in(second)
    assert client.post(SECOND, {"code": code(seed)}).status_code == 200 and not is_known(client)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("CONSOLE_SECOND_FACTOR", "yes", "gateway.E007"),
        ("OIDC_ISSUER", "login.example.com", "gateway.E008"),
        ("OIDC_ISSUER", "https://login.example.com", "gateway.E009"),
        ("OIDC_GROUPS", {"a": "root"}, "gateway.E010"),
        ("OIDC_GROUPS", {"a": ["owner@acme", "king@acme"]}, "gateway.E010"),
        ("OIDC_GROUPS", ["a"], "gateway.E010"),
    ],
)
def test_settings_that_mean_nothing_are_told_at_the_start(
    settings: LazySettings, name: str, value: object, code: str
) -> None:
    assert not [one for one in run_checks() if one.id and one.id.startswith("gateway.E00") and one.id > "gateway.E006"]
    setattr(settings, name, value)
    assert code in {one.id for one in run_checks()}
