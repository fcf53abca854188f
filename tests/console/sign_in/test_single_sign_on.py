"""Single sign-on against a provider that nobody here wrote: who comes in, as what, and whose word is not believed."""

import base64
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import LazySettings
from django.contrib.auth.models import Group

from accounts.models import ApiKey, AuditEvent, Identity, Membership, User
from accounts.roles import Office, Role, runs_the_installation
from gateway.console.sign_in import oidc
from routing.outside import outside
from tests.console.browser import Console
from tests.console.sign_in.steps import LOGIN, PASSWORD, code, inside, is_in, is_known, log_in, person, stale, with_app
from tests.stage.cast import Tenant, make_key
from tests.stage.identity_provider import IdentityProvider

AWAY = "/console/login/sso/"
CLIENT, SECRET = "meter/line", "s3cret: of ours"


def away(client: Console, after: str = "") -> str:
    """Where a browser is sent to."""
    answer = client.get(AWAY + (f"?next={quote(after)}" if after else ""))
    assert answer.status_code == 302, answer.content.decode()
    return str(answer["Location"])


def back(client: Console, address: str) -> Any:
    """Comes back with what the provider sent along."""
    there = urlsplit(address)
    return client.get(f"{there.path}?{there.query}")


def sign_in(idp: IdentityProvider, subject: str, client: Console | None = None, after: str = "") -> tuple[Console, Any]:
    """All of it. Gives the browser and the last answer."""
    client = client or Console()
    return client, back(client, idp.sign_in(away(client, after), subject))


def test_a_person_comes_in_by_an_address_that_the_provider_has_verified(idp: IdentityProvider) -> None:
    user = person()
    idp.knows("bob", email=user.email.upper(), email_verified=False)
    client, answer = sign_in(idp, "bob")
    assert answer.status_code == 403 and "Ask for an invitation" in answer.content.decode() and not is_known(client)
    assert not Identity.objects.filter(subject="bob").exists()
    idp.knows("bob", email=user.email.upper(), email_verified=True)
    client = Console()
    address = away(client, "/console/health/")
    before = client.session.session_key
    answer = back(client, idp.sign_in(address, "bob"))
    assert (answer.status_code, answer["Location"]) == (302, "/console/health/")
    assert is_in(client) and client.session["_auth_user_id"] == str(user.pk)
    assert client.session.session_key != before
    asked, sent = parse_qs(urlsplit(address).query), idp.tokens[-1]
    challenge = base64.urlsafe_b64encode(hashlib.sha256(sent["code_verifier"].encode()).digest()).rstrip(b"=").decode()
    assert asked["code_challenge"] == [challenge] and asked["code_challenge_method"] == ["S256"]
    assert asked["redirect_uri"] == ["http://testserver/console/login/sso/back/"] and asked["response_type"] == ["code"]
    proof = base64.b64encode(f"{quote(CLIENT, safe='')}:{quote(SECRET, safe='')}".encode()).decode()
    assert sent["authorization"] == f"Basic {proof}" and SECRET not in sent.values()
    idp.knows("bob", email="another@example.com", email_verified=False)  # they are known by their subject from now on
    assert is_in(sign_in(idp, "bob")[0])
    User.objects.filter(pk=user.pk).update(is_active=False)
    client, answer = sign_in(idp, "bob")
    assert answer.status_code == 403 and not is_known(client)


def test_an_address_and_that_it_is_verified_are_told_together(idp: IdentityProvider) -> None:
    """Not the one by the ID token and the other of another address."""
    user = person()
    idp.knows("kim", email="kim@example.com", email_verified=True)
    told: dict[str, Any] = {"email": user.email, "email_verified": None}

    client, _ = sign_in_with(idp, "kim", told)
    assert not is_known(client)
    client, _ = sign_in_with(idp, "kim", {"email": user.email})
    assert is_known(client)


def test_an_address_of_two_lets_neither_in(idp: IdentityProvider) -> None:
    first = person()
    person(email=first.email)
    idp.knows("two", email=first.email, email_verified=True)
    client, answer = sign_in(idp, "two")
    assert answer.status_code == 403 and not is_known(client)


def roles(user: User) -> dict[str, str]:
    """What they are, by organization."""
    return dict(Membership.objects.filter(user=user).values_list("organization__slug", "role"))


def is_operator(user: User) -> bool:
    """Whether they are one now."""
    return runs_the_installation(User.objects.get(pk=user.pk))


