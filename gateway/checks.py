"""System checks: wrong configuration fails at start, with a hint. Never a default secret."""

import base64
import binascii
import re
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured

from accounts.sign_in.factors import OPERATORS, OPTIONAL, REQUIRED
from accounts.sign_in.groups import BadMapping, read_mapping
from gateway.changes.models import Kind
from routing.base_url import BadUrl, parse_base_url
from routing.egress import parse_allow

ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", re.IGNORECASE)


@register(Tags.security)
def secrets_are_set(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Errors for secrets that are missing or too weak to serve with."""
    found: list[CheckMessage] = []
    if len(_secret_key()) < 50:
        found.append(
            Error(
                "SECRET_KEY is missing or shorter than 50 characters.",
                hint="Set it to `python -c 'import secrets; print(secrets.token_urlsafe(50))'`.",
                id="gateway.E001",
            )
        )
    if not settings.KEY_PEPPERS or any(len(pepper) < 32 for pepper in settings.KEY_PEPPERS):
        found.append(
            Error(
                "KEY_PEPPERS is missing or holds a pepper shorter than 32 characters.",
                hint="A comma-separated list; the first is used for new keys, the others still open old ones.",
                id="gateway.E002",
            )
        )
    if not settings.SEALING_KEYS or not all(_is_sealing_key(key) for key in settings.SEALING_KEYS):
        found.append(
            Error(
                "SEALING_KEYS is missing or holds something that is not 32 bytes in url-safe base64.",
                hint="Make one with `python -c 'import base64, os; "
                "print(base64.urlsafe_b64encode(os.urandom(32)).decode())'`.",
                id="gateway.E003",
            )
        )
    return found


@register(Tags.security)
def egress_is_exact(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """An error for an entry of EGRESS_ALLOW that is not exactly scheme://host:port."""
    try:
        parse_allow(settings.EGRESS_ALLOW)
    except BadUrl as error:
        return [Error(f"EGRESS_ALLOW: {error}", hint="Write scheme://host:port, comma-separated.", id="gateway.E004")]
    return []


@register(Tags.security, deploy=True)
def egress_stays_outside(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """An error for a loopback entry in EGRESS_ALLOW of a deployment."""
    try:
        entries = parse_allow(settings.EGRESS_ALLOW)
    except BadUrl:
        return []
    loopback = sorted(host for _, host, _ in entries if host in {"localhost", "::1"} or host.startswith("127."))
    if loopback:
        return [
            Error(
                f"EGRESS_ALLOW names loopback: {', '.join(loopback)}.",
                hint="Loopback entries are for development alone.",
                id="gateway.E005",
            )
        ]
    return []


@register()
def the_default_dialect_exists(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """An error for a DEFAULT_DIALECT that is no dialect."""
    if settings.DEFAULT_DIALECT in settings.DIALECTS:
        return []
    known = ", ".join(settings.DIALECTS)
    return [Error(f"DEFAULT_DIALECT is {settings.DEFAULT_DIALECT!r}.", hint=f"Use {known}.", id="gateway.E006")]


@register()
def the_public_address_is_one(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """An error for a PUBLIC_URL that is no origin: pages are told it, and browsers let them call it."""
    if not settings.PUBLIC_URL or ORIGIN.fullmatch(settings.PUBLIC_URL):
        return []
    hint = "Write scheme://host or scheme://host:port, such as https://gateway.example."
    return [Error(f"PUBLIC_URL is {settings.PUBLIC_URL!r}.", hint=hint, id="gateway.E011")]


@register()
def what_needs_a_second_person_is_known(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """An error for a word in SECOND_PERSON that stands for nothing: nobody would be asked."""
    known = (*Kind.values, "repricing")
    unknown = sorted(set(settings.SECOND_PERSON).difference(known))
    told = f"SECOND_PERSON names {', '.join(unknown)}."
    return [Error(told, hint=f"Use {', '.join(known)}.", id="gateway.E012")] if unknown else []


@register()
def signing_in_is_set_up(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Errors for settings of signing in that mean nothing, or leave no way in."""
    found: list[CheckMessage] = []
    ways = (OPTIONAL, OPERATORS, REQUIRED)
    if settings.CONSOLE_SECOND_FACTOR not in ways:
        told = f"CONSOLE_SECOND_FACTOR is {settings.CONSOLE_SECOND_FACTOR!r}."
        found.append(Error(told, hint=f"Use one of {', '.join(ways)}.", id="gateway.E007"))
    if settings.OIDC_ISSUER:
        try:
            parse_base_url(settings.OIDC_ISSUER)
        except BadUrl as error:
            found.append(Error(f"OIDC_ISSUER: {error}", hint="Such as https://login.example.com.", id="gateway.E008"))
        if not settings.OIDC_CLIENT_ID or not settings.OIDC_CLIENT_SECRET or "openid" not in settings.OIDC_SCOPES:
            told = "OIDC_ISSUER is set, but OIDC_CLIENT_ID or OIDC_CLIENT_SECRET is not, or OIDC_SCOPES lacks openid."
            found.append(Error(told, hint="The provider's administrator has both.", id="gateway.E009"))
    try:
        read_mapping(settings.OIDC_GROUPS)
    except BadMapping as error:
        hint = """As in '{"llm-admins": "operator", "acme": ["developer@acme"]}'."""
        found.append(Error(f"OIDC_GROUPS: {error}.", hint=hint, id="gateway.E010"))
    return found


def _secret_key() -> str:
    try:
        key: str = settings.SECRET_KEY
    except ImproperlyConfigured:  # Django's own word for an empty one, without a hint
        return ""
    return key


def _is_sealing_key(text: str) -> bool:
    try:
        return len(base64.urlsafe_b64decode(text)) == 32
    except (ValueError, binascii.Error):
        return False
