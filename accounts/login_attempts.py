"""How often a password may be tried: counted in PostgreSQL, since the console has several processes and restarts.

So many attempts may fail in a quarter of an hour: for an account from a network, from a network, and for an account
from everywhere. The last two are not held against an account and network that have succeeded together before, so
nobody can lock its owner out from elsewhere. An attempt counts as failed from its beginning: those that run at the same
time are counted too. Names are kept as digests: people type passwords there by mistake.
"""

from hashlib import sha256
from ipaddress import ip_address, ip_network

from django.db import connection

WINDOW_SECONDS = 15 * 60
TOGETHER, OF_NETWORK, OF_ACCOUNT = 5, 20, 100
BEGUN = 200  # of a network, for nothing is guessed there: each is a row for some minutes
OF_CODES = 10  # second factors are tried by those alone who have the password
KNOWN_DAYS = 90  # how long a success is remembered

# A window that begins later than in a moment is of before the clock was set back.
_GOES_ON = "a.begun between now() - %(window)s * interval '1 second' and now() + interval '1 minute'"
COUNT = f"""
    insert into accounts_loginattempts as a (place, begun, failures) values (%(place)s, now(), 1)
    on conflict (place) do update
       set failures = case when {_GOES_ON} then a.failures + 1 else 1 end,
           begun = case when {_GOES_ON} then a.begun else now() end
    returning failures, ceil(extract(epoch from begun - now()) + %(window)s)::integer,
              coalesce(succeeded_at > now() - %(days)s * interval '1 day', false)
"""  # noqa: S608 - constants of ours
SUCCEEDED = """
    update accounts_loginattempts
       set failures = case when place = %(together)s then 0 else greatest(failures - 1, 0) end,
           succeeded_at = case when place = %(together)s then now() else succeeded_at end
     where place = any(%(places)s)
"""
FORGET = """
    delete from accounts_loginattempts
     where begun < now() - interval '1 day'
       and (succeeded_at is null or succeeded_at < now() - %(days)s * interval '1 day')
"""


class Attempt:
    """An attempt to log in as `name` from `address`, which may be unknown: empty.

    What is no password is of another `kind`, and counted apart: a second factor's few digits, of which an account takes
    `OF_CODES` from everywhere.
    """

    def __init__(self, name: str, address: str, kind: str = "") -> None:
        account, network = sha256(name.casefold().encode("utf-8", "replace")).hexdigest()[:32], _network(address)
        account, network = (f"{kind}:{one}" if kind else one for one in (account, network))
        self._together = f"{account} {network}"
        of_account = OF_CODES if kind else OF_ACCOUNT
        self._limits = ((self._together, TOGETHER), (network, OF_NETWORK), (account, of_account))

    def begin(self) -> int:
        """Counts it. Gives the seconds until it may be made anew, 0: now."""
        known = False
        for place, most in self._limits:
            with connection.cursor() as cursor:
                cursor.execute(COUNT, {"place": place, "window": WINDOW_SECONDS, "days": KNOWN_DAYS})
                failures, left, succeeded = cursor.fetchone()
            known = known or succeeded
            if failures > most and (place == self._together or not known):
                return max(1, int(left))
        return 0

    def succeeded(self) -> None:
        """It was the right password: nothing is held against account and network."""
        with connection.cursor() as cursor:
            places = [place for place, _ in self._limits]
            cursor.execute(SUCCEEDED, {"together": self._together, "places": places})
            cursor.execute(FORGET, {"days": KNOWN_DAYS})


def crowded(address: str, kind: str) -> int:
    """Counts what anybody may have begun: a challenge, a way to the provider. The seconds until more may be; 0: now."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT, {"place": f"{kind}:{_network(address)}", "window": WINDOW_SECONDS, "days": KNOWN_DAYS})
        begun, left, _ = cursor.fetchone()
    return max(1, int(left)) if begun > BEGUN else 0


def _network(address: str) -> str:
    """Who has one address of IPv6 has 2^64 of them."""
    try:
        return str(ip_network((address, 64 if ip_address(address).version == 6 else 32), strict=False))
    except ValueError:
        return "unknown"