def test_groups_give_what_the_mapping_says_and_take_it_again(
    idp: IdentityProvider, settings: LazySettings, alice: Tenant, charlie: Tenant
) -> None:
    ours, theirs = alice.organization.slug, charlie.organization.slug
    settings.OIDC_GROUPS = {
        "CN=Ops,OU=Groups": "operator",
        "owners": f"owner@{ours}",
        "engineers": [f"developer@{ours}", f"auditor@{theirs}"],
    }
    subject, mail = f"carol-{ours}", f"carol-{ours}@example.com"
    told = {"email": mail, "email_verified": True, "name": "Carol Jones"}
    idp.knows(subject, **told, groups=["everybody", "operator", f"owner@{ours}"])
    assert sign_in(idp, subject)[1].status_code == 403 and not User.objects.filter(email=mail).exists()

    idp.knows(subject, **told, groups=["engineers", "everybody"])
    client, answer = sign_in(idp, subject)
    user = User.objects.get(email=mail)
    assert answer.status_code == 302 and is_known(client) and not user.has_usable_password()
    assert (user.first_name, user.last_name, user.is_superuser) == ("Carol", "Jones", False)
    assert roles(user) == {ours: "developer", theirs: "auditor"}

    idp.knows(subject, **told, groups=["engineers", "owners", "CN=Ops,OU=Groups"])
    sign_in(idp, subject)
    assert is_operator(user) and roles(user) == {ours: "owner", theirs: "auditor"}  # the mapping names owners first

    Membership.objects.filter(user=user, organization=charlie.organization).update(role=Role.DEVELOPER)  # by hand
    idp.knows(subject, **told, groups="owners")
    sign_in(idp, subject)
    assert not is_operator(user) and roles(user) == {ours: "owner", theirs: "developer"}
    idp.knows(subject, **told)
    sign_in(idp, subject)
    assert roles(user) == {theirs: "developer"}

    boss = person(superuser=False)
    boss.groups.add(Group.objects.get(name=Office.OPERATOR))
    Membership.objects.create(user=boss, organization=alice.organization, role=Role.AUDITOR)
    idp.knows("boss", email=boss.email, email_verified=True, groups=["owners", "CN=Ops,OU=Groups"])
    sign_in(idp, "boss")
    assert roles(boss) == {ours: "auditor"}  # neither more
    idp.knows("boss", email=boss.email, email_verified=True, groups=[])
    sign_in(idp, "boss")
    assert roles(boss) == {ours: "auditor"} and is_operator(boss)  # nor less


def test_an_answer_is_for_the_browser_that_was_sent_and_good_once(idp: IdentityProvider) -> None:
    idp.knows("dave", email=person().email, email_verified=True)
    client, stranger = Console(), Console()
    answer = idp.sign_in(away(client), "dave")
    away(stranger)
    sent = len(idp.tokens)
    for other in (stranger, Console()):  # somebody signs the victim in as themselves
        assert back(other, answer).status_code == 403 and not is_known(other)
    assert back(client, answer.replace("state=", "state=x")).status_code == 403 and not is_known(client)
    assert back(client, answer).status_code == 403 and not is_known(client)  # used up
    assert len(idp.tokens) == sent  # the code was not even sent on
    client, _ = sign_in(idp, "dave")
    assert is_in(client)
    client = Console()
    answer = idp.sign_in(away(client), "dave")
    assert back(client, answer + "&iss=https%3A%2F%2Fevil.example").status_code == 403 and not is_known(client)
    client = Console()
    away(client)
    assert back(client, "http://testserver/console/login/sso/back/?error=access_denied").status_code == 403


KEY, OTHER = (rsa.generate_private_key(65537, 2048) for _ in range(2))
Tamper = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.mark.parametrize(
    ("claims", "signing", "good"),
    [
        ({}, {}, True),
        ({"aud": [CLIENT, "other"], "azp": CLIENT}, {}, True),
        ({"aud": [CLIENT, "other"]}, {}, False),
        ({"aud": [CLIENT], "azp": "other"}, {}, False),
        ({"aud": "other"}, {}, False),
        ({"iss": "https://evil.example"}, {}, False),
        ({"exp": -120}, {}, False),
        ({"iat": 600}, {}, False),
        ({"nonce": "another"}, {}, False),
        ({"nonce": None}, {}, False),
        ({"sub": ""}, {}, False),
        ({"sub": "x" * 256}, {}, False),
        ({"sub": "x\0"}, {}, False),
        ({}, {"key": OTHER}, False),
        ({}, {"kid": "unknown"}, False),
        ({}, {"algorithm": "none", "key": None}, False),
        ({}, {"algorithm": "HS256", "key": SECRET * 3}, False),
    ],
)
def test_an_id_token_is_believed_as_the_specification_has_it(
    idp: IdentityProvider, claims: dict[str, Any], signing: dict[str, Any], good: bool
) -> None:
    """OpenID Connect Core 1.0, 3.1.3.7; each token is as the provider makes them but for one thing."""
    user = person()
    subject = f"id-{user.username}"
    idp.knows(subject, email=user.email, email_verified=True)
    client, answer = sign_in_with(idp, subject, claims, **signing)
    assert (answer.status_code == 302, is_known(client)) == (good, good)
    assert Identity.objects.filter(user=user).exists() is good


