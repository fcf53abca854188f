"""Console page of members: who belongs to which organization, and as what."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.console import Page, RelatedFilter
from accounts.memberships import is_last_owner, withdraw
from accounts.models import Membership
from accounts.roles import Role

LAST = gettext_lazy("An organization keeps one owner at least: give somebody else that role before.")


class MemberForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A member's role."""

    def clean_role(self) -> str:
        """Raises ValidationError when nobody would be left to give roles."""
        given: str = self.cleaned_data["role"]
        if not self.instance._state.adding and given != Role.OWNER and is_last_owner(self.instance):
            raise ValidationError(LAST)
        return given


class MembershipPage(Page):
    """Members. Who leaves, or has a lesser role, leaves no key behind that does more."""

    form = MemberForm
    list_display = ("user", "organization", "role")
    list_filter = ("role", ("organization", RelatedFilter))
    list_select_related = ("user", "organization")
    search_fields = ("user__username", "user__email", "organization__slug")
    ordering = ("organization__slug", "user__username")
    autocomplete_fields = ("user", "organization")
    fields = ("organization", "user", "role")

    def get_readonly_fields(self, request: HttpRequest, obj: Membership | None = None) -> tuple[str, ...]:
        return ("organization", "user") if obj else ()

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("user", "organization")

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        """Saves, and revokes what is beyond the new role."""
        super().save_model(request, obj, form, change)
        self._withdraw(request, obj, Role(obj.role))

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        """Removes a member, and revokes their keys. Raises PermissionDenied for the last owner."""
        if obj.role == Role.OWNER and is_last_owner(obj):
            raise PermissionDenied
        super().delete_model(request, obj)
        self._withdraw(request, obj, None)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Not the last owner, whose removal is not even offered."""
        if not super().has_delete_permission(request, obj):
            return False
        if not isinstance(obj, Membership) or obj.role != Role.OWNER:
            return True
        others = Membership.objects.filter(organization=obj.organization_id, role=Role.OWNER).exclude(pk=obj.pk)
        return others.exists()

    def _withdraw(self, request: HttpRequest, membership: Membership, role: Role | None) -> None:
        if count := withdraw(membership.user, membership.organization_id, role):
            messages.warning(
                request, _("Keys of %(user)s that were revoked: %(count)s.") % {"user": membership.user, "count": count}
            )
