"""Invitations: whose they are to make, that each is good once and for what it offers, and for nobody else."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import Group
from django.db import connection
from django.utils import timezone

from accounts.models import Identity, Invitation, Membership, Organization, User
from accounts.roles import Office, Role, runs_the_installation
from accounts.sign_in import invitations
from accounts.sign_in.invitations import MOST_A_DAY, NotGood
from tests.console.browser import Console
from tests.console.sign_in.steps import inside, is_in, is_known, log_in, person
from tests.console.sign_in.test_single_sign_on import sign_in
from tests.stage.cast import NOBODYS, Tenant
from tests.stage.identity_provider import IdentityProvider
from tests.stage.mailbox import Mailbox, mailbox

INVITE, OPEN, ACCEPT = "/console/invitations/", "/console/invitation/", "/console/invitation/accept/"
NEW = "a new pass phrase"


@pytest.fixture(scope="module")
def server() -> Iterator[Mailbox]:
    """One for all of these."""
    with mailbox() as found:
        yield found


@pytest.fixture
def post(server: Mailbox, settings: LazySettings) -> Iterator[Mailbox]:
    """The mail server of the settings."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
    server.mails.clear()
    server.says = "250 taken"
    yield server


def owner_of(tenant: Tenant, role: Role = Role.OWNER) -> User:
    """Somebody with this role, who may log in."""
    user = person(superuser=False)
    Membership.objects.create(user=user, organization=tenant.organization, role=role)
    return user


def invite(client: Console, tenant: Tenant, email: str, role: str = "developer") -> Any:
    """Sends the form."""
    return client.post(INVITE, {"email": email, "organization": str(tenant.organization.pk), "role": role})


def offered(by: User, tenant: Tenant, email: str, role: str = "developer") -> tuple[Invitation, str]:
    """An invitation and its token."""
    return invitations.offer(by, tenant.organization, email, role)


def opened(token: str, client: Console | None = None) -> tuple[Console, Any]:
    """A browser that follows the link, and what it is shown."""
    client = client or Console()
    return client, client.post(OPEN, {"token": token}, follow=True)