def tampered(claims: dict[str, Any], **signing: Any) -> Callable[[str, bytes], bytes]:
    """Answers whose ID token is as the provider makes them but for these claims, or how it is signed."""

    def said(path: str, body: bytes) -> bytes:
        if path == "/jwks":
            jwk = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
            return json.dumps({"keys": [{**jwk, "kid": "ours", "use": "sig"}, {"kty": "new"}, 7]}).encode()
        if path != "/oauth2/token":
            return body
        answer = json.loads(body)
        told = jwt.decode(answer["id_token"], options={"verify_signature": False})
        for name, value in claims.items():
            told[name] = int(time.time()) + value if name in ("exp", "iat") else value
        told = {name: value for name, value in told.items() if value is not None}
        how = {"algorithm": "RS256", "key": KEY, "kid": "ours", **signing}
        answer["id_token"] = jwt.encode(told, how["key"], how["algorithm"], headers={"kid": how["kid"]})
        return json.dumps(answer).encode()

    return said


def sign_in_with(idp: IdentityProvider, subject: str, claims: dict[str, Any], **signing: Any) -> tuple[Console, Any]:
    """Signs in with such an ID token."""
    idp.says = tampered(claims, **signing)
    return sign_in(idp, subject)


def test_who_was_not_asked_just_now_has_not_shown_who_they_are(idp: IdentityProvider) -> None:
    user = person()
    idp.knows("gil", email=user.email, email_verified=True)
    client, _ = sign_in_with(idp, "gil", {})
    stale(client)
    now = int(time.time())
    for when in (None, "soon", str(now), True, float("nan"), 10**400, now - 3600, now + 3600, [now]):
        idp.says = tampered({"auth_time": when})
        answer = back(client, idp.sign_in(away(client, "/console/me/app/"), "gil"))
        assert (answer.status_code, client.get("/console/me/app/").status_code) == (403, 302), when
    idp.says = tampered({"auth_time": now})
    assert back(client, idp.sign_in(away(client, "/console/me/app/"), "gil"))["Location"] == "/console/me/app/"


