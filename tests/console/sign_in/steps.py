"""What people do to sign in, as a browser sends it."""

import re
import secrets
import time
from typing import Any

from django.contrib.auth import SESSION_KEY

from accounts.models import SignedIn, Totp, User
from accounts.sealing import seal
from accounts.sign_in import totp
from gateway.console.sign_in.entering import PROVED
from tests.console.browser import Console

PASSWORD = "correct horse battery"
LOGIN, ME, CONSOLE = "/console/login/", "/console/me/", "/console/"


def person(*, superuser: bool = True, email: str = "") -> User:
    """Somebody fresh with a password, who may log in."""
    name = f"op-{secrets.token_hex(4)}"
    user = User(username=name, email=email or f"{name}@example.com", is_staff=True, is_superuser=superuser)
    user.set_password(PASSWORD)
    user.save()
    return user


def with_app(user: User) -> str:
    """Gives `user` an authenticator app; its seed."""
    seed = totp.new_seed()
    row = Totp(user=user)
    row.sealed = seal(seed, row.place())
    row.save()
    return seed


def code(seed: str, later: int = 0) -> str:
    """What the app shows now, or so many windows of 30 s later."""
    return totp.code_of(seed, int(time.time()) // totp.STEP_SECONDS + later)


def log_in(user: User, client: Console | None = None, **more: str) -> tuple[Console, Any]:
    """Sends the right password. Gives the browser, and the answer."""
    client = client or Console()
    return client, client.post(LOGIN, {"username": user.username, "password": PASSWORD, **more})


def is_in(client: Console) -> bool:
    """Whether the console shows this browser what it shows those who are in: here something that is quickly made."""
    return client.get("/console/jsi18n/").status_code == 200


def is_known(client: Console) -> bool:
    """Whether its session says that somebody is signed in."""
    return SESSION_KEY in client.session


def inside(user: User) -> Console:
    """A browser in which `user` is signed in, and has just proved it, by a second factor if they have one."""
    client = Console()
    client.force_login(user)
    session = client.session
    session[PROVED] = {"how": "test", "at": time.time(), "second": Totp.objects.filter(user=user).exists()}
    session.save()
    assert is_in(client) and SignedIn.objects.filter(user=user, pk=session.session_key).exists()
    return client


def stale(client: Console) -> None:
    """So long ago did this browser prove who holds it that it is asked again."""
    session = client.session
    session[PROVED] = {**session[PROVED], "at": time.time() - 601}
    session.save()


def seed_on(page: Any) -> str:
    """The seed that a page shows."""
    found = re.search(r'id="seed">([A-Z2-7 ]+)<', page.content.decode())
    assert found is not None
    return found[1].replace(" ", "")


def codes_on(page: Any) -> list[str]:
    """The recovery codes that a page shows."""
    return re.findall(r"<code>([A-Z2-7]{5}-[A-Z2-7]{5})</code>", page.content.decode())
