"""Who is signed in where: listed and ended. A row of `SignedIn` goes with its row of `django_session`."""

from collections.abc import Iterable

from django.contrib.sessions.backends.base import SessionBase
from django.db import connection
from django.db.models.signals import post_save
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from accounts.models import SignedIn, User

MOST_SHOWN = 100

# Of a session that somebody ends at this moment no row is made.
SEEN = """
insert into accounts_signedin as s (session_key, user_id, address, device, begun_at, last_seen_at)
select session_key, %(user)s, %(address)s, %(device)s, now(), now()
  from django_session where session_key = %(key)s for key share
on conflict (session_key) do update
   set user_id = excluded.user_id, address = excluded.address, device = excluded.device, last_seen_at = now()
 where s.last_seen_at < now() - interval '1 minute' or s.user_id <> excluded.user_id
"""
END = """
delete from django_session using accounts_signedin s
 where s.session_key = django_session.session_key and s.user_id = %(user)s and s.session_key <> %(but)s
   and (%(only)s = '' or s.session_key = %(only)s)
"""
FORGET = "delete from django_session where expire_date < now()"


def seen(session: SessionBase, user: User, address: str, device: str) -> None:
    """`user` is here at this moment, with a session that is saved: noted once a minute."""
    words = {"key": session.session_key, "user": user.pk, "address": address[:45], "device": _printable(device)}
    with connection.cursor() as cursor:
        cursor.execute(SEEN, words)


def renew(session: SessionBase) -> None:
    """Gives the session another key: who knew the old one has nothing."""
    old = SignedIn.objects.filter(pk=session.session_key).first()
    session.cycle_key()
    if old is not None and session.session_key:
        old.pk = session.session_key
        old.save(force_insert=True)


def of(user: User) -> list[SignedIn]:
    """Theirs, the newest first."""
    return list(SignedIn.objects.filter(user=user).order_by("-last_seen_at", "pk")[:MOST_SHOWN])


def end(user: User, *, only: str = "", but: str = "") -> int:
    """Ends the user's sessions, or one by its key, or all but one. Gives how many; nobody else's is touched."""
    with connection.cursor() as cursor:
        cursor.execute(END, {"user": user.pk, "only": only, "but": but})
        return int(cursor.rowcount)


def forget_expired() -> None:
    """Deletes the sessions whose time is over."""
    with connection.cursor() as cursor:
        cursor.execute(FORGET)


def end_with_the_password(sender: type[User], instance: User, created: bool, **kwargs: object) -> None:
    """Whoever gets another password, or may not log in any more, is signed out everywhere.

    Their own page signs them in anew where they changed it. Django's own hash in each session has ended them already;
    this has the list say so.
    """
    may_log_in = instance.is_active and instance.is_staff
    if not created and (instance._password is not None or not may_log_in):  # type: ignore[attr-defined]
        end(instance)


def connect() -> None:
    """For the app's start."""
    post_save.connect(end_with_the_password, sender=User, dispatch_uid="sign_in.sessions")


def name_of(key: str) -> str:
    """What a page calls a session: its key opens it, so no page has that."""
    return salted_hmac("meterline session", key, algorithm="sha256").hexdigest()[:32]


def _printable(device: str) -> str:
    return "".join(char if char.isprintable() else " " for char in device)[:200]


def device_name(user_agent: str) -> str:
    """A browser and system in two words, of what the browser says of itself, which may be anything."""

    def first(pairs: Iterable[tuple[str, str]], otherwise: str) -> str:
        return next((name for sign, name in pairs if sign in user_agent), otherwise)

    browser = first(
        (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari")),
        _("A program"),
    )
    system = first(
        (
            *(("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows")),
            *(("Mac OS X", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux")),
        ),
        "",
    )
    return _("%(browser)s on %(system)s") % {"browser": browser, "system": system} if system else browser
