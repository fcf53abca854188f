"""Sessions: seen, ended one by one or together, with a password, and by nobody else."""

import re
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.utils import timezone

from accounts.models import SignedIn, User
from accounts.sign_in import sessions
from accounts.sign_in.beforehand import seeing_all
from tests.console.browser import Console
from tests.console.sign_in.steps import ME, PASSWORD, inside, is_in, is_known, log_in, person, stale
from tests.stage.product import ROOT, environment

END = "/console/me/sessions/"
PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605 Version/19.0 Safari/604.1 \x1b[31m<b>"


def names_on(page: Any) -> list[str]:
    """What the page calls the sessions that may be ended."""
    return re.findall(r'name="session" value="(\w+)"', page.content.decode())


def test_they_are_listed_and_ended_one_by_one_and_together() -> None:
    user, other = person(), inside(person())
    here, phone, third = inside(user), Console(HTTP_USER_AGENT=PHONE), inside(user)
    phone.force_login(user)
    assert is_in(phone)
    SignedIn.objects.filter(pk=third.session.session_key).update(last_seen_at=timezone.now() - timedelta(hours=1))
    page = here.get(ME)
    shown = page.content.decode()
    assert "Safari on iPhone" in shown and "127.0.0.1" in shown and "(this one)" in shown
    assert not any(str(client.session.session_key) in shown for client in (here, phone, third, other))
    row = SignedIn.objects.get(pk=phone.session.session_key)
    assert len(row.device) <= 200 and "\x1b" not in row.device and "<b>" not in shown
    newest, oldest = names_on(page)
    assert newest == sessions.name_of(str(phone.session.session_key))
    other.post(END, {"session": oldest})
    assert is_in(third)
    assert here.post(END, {"session": newest})["Location"] == ME
    assert not is_in(phone) and is_in(third) and is_in(here)
    assert here.post(END)["Location"] == ME
    assert not is_in(third) and is_in(here) and is_in(other)
    assert names_on(here.get(ME)) == [] and SignedIn.objects.filter(user=user).count() == 1


def test_what_was_seen_is_noted_once_a_minute() -> None:
    client = inside(person())
    key = client.session.session_key
    before = SignedIn.objects.get(pk=key).last_seen_at
    assert is_in(client) and SignedIn.objects.get(pk=key).last_seen_at == before
    SignedIn.objects.filter(pk=key).update(last_seen_at=before - timedelta(minutes=2))
    assert is_in(client) and SignedIn.objects.get(pk=key).last_seen_at >= before


def test_a_changed_password_ends_them_and_keeps_the_one_that_changed_it() -> None:
    user = person()
    here, elsewhere = inside(user), inside(user)
    before = here.session.session_key
    wrong = {"old_password": "wrong", "new_password1": "another one here", "new_password2": "another one here"}
    assert here.post("/console/password_change/", wrong).status_code == 200 and is_in(elsewhere)
    assert here.post("/console/password_change/", {**wrong, "old_password": PASSWORD})["Location"] == ME
    assert is_in(here) and not is_in(elsewhere) and here.session.session_key != before
    assert list(SignedIn.objects.filter(user=user).values_list("pk", flat=True)) == [here.session.session_key]
    assert not Session.objects.filter(pk=before).exists()
    user.refresh_from_db()
    user.set_password(PASSWORD)  # by an operator
    user.save()
    assert not is_in(here) and not SignedIn.objects.filter(user=user).exists()
    client = inside(user)
    User.objects.get(pk=user.pk).save()  # nothing of the kind
    assert is_in(client)
    user.is_active = False
    user.save()
    assert not SignedIn.objects.filter(user=user).exists() and not is_in(client)


def test_an_old_password_is_not_tried_there_without_end() -> None:
    client = inside(person())
    form = {"old_password": "wrong", "new_password1": "another one here", "new_password2": "another one here"}
    told = [client.post("/console/password_change/", form).status_code for _ in range(6)]
    assert told == [200] * 5 + [429]


def test_a_session_from_before_is_not_the_one_that_is_signed_in() -> None:
    """Whoever has set the victim's cookie has nothing."""
    user = person()
    attacker = Console()
    attacker.get("/console/login/")
    session = attacker.session
    session["x"] = 1
    session.save()
    client, _ = log_in(user, attacker)
    assert client.session.session_key != session.session_key and is_in(client)
    assert not Session.objects.filter(pk=session.session_key).exists()


def test_a_session_that_is_over_is_forgotten() -> None:
    user = person()
    gone = inside(user)
    Session.objects.filter(pk=gone.session.session_key).update(expire_date=timezone.now() - timedelta(seconds=1))
    assert not is_in(gone)
    log_in(person())
    assert not SignedIn.objects.filter(user=user).exists()


def test_one_that_is_ended_at_this_moment_is_not_noted() -> None:
    user = person()
    client = inside(user)
    session = client.session
    assert sessions.end(user) == 1
    sessions.seen(session, user, "192.0.2.1", "late")
    assert not SignedIn.objects.filter(user=user).exists() and not is_known(client)


def test_the_api_has_no_business_with_how_people_sign_in() -> None:
    tables = ("totp", "recoverycode", "passkey", "identity", "invitation", "signedin")
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from unnest(%s::text[]) as one,"
            " unnest(array['select', 'insert', 'update', 'delete']) as verb"
            " where has_table_privilege('meterline_app', 'accounts_' || one, verb)",
            [list(tables)],
        )
        assert cursor.fetchone() == (0,)


def test_a_gateway_alone_loads_nothing_of_it() -> None:
    code = """
import sys
import gateway.door.handler
print(sorted({"fido2", "segno", "jwt", "gateway.console.sign_in", "unfold"} & set(sys.modules)))
"""
    env = environment(SERVE="gateway")
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    assert told.stdout == "[]\n"


def test_what_is_done_before_somebody_is_in_sees_all_and_nothing_after_it() -> None:
    def sees() -> str:
        with connection.cursor() as cursor:
            cursor.execute("select coalesce(current_setting('meterline.sees', true), '')")
            (found,) = cursor.fetchone()
        return str(found)

    assert sees() == ""
    with seeing_all(), seeing_all():
        assert sees() == "all"
    assert sees() == ""
    with transaction.atomic():
        with suppress(ZeroDivisionError), seeing_all():
            raise ZeroDivisionError
        assert sees() == ""


def test_a_password_is_given_by_who_has_just_proved_who_they_are(database: None) -> None:
    user, other = person(), person(superuser=False)
    client = inside(user)
    stale(client)
    new = {"usable_password": "true", "password1": "another pass phrase", "password2": "another pass phrase"}
    for whose in (user, other):
        address = f"/console/accounts/user/{whose.pk}/password/"
        assert client.post(address, new)["Location"].startswith("/console/me/again/")
        assert User.objects.get(pk=whose.pk).check_password(PASSWORD)
    assert inside(user).post(f"/console/accounts/user/{other.pk}/password/", new).status_code == 302
    assert User.objects.get(pk=other.pk).check_password("another pass phrase")