def test_it_is_mailed_and_makes_the_member_that_was_offered(
    post: Mailbox, alice: Tenant, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    owner, mail = owner_of(alice), f"bob-{alice.organization.slug}@example.com"
    client = inside(owner)
    assert invite(client, alice, mail, "auditor")["Location"] == INVITE
    ((to, message),) = post.mails
    text = message.get_content()
    assert to == [mail] and message["Subject"] == "Invitation to Alice" and "as auditor" in text
    found = re.search(r"http://testserver/console/invitation/#([\w-]{43})\s", text)
    assert found is not None  # behind the #: no browser sends it in an address
    row = Invitation.objects.get(email=mail)
    assert found[1].encode() not in bytes(row.digest) and found[1] not in client.get(INVITE).content.decode()
    assert timedelta(days=6, hours=23) < row.expires_at - timezone.now() <= timedelta(days=7)

    browser, page = opened(found[1])
    assert page.redirect_chain == [(ACCEPT, 302)] and "invites" in page.content.decode()
    assert browser.post(ACCEPT, {"password": "short", "repeated": "short"}).status_code == 200
    assert browser.post(ACCEPT, {"password": NEW, "repeated": NEW + "!"}).status_code == 200
    assert not User.objects.filter(email=mail).exists()
    forged = {"role": "owner", "organization": NOBODYS, "is_superuser": "on", "email": "eve@example.com"}
    assert browser.post(ACCEPT, {"password": NEW, "repeated": NEW, **forged}).status_code == 302
    user = User.objects.get(email=mail)
    assert (user.username, user.is_staff, user.is_superuser) == (mail, True, False) and user.check_password(NEW)
    assert list(user.memberships.values_list("organization__slug", "role")) == [(alice.organization.slug, "auditor")]
    assert is_known(browser)
    row.refresh_from_db()
    assert row.accepted_by == user and row.accepted_at is not None
    again, page = opened(found[1])
    assert page.status_code == 404 and "not good any more" in page.content.decode()
    assert again.get(ACCEPT).status_code == 404
    assert f"'{mail}' accepted an invitation" in caplog.text and found[1] not in caplog.text and NEW not in caplog.text


@pytest.mark.parametrize("what", ["expired", "taken back", "replaced", "demoted", "disabled", "organization off"])
def test_one_that_is_not_good_makes_nobody(database: None, alice: Tenant, what: str) -> None:
    owner, mail = owner_of(alice), f"bob-{alice.organization.slug}@example.com"
    made, token = offered(owner, alice, mail)
    browser, _ = opened(token)
    if what == "expired":
        Invitation.objects.update(expires_at=timezone.now())
    elif what == "taken back":
        assert inside(owner).post(f"{INVITE}{made.pk}/revoke/")["Location"] == INVITE
    elif what == "replaced":
        offered(owner, alice, mail.upper())
    elif what == "demoted":
        Membership.objects.filter(user=owner).update(role=Role.DEVELOPER)
    elif what == "disabled":
        User.objects.filter(pk=owner.pk).update(is_active=False)
    else:
        Organization.objects.filter(pk=alice.organization.pk).update(active=False)
    assert browser.post(ACCEPT, {"password": NEW, "repeated": NEW}).status_code == 404
    assert opened(token)[1].status_code == 404
    assert not User.objects.filter(email=mail).exists()


def test_it_is_an_owners_own_organization_or_an_operators_any(post: Mailbox, alice: Tenant, charlie: Tenant) -> None:
    for role in (Role.DEVELOPER, Role.AUDITOR, Role.AUDITOR):
        client = inside(owner_of(alice, role))
        assert client.get(INVITE).status_code == 403 and invite(client, alice, "eve@example.com").status_code == 403
    hers = inside(owner_of(charlie))
    assert invite(hers, alice, "eve@example.com").status_code == 200  # no such choice
    made, _ = offered(owner_of(alice), alice, "bob@example.com")
    page = hers.get(INVITE).content.decode()
    assert "bob@example.com" not in page and alice.organization.slug not in page
    assert hers.post(f"{INVITE}{made.pk}/revoke/").status_code == 404
    assert not Invitation.objects.filter(email="eve@example.com").exists()
    made.refresh_from_db()
    assert made.revoked_at is None and post.mails == []
    operator = inside(person())
    assert invite(operator, charlie, "dora@example.com", "owner")["Location"] == INVITE
    assert invite(operator, charlie, "dora@example.com", "operator").status_code == 200
    assert operator.post(f"{INVITE}{made.pk}/revoke/")["Location"] == INVITE
    assert Console().get(INVITE)["Location"].startswith("/console/login/")


def test_it_is_for_its_address_alone(database: None, alice: Tenant, charlie: Tenant) -> None:
    owner, known, stranger = owner_of(alice), person(superuser=False), person(superuser=False)
    _, token = offered(owner, alice, known.email.upper())
    browser, page = opened(token, inside(stranger))
    assert "whom this is not for" in page.content.decode()
    assert browser.post(ACCEPT).status_code == 404 and not stranger.memberships.exists()
    browser, page = opened(token)
    assert "There is an account with this address" in page.content.decode()
    assert browser.post(ACCEPT, {"password": NEW, "repeated": NEW}).status_code == 404  # takes nobody's account over
    assert not User.objects.get(pk=known.pk).check_password(NEW)
    log_in(known, browser)
    assert browser.post(ACCEPT)["Location"] == "/console/"
    assert list(known.memberships.values_list("organization__slug", "role")) == [(alice.organization.slug, "developer")]
    with pytest.raises(invitations.CannotInvite, match="member already"):
        offered(owner, alice, known.email)


def test_of_two_at_the_same_time_one_is_the_person(database: None, alice: Tenant) -> None:
    mail = f"bob-{alice.organization.slug}@example.com"
    made, _ = offered(owner_of(alice), alice, mail)

    def accepted(number: int) -> bool:
        try:
            invitations.accept_anew(made, f"pass phrase {number}")
            return True
        except NotGood:
            return False
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(accepted, range(4))) == [False, False, False, True]
    assert Membership.objects.filter(user__username=mail).count() == 1


def test_of_two_invitations_at_the_same_time_one_makes_the_person(
    database: None, alice: Tenant, charlie: Tenant
) -> None:
    mail = f"bob-{alice.organization.slug}@example.com"
    made = [offered(owner_of(tenant), tenant, mail)[0] for tenant in (alice, charlie)]
    gate = Barrier(2)

    def meet(execute: Any, statement: str, *args: Any) -> Any:
        if statement.startswith('INSERT INTO "accounts_user"'):  # both have found nobody of this address
            gate.wait(20)
        return execute(statement, *args)

    def accepted(one: Invitation) -> bool:
        try:
            with connection.execute_wrapper(meet):
                invitations.accept_anew(one, "pass phrase 7")
            return True
        except NotGood:
            return False
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(accepted, made)) == [False, True]
    assert User.objects.filter(username=mail).count() == Membership.objects.filter(user__username=mail).count() == 1
    assert sorted(one.accepted_at is None for one in Invitation.objects.filter(email=mail)) == [False, True]


def test_it_is_accepted_by_single_sign_on(database: None, alice: Tenant, idp: IdentityProvider) -> None:
    mail = f"bob-{alice.organization.slug}@example.com"
    _, token = offered(owner_of(alice), alice, mail, "auditor")
    idp.knows(mail, email=mail, email_verified=True)
    assert sign_in(idp, mail)[1].status_code == 403  # without it
    idp.knows("mallory", email=f"x{mail}", email_verified=True)
    browser, _ = opened(token)
    assert sign_in(idp, "mallory", browser)[1].status_code == 403 and not is_known(browser)
    idp.knows("mallory", email=mail, email_verified=False)
    assert sign_in(idp, "mallory", opened(token)[0])[1].status_code == 403
    browser, _ = opened(token)
    sign_in(idp, mail, browser)
    user = User.objects.get(email=mail)
    assert is_known(browser) and is_in(browser) and not user.has_usable_password()
    assert list(user.memberships.values_list("organization__slug", "role")) == [(alice.organization.slug, "auditor")]
    assert Identity.objects.get(user=user).granted == {"offices": [], "roles": {}}  # not a group's to take again


