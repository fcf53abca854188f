"""Passkeys: in Chromium, with its virtual device; and what a device of an attacker's is not believed."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.sessions.models import Session

from accounts.models import Passkey, User
from accounts.sign_in.passkeys import MOST
from gateway.console.sign_in.entering import CHALLENGE
from tests.console.browser import Console
from tests.console.sign_in.steps import CONSOLE, LOGIN, ME, PASSWORD, codes_on, inside, is_in, is_known, log_in, person
from tests.console.window import Window, needs_a_browser, open_window
from tests.stage.authenticator import PRESENT, Authenticator
from tests.stage.product import running

ADD, OPTIONS = "/console/me/passkeys/", "/console/me/passkeys/options/"
ALONE, ALONE_OPTIONS = "/console/login/passkey/", "/console/login/passkey/options/"
SECOND, SECOND_OPTIONS = "/console/login/second/", "/console/login/second/options/"


def options(client: Console, path: str) -> Any:
    """What the page's script is told to ask the browser."""
    answer = client.post(path)
    assert answer.status_code == 200, (path, answer)
    return json.loads(answer.content)


def add(client: Console, device: Authenticator, name: str = "A device") -> Any:
    """Adds the device; gives the answer."""
    return client.post(ADD, {"credential": device.make(options(client, OPTIONS)), "name": name})


def with_passkey() -> tuple[User, Authenticator]:
    """Somebody fresh, and their device."""
    user, device = person(), Authenticator()
    assert len(codes_on(add(inside(user), device))) == 10
    return user, device


def alone(device: Authenticator, client: Console | None = None, asked: Any = None) -> Console:
    """A browser in which the device alone was to sign its holder in."""
    client = client or Console()
    client.post(ALONE, {"credential": device.sign(asked or options(client, ALONE_OPTIONS))})
    return client


def test_it_signs_in_alone_or_after_a_password() -> None:
    user, device = with_passkey()
    device.count = 1
    assert is_in(alone(device))
    client, answer = log_in(user)
    assert answer["Location"] == SECOND and not is_known(client)
    device.count, device.flags, device.handle = 2, PRESENT, None  # after a password, presence is enough
    client.post(SECOND, {"credential": device.sign(options(client, SECOND_OPTIONS))})
    assert is_in(client)
    assert Passkey.objects.get(user=user).sign_count == 2


OTHERWISE: dict[str, dict[str, Any]] = {
    "of another page": {"origin": "http://testserver.evil.example"},
    "of another scheme": {"origin": "https://testserver"},
    "for another host": {"host": "evil.example"},
    "without a person": {"flags": 0},
    "by whoever holds it": {"flags": PRESENT},
    "of a copy": {"count": 5},
    "for somebody else": {"handle": b"meterline 0"},
    "for nobody": {"handle": None},
    "with another key": {"key": Authenticator().key},
    "of an unknown device": {"id": b"\1" * 16},
}


def test_what_is_signed_otherwise_is_not_believed() -> None:
    user, device = with_passkey()
    Passkey.objects.filter(user=user).update(sign_count=5)
    device.count = 6
    for what, change in OTHERWISE.items():
        assert not is_known(alone(replace(device, **change))), what
        assert Passkey.objects.get(user=user).sign_count == 5, what
    assert is_in(alone(device))


def test_a_challenge_is_for_one_answer_one_browser_one_purpose_and_some_minutes() -> None:
    user, device = with_passkey()
    client = Console()
    asked = options(client, ALONE_OPTIONS)
    assert not is_known(alone(device, Console(), asked))
    other = Console()
    options(other, ALONE_OPTIONS)
    assert not is_known(alone(device, other, asked))
    signed = device.sign(asked)
    session = client.session
    assert Session.objects.get(pk=session.session_key).expire_date.timestamp() < time.time() + 301
    session[CHALLENGE] = {**session[CHALLENGE], "until": time.time() - 1}
    session.save()
    client.post(ALONE, {"credential": signed})
    assert not is_known(client)
    asked = options(client, ALONE_OPTIONS)
    client.post(ALONE, {"credential": "{}"})
    assert not is_known(alone(device, client, asked))  # used up by the first answer
    half, _ = log_in(user)
    asked = options(half, SECOND_OPTIONS)
    assert not is_known(alone(device, half, asked))
    assert is_in(alone(device, half))
    assert Console().post(SECOND_OPTIONS)["Location"] == LOGIN


