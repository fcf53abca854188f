"""Invitations: a membership that is offered by mail, for one person, once, and for a week.

The token is in the mail, and in the database its digest alone. Whoever offers must be able to offer when it is accepted
too: who has lost that, or was disabled, has offered nothing.
"""

from datetime import timedelta
from secrets import token_urlsafe
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts.keys import digest, digests
from accounts.models import Invitation, Membership, Organization, User
from accounts.roles import Role, runs_the_installation
from accounts.sign_in.beforehand import acting_as, seeing_all

GOOD_FOR = timedelta(days=7)
KEPT_FOR = timedelta(days=90)
MOST_A_DAY = 100  # of an organization
MOST_CHARS = 64  # of a token


class CannotInvite(Exception):
    """What the page says of why not."""


class NotGood(Exception):
    """There is no such invitation, it was accepted or revoked, or its time is over: nobody is told which."""


def may_invite(user: User) -> QuerySet[Organization]:
    """The organizations that `user` may invite to: an operator all, an owner theirs."""
    if not (user.is_active and user.is_staff):
        return Organization.objects.none()
    if runs_the_installation(user):
        return Organization.objects.filter(active=True)
    return Organization.objects.filter(active=True, memberships__user=user, memberships__role=Role.OWNER)


@transaction.atomic
def offer(by: User, organization: Organization, email: str, role: str) -> tuple[Invitation, str]:
    """An invitation and its token. Raises `CannotInvite`."""
    if not may_invite(by).filter(pk=organization.pk).exists():
        raise CannotInvite(_("This is not yours to offer."))
    with connection.cursor() as cursor:  # who invites to it at the same time waits, and meets the bound
        cursor.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"invitations {organization.pk}"])
    if Membership.objects.filter(organization=organization, user__email__iexact=email).exists():
        raise CannotInvite(_("This person is a member already."))
    now = timezone.now()
    Invitation.objects.filter(organization=organization, created_at__lt=now - KEPT_FOR).delete()
    if (
        Invitation.objects.filter(organization=organization, created_at__gt=now - timedelta(days=1)).count()
        >= MOST_A_DAY
    ):
        raise CannotInvite(_("%(most)s were invited within a day. Wait for a day.") % {"most": MOST_A_DAY})
    # Another one takes the place of those that are open.
    Invitation.objects.filter(open_now(), organization=organization, email__iexact=email).update(revoked_at=now)
    token = token_urlsafe(32)
    made = Invitation.objects.create(
        email=email,
        organization=organization,
        role=role,
        digest=digest(_of(token), settings.KEY_PEPPERS[0]),
        invited_by=by,
        expires_at=now + GOOD_FOR,
    )
    return made, token


def open_now() -> Q:
    """Those that may still be accepted."""
    return Q(accepted_at=None, revoked_at=None, expires_at__gt=Now())


@seeing_all()
def by_token(token: str) -> Invitation:
    """The one of this token. Raises `NotGood`."""
    if not token or len(token) > MOST_CHARS or not token.isascii():
        raise NotGood
    known = digests(_of(token), settings.KEY_PEPPERS)
    found = Invitation.objects.filter(open_now(), digest__in=known).first()
    if found is None:
        raise NotGood
    return good(found.pk)


@seeing_all()
def good(pk: UUID | str) -> Invitation:
    """The invitation, if it may be accepted at this moment. Raises `NotGood`."""
    found = Invitation.objects.filter(open_now(), pk=pk).select_related("organization", "invited_by").first()
    if found is None or not may_invite(found.invited_by).filter(pk=found.organization_id).exists():
        raise NotGood
    return found


@seeing_all()
def accept(invitation: Invitation, user: User) -> None:
    """Makes `user`, whose address it must be, the member that was offered. Raises `NotGood`.

    Accepted by two at a time, it is the first's. A membership that is there already stays as it is.
    """
    if not (user.is_active and user.is_staff) or user.email.casefold() != invitation.email.casefold():
        raise NotGood
    _take(invitation, user)


def _take(invitation: Invitation, user: User) -> None:
    good(invitation.pk)
    acting_as(user)
    taken = Invitation.objects.filter(open_now(), pk=invitation.pk).update(accepted_at=Now(), accepted_by=user)
    if not taken:
        raise NotGood
    Membership.objects.get_or_create(
        user=user, organization=invitation.organization, defaults={"role": invitation.role}
    )


@seeing_all()
def accept_anew(invitation: Invitation, password: str) -> User:
    """Makes the person who was invited, with this password, and accepts for them. Raises `NotGood`.

    Theirs is the address if the link was mailed to it. Who was handed the link has shown nothing of an address: with it
    they would be taken for its owner when that one comes by single sign-on.
    """
    # The row is held to the end: of two at a time one makes the person.
    invitation = Invitation.objects.select_for_update(of=("self",)).select_related("organization").get(pk=invitation.pk)
    if is_known(invitation.email):
        raise NotGood
    email = invitation.email if invitation.mailed else ""
    user = User(username=invitation.email, email=email, is_staff=True)
    user.set_password(password)
    try:
        with transaction.atomic():
            user.save(force_insert=True)
    except IntegrityError:  # two invitations of one address, at once: the other one has made the person
        raise NotGood from None
    _take(invitation, user)
    return user


def is_known(email: str) -> bool:
    """Whether somebody here has this address, or is called by it."""
    return User.objects.filter(Q(email__iexact=email) | Q(username__iexact=email)).exists()


def revoke(by: User, pk: UUID) -> bool:
    """Takes an open invitation back, if it is of an organization that `by` may invite to."""
    mine = Invitation.objects.filter(open_now(), pk=pk, organization__in=may_invite(by))
    return mine.update(revoked_at=Now()) == 1


def _of(token: str) -> str:
    """No key's, and no recovery code's."""
    return f"invitation {token}"