def test_without_mail_the_link_is_handed_over(post: Mailbox, alice: Tenant, settings: LazySettings) -> None:
    client, mail = inside(owner_of(alice)), f"bob-{alice.organization.slug}@example.com"
    post.says = "550 no such box"
    page = invite(client, alice, mail).content.decode()
    found = re.search(r'id="link" class="way-link">http://testserver/console/invitation/#([\w-]{43})<', page)
    assert found is not None and "The mail server did not take the mail" in page
    assert opened(found[1])[1].status_code == 200
    settings.EMAIL_HOST = ""
    assert "No mail server is set up" in invite(client, alice, mail).content.decode()
    assert found[1] not in client.get(INVITE).content.decode()


def test_there_are_so_many_a_day(database: None, alice: Tenant, charlie: Tenant) -> None:
    owner = owner_of(alice)
    made, _ = offered(owner, alice, "bob@example.com")
    fields = {name: getattr(made, name) for name in ("organization_id", "role", "invited_by_id", "expires_at")}
    Invitation.objects.bulk_create(
        Invitation(email=f"{n}@example.com", digest=n.to_bytes(32), **fields) for n in range(1, MOST_A_DAY)
    )
    with pytest.raises(invitations.CannotInvite, match="100 were invited"):
        offered(owner, alice, "one@example.com")
    assert offered(owner_of(charlie), charlie, "one@example.com")
    Invitation.objects.filter(organization=alice.organization).update(created_at=timezone.now() - timedelta(days=91))
    assert offered(owner, alice, "one@example.com")
    assert Invitation.objects.filter(organization=alice.organization).count() == 1


def test_tokens_are_not_guessed(database: None) -> None:
    for token in ("", "x" * 43, "x" * 65, "é", "\0", NOBODYS):
        assert Console().post(OPEN, {"token": token}).status_code == 404, token
    assert Console().get(ACCEPT).status_code == 404


def test_a_link_that_was_handed_over_shows_nothing_of_the_address(
    idp: IdentityProvider, settings: LazySettings, alice: Tenant
) -> None:
    """Or whoever invites somebody, and opens the link, would be that person when they come by single sign-on."""
    settings.OIDC_GROUPS = {"ops": "operator"}
    mail = f"ceo-{alice.organization.slug}@example.com"
    page = invite(inside(owner_of(alice)), alice, mail).content.decode()
    found = re.search(r"#([\w-]{43})", page)
    assert found is not None
    mallory, _ = opened(found[1])
    assert mallory.post(ACCEPT, {"password": NEW, "repeated": NEW}).status_code == 302
    made = User.objects.get(username=mail)
    assert made.email == ""
    idp.knows(mail, email=mail, email_verified=True, groups=["ops"])
    sign_in(idp, mail)
    theirs = User.objects.get(email=mail)
    assert theirs != made and runs_the_installation(theirs) and not runs_the_installation(made)
    assert mallory.get("/console/health/").status_code == 403


def test_who_may_not_log_in_any_more_neither_invites_nor_accepts(alice: Tenant, charlie: Tenant) -> None:
    owner, guest = owner_of(alice), owner_of(alice, Role.DEVELOPER)
    client, other = inside(owner), inside(guest)
    _, token = offered(owner_of(charlie), charlie, guest.email)
    opened(token, other)
    User.objects.filter(pk__in=(owner.pk, guest.pk)).update(is_staff=False)
    assert invite(client, alice, "new@example.com", "owner").status_code == 403
    assert other.post(ACCEPT, {}).status_code == 404
    assert not Membership.objects.filter(user=guest, organization=charlie.organization).exists()
    assert not User.objects.get(pk=guest.pk).is_staff
    for user, browser in ((owner, client), (guest, other)):
        User.objects.get(pk=user.pk).save()  # as the page of people does
        assert not is_known(browser)


def test_somebody_else_s_invitation_keeps_nobody_out(idp: IdentityProvider, alice: Tenant) -> None:
    _, token = offered(owner_of(alice), alice, "somebody-else@example.com")
    browser, _ = opened(token)
    user = person()
    idp.knows(user.username, email=user.email, email_verified=True)
    browser, answer = sign_in(idp, user.username, browser)
    assert answer.status_code == 302 and is_known(browser)
    assert not Membership.objects.filter(user=user).exists()


def test_an_operator_by_office_invites_to_any(alice: Tenant) -> None:
    operator = person(superuser=False)
    operator.groups.add(Group.objects.get(name=Office.OPERATOR))
    assert invitations.may_invite(operator).filter(pk=alice.organization.pk).exists()