def test_what_is_no_credential_is_refused() -> None:
    user = person()
    client, anybody = inside(user), Console()
    for credential in ("", "[]", "{", "{}", '{"rawId": 7}', "[" * 5000, "x" * 20_000, "null"):
        options(client, OPTIONS)
        assert client.post(ADD, {"credential": credential, "name": "x"})["Location"] == ME, credential
        options(anybody, ALONE_OPTIONS)
        assert anybody.post(ALONE, {"credential": credential}).status_code == 200, credential
        assert not is_known(anybody), credential
    assert not user.passkeys.exists()


def test_several_are_renamed_and_removed_by_their_person_alone() -> None:
    user, device = with_passkey()
    client, peer = alone(device), inside(person())
    second = Authenticator(host="testserver")
    assert add(client, second, " My\x00 phone ")["Location"] == ME
    assert add(peer, replace(second)).status_code == 302  # is another one's already
    assert not Passkey.objects.exclude(user=user).filter(credential_id=second.id).exists()
    first, phone = Passkey.objects.filter(user=user).order_by("created_at")
    assert phone.name == "My  phone"
    for action in ("name", "remove"):
        assert peer.post(f"{ADD}{phone.pk}/{action}/", {"name": "stolen"}).status_code == 404
    assert client.post(f"{ADD}{phone.pk}/name/", {"name": "Phone"})["Location"] == ME
    assert "Phone" in client.get(ME).content.decode()
    assert client.post(f"{ADD}{first.pk}/remove/")["Location"] == ME
    assert [one.name for one in Passkey.objects.filter(user=user)] == ["Phone"]
    assert not is_known(alone(device)) and is_in(alone(second))
    assert client.post(f"{ADD}{phone.pk}/remove/")["Location"] == ME
    assert not user.recovery_codes.exists() and not is_known(alone(second))
    assert is_in(log_in(user)[0])


def test_a_person_has_so_many_and_who_is_not_let_in_has_none_that_opens() -> None:
    user, device = with_passkey()
    row = Passkey.objects.get(user=user)
    Passkey.objects.bulk_create(
        Passkey(user=user, credential_id=bytes([n]) * 16, credential=row.credential, name="x") for n in range(1, MOST)
    )
    client = alone(device)
    add(client, Authenticator())
    assert user.passkeys.count() == MOST
    User.objects.filter(pk=user.pk).update(is_staff=False)
    assert not is_known(alone(device))
    User.objects.filter(pk=user.pk).update(is_staff=True, is_active=False)
    assert not is_known(alone(device)) and not is_in(client)


@needs_a_browser
def test_in_a_browser(tmp_path: Path) -> None:
    """Added after a password, by Chromium's own device; then it opens the console alone. Each page can be read."""
    from selenium.webdriver.common.virtual_authenticator import VirtualAuthenticatorOptions

    user = person()
    User.objects.filter(pk=user.pk).update(password=PBKDF2PasswordHasher().encode(PASSWORD, "salt", 1))
    with (
        running(tmp_path, SERVE="all") as (server,),
        open_window(server.url.replace("127.0.0.1", "localhost")) as window,
    ):
        device = VirtualAuthenticatorOptions(has_resident_key=True, has_user_verification=True, is_user_verified=True)
        window.driver.add_virtual_authenticator(device)
        window.open(LOGIN)
        looked = {"login": faults(window)}
        window.type(username=user.username, password=PASSWORD)
        window.open(ME)
        looked["mine"] = faults(window)
        press(window, name="Laptop")
        assert window.words("h1") == "Recovery codes"
        looked["codes"] = faults(window)
        window.driver.delete_all_cookies()
        window.open(LOGIN)
        press(window)
        assert window.driver.current_url == window.base + CONSOLE
        assert window.said() == []
    assert Passkey.objects.get(user=user).name == "Laptop" and Passkey.objects.get(user=user).last_used_at is not None
    assert not any(looked.values()), looked


def press(window: Window, **words: str) -> None:
    """Has the browser ask its device; returns once another page has come."""
    page = window.driver.find_element("tag name", "html")
    form = window.driver.find_element("css selector", "form[data-passkey]")
    for name, value in words.items():
        form.find_element("name", name).send_keys(value)
    form.find_element("tag name", "button").click()
    window._until_gone(page)


def faults(window: Window) -> list[str]:
    """What is wrong with the page, narrow by night and wide by day."""
    found = [f"{width}: {one}" for width in (390, 1280) for one in window.wrong(width, night=width == 390)]
    window.driver.execute_script("document.documentElement.classList.remove('dark')")
    return found