def test_a_new_key_of_the_issuers_is_found(idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    user = person()
    idp.knows("erin", email=user.email, email_verified=True)
    idp.says = lambda path, body: b'{"keys": []}' if path == "/jwks" else body
    assert sign_in(idp, "erin")[1].status_code == 403
    idp.says = lambda path, body: body
    assert sign_in(idp, "erin")[1].status_code == 403  # asked a moment ago
    monkeypatch.setattr(oidc, "AGAIN_SECONDS", 0)
    assert is_in(sign_in(idp, "erin")[0])


@pytest.mark.parametrize(
    "broken",
    [
        lambda body: body.replace(b'"issuer": "http', b'"issuer": "https'),
        lambda body: b"[]",
        lambda body: b"x" * 300_000,
        lambda body: body.replace(b'"token_endpoint": "http', b'"token_endpoint": "file'),
    ],
)
def test_a_document_that_is_not_the_issuers_leads_nowhere(idp: IdentityProvider, broken: Any) -> None:
    idp.says = lambda path, body: broken(body) if "well-known" in path else body
    answer = Console().get(AWAY)
    assert answer.status_code == 502 and "cannot be reached" in answer.content.decode()


def test_nothing_is_dialled_that_the_guard_refuses(idp: IdentityProvider, settings: LazySettings) -> None:
    settings.EGRESS_ALLOW = []
    outside.cache_clear()
    asked: list[str] = []
    idp.says = lambda path, body: asked.append(path) or body  # type: ignore[func-returns-value]
    assert Console().get(AWAY).status_code == 502
    assert asked == []
    settings.EGRESS_ALLOW = [idp.url]
    outside.cache_clear()
    # An endpoint that the issuer's own document names is no exception.
    idp.says = lambda path, body: body.replace(b"127.0.0.1", b"127.0.0.2") if "/oauth2" not in path else body
    settings.OIDC_ISSUER = idp.url.replace("127.0.0.1", "127.0.0.2")
    assert Console().get(AWAY).status_code == 502


def test_it_is_one_factor_unless_the_provider_sees_to_the_second(idp: IdentityProvider, settings: LazySettings) -> None:
    user = person()
    seed = with_app(user)
    idp.knows("fay", email=user.email, email_verified=True)
    client, answer = sign_in(idp, "fay", after="/console/health/")
    assert answer["Location"] == "/console/login/second/" and not is_known(client)
    assert client.post("/console/login/second/", {"code": code(seed)})["Location"] == "/console/health/"
    assert is_in(client)
    settings.CONSOLE_SECOND_FACTOR = "required"
    plain = person()
    idp.knows("gus", email=plain.email, email_verified=True)
    client, _ = sign_in(idp, "gus")
    assert client.get("/console/")["Location"] == "/console/me/"
    settings.OIDC_PROVES_SECOND_FACTOR = True
    assert is_in(sign_in(idp, "gus")[0]) and is_in(sign_in(idp, "fay")[0])


def test_passwords_may_be_off(idp: IdentityProvider, settings: LazySettings) -> None:
    settings.CONSOLE_PASSWORDS = False
    user = person()
    client, answer = log_in(user)
    assert answer.status_code == 403 and not is_known(client)
    page = client.get(LOGIN).content.decode()
    assert 'name="password"' not in page and AWAY in page
    client = inside(user)
    assert client.get("/console/password_change/").status_code == 404
    stale(client)
    assert client.post("/console/me/again/", {"password": PASSWORD}).status_code == 200
    assert client.get("/console/me/app/").status_code == 302  # not believed
    idp.knows("hal", email=user.email, email_verified=True)
    client, _ = sign_in(idp, "hal")
    stale(client)
    # Asked again there: as the same person, who was asked just now.
    for who, location in (("ivy", "/console/me/again/"), ("hal", "/console/me/app/")):
        address = away(client, "/console/me/app/")
        assert {"prompt", "max_age"} <= parse_qs(urlsplit(address).query).keys()
        assert back(client, idp.sign_in(address, who))["Location"] == location, who
    assert client.get("/console/me/app/").status_code == 200


def test_without_an_issuer_there_is_no_such_page() -> None:
    assert Console().get(AWAY).status_code == 404
    assert AWAY not in Console().get(LOGIN).content.decode()


def test_with_a_role_go_the_keys_that_are_beyond_it_and_the_last_owner_stays(
    idp: IdentityProvider, settings: LazySettings, alice: Tenant
) -> None:
    ours = alice.organization.slug
    settings.OIDC_GROUPS = {"owners": f"owner@{ours}", "engineers": f"developer@{ours}"}
    subject = f"erin-{ours}"
    told = {"email": f"{subject}@example.com", "email_verified": True}
    idp.knows(subject, **told, groups=["owners"])
    sign_in(idp, subject)
    user = User.objects.get(email=told["email"])
    _, calls = (make_key(alice.project, owner=user, scopes=[scope])[0] for scope in ("export", "inference"))
    Membership.objects.filter(organization=alice.organization).exclude(user=user).delete()
    idp.knows(subject, **told, groups=["engineers"])
    sign_in(idp, subject)
    assert roles(user) == {ours: "owner"}  # nobody else is one
    Membership.objects.create(user=alice.user, organization=alice.organization, role=Role.OWNER)
    for groups, left, alive in ((["engineers"], {ours: "developer"}, [calls.pk]), ([], {}, [])):
        idp.knows(subject, **told, groups=groups)
        sign_in(idp, subject)
        assert roles(user) == left
        assert list(ApiKey.objects.filter(owner=user, revoked_at=None).values_list("pk", flat=True)) == alive
    by = AuditEvent.objects.filter(table="accounts_membership", organization=alice.organization.pk, actor=user.pk)
    assert list(by.order_by("pk").values_list("action", flat=True)) == ["add", "change", "delete"]


def test_who_is_disabled_is_known_by_nothing_and_given_nothing(idp: IdentityProvider, settings: LazySettings) -> None:
    settings.OIDC_GROUPS = {"ops": "operator"}
    user = person(superuser=False)
    User.objects.filter(pk=user.pk).update(is_active=False)
    idp.knows(user.username, email=user.email, email_verified=True, groups=["ops"])
    assert sign_in(idp, user.username)[1].status_code == 403
    assert not Identity.objects.filter(user=user).exists() and not runs_the_installation(user)
    assert User.objects.filter(email=user.email).count() == 1
