"""What goes with a membership: an organization keeps an owner, and keys go no further than their owner's role."""

from uuid import UUID

from django.db.models.functions import Now

from accounts.access.table import SCOPES
from accounts.models import ApiKey, Membership, User
from accounts.roles import Role


def is_last_owner(membership: Membership) -> bool:
    """Whether an organization has no other owner. Its owners are locked: two who demote each other do so in turn."""
    owners = Membership.objects.filter(organization=membership.organization_id, role=Role.OWNER)
    return list(owners.order_by("pk").select_for_update().values_list("pk", flat=True)) == [membership.pk]


def withdraw(user: User, organization: UUID, role: Role | None) -> int:
    """Revokes the keys of a person in an organization that are beyond their role, None: that of no member. How many."""
    alive = ApiKey.objects.filter(owner=user, project__organization=organization, revoked_at=None)
    beyond = [key.pk for key in alive if not set(key.scopes) <= SCOPES[role] or not SCOPES[role]]
    return ApiKey.objects.filter(pk__in=beyond).update(revoked_at=Now())
