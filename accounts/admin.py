"""Console pages: people, organizations, projects and keys."""

import uuid
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from accounts.access.access import Access, access_of
from accounts.access.table import SCOPES, Verb
from accounts.console import NeverDeleted, Page, ReadOnly, RelatedFilter, Rows, link
from accounts.keys import digest, display_prefix, new_secret
from accounts.log import Action, log
from accounts.log_page import AuditLogPage
from accounts.members import MembershipPage
from accounts.models import ApiKey, AuditEvent, Membership, Organization, Project, User
from accounts.roles import Office, Role, runs_the_installation

admin.site.register(Membership, MembershipPage)
admin.site.register(AuditEvent, AuditLogPage)

# There are the groups that migrations made: what theirs do `accounts.access` says, and permissions of rows nothing.
admin.site.unregister(Group)


@admin.register(User)
class UserPage(NeverDeleted, DjangoUserAdmin, Page):  # type: ignore[misc, type-arg]  # not generic at run time
    """People. Nobody is deleted: the history of what they did goes by their row."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "is_active", "is_superuser", "last_login")
    list_filter = ("is_active", "is_superuser")
    search_fields = ("username", "email", "first_name", "last_name")
    ordering = ("username",)
    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined")
    concealed = ("password", "is_active", "is_staff", "is_superuser", "groups", "date_joined")
    fieldsets = (
        (None, {"fields": ("username", "password", "first_name", "last_name", "email")}),
        (
            gettext_lazy("Access"),
            {
                "fields": ("is_active", "is_staff", "is_superuser", "groups", "last_login", "date_joined"),
                "description": gettext_lazy(
                    "Staff may log in. What they see and do then their office in the installation says, or "
                    "their membership of an organization. Superusers may do everything."
                ),
            },
        ),
    )

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        """No digest of a password for who may not set another one."""
        found = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return found
        return [
            (title, {**said, "fields": [one for one in said["fields"] if one != "password"]}) for title, said in found
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        """Only superusers make superusers."""
        return (*self.readonly_fields, *(() if access_of(request).superuser else ("is_superuser",)))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes who is above them or beside them, or gives them another password: only superusers do."""
        if not super().has_change_permission(request, obj):
            return False
        if obj is None or access_of(request).superuser:
            return True
        person = obj if isinstance(obj, User) else User.objects.filter(pk=obj).first()
        return person is not None and not runs_the_installation(person)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offices that are not above the person's own, nor beside it."""
        if db_field.name == "groups":
            given = Office.values if access_of(request).superuser else [Office.FINANCE, Office.AUDITOR]
            kwargs |= {
                "queryset": Group.objects.filter(name__in=given).order_by("name"),
                "widget": UnfoldAdminCheckboxSelectMultipleWidget,
                "label": _("Office"),
                "help_text": _("In the installation. None: what organizations they belong to say."),
            }
        return super().formfield_for_manytomany(db_field, request, **kwargs)


class MembershipRows(ReadOnly, Rows):
    """Who belongs to an organization, to follow."""

    model = Membership
    fields = readonly_fields = ("page", "role")
    ordering = ("user__username",)

    @display(description=gettext_lazy("Member"))
    def page(self, membership: Membership) -> str:
        """Leads to the membership."""
        return link(membership)


class ProjectRows(ReadOnly, Rows):
    """An organization's projects, to follow."""

    model = Project
    fields = readonly_fields = ("page", "name", "active")

    @display(description=gettext_lazy("Project"))
    def page(self, project: Project) -> str:
        """Leads to the project."""
        return link(project)


@admin.register(Organization)
class OrganizationPage(NeverDeleted, Page):
    """Tenants."""

    list_display = ("slug", "name", "active", "created_at")
    list_filter = ("active",)
    search_fields = ("slug", "name")
    ordering = ("slug",)
    readonly_fields = ("id", "created_at")
    fields = ("slug", "name", "active", "time_zone", "id", "created_at")
    inlines = (ProjectRows,)

    def get_inlines(self, request: HttpRequest, obj: Organization | None) -> Any:
        """Its projects, and its members if it has any."""
        return (*self.inlines, MembershipRows) if obj and obj.memberships.exists() else self.inlines


class KeyRows(ReadOnly, Rows):
    """A project's keys, to follow."""

    model = ApiKey
    fields = readonly_fields = ("page", "created_at", "expires_at", "revoked_at")
    ordering = ("-created_at",)
    per_page = 50

    @display(description=gettext_lazy("Key"))
    def page(self, key: ApiKey) -> str:
        """Leads to the key."""
        return link(key)


@admin.register(Project)
class ProjectPage(NeverDeleted, Page):
    """Projects. One stays in its organization: money and usage are counted there."""

    list_display = ("slug", "organization", "name", "active", "created_at")
    list_filter = ("active", ("organization", RelatedFilter))
    list_select_related = ("organization",)
    search_fields = ("slug", "name", "organization__slug")
    ordering = ("organization__slug", "slug")
    autocomplete_fields = ("organization",)
    fields = (
        "organization",
        "slug",
        "name",
        "active",
        "default_output_cap",
        "dialect",
        "strict_params",
        "sends_unknown_params",
        "payload_days",
        "id",
        "created_at",
    )
    inlines = (KeyRows,)
    concealed = ("sends_unknown_params",)  # what that may cost beyond a hard budget nobody pays

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> tuple[str, ...]:
        return ("id", "created_at", *(("organization",) if obj else ()))

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("organization")


class KeyState(DropdownFilter):
    """Keys by what a call with them meets."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [
            ("usable", _("Usable")),
            ("expired", _("Expired")),
            ("revoked", _("Revoked")),
            ("waiting", _("Not yet valid")),
            ("off", _("Owner, project or organization off")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        now = Now()
        expired, waiting = Q(expires_at__lte=now), Q(valid_from__gt=now)
        off = Q(owner__is_active=False) | Q(project__active=False) | Q(project__organization__active=False)
        states = {
            "usable": Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now)) & ~waiting & ~off,
            "expired": Q(revoked_at=None) & expired,
            "revoked": Q(revoked_at__isnull=False),
            "waiting": Q(revoked_at=None) & waiting,
            "off": Q(revoked_at=None) & off,
        }
        state = self.value()
        return queryset.filter(states[state]) if state in states else queryset


class NewKeyForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A key to be made. The id travels with the form, so that sending it again makes no second key."""

    ticket = forms.UUIDField(widget=forms.HiddenInput, initial=uuid.uuid4)

    class Meta:
        model = ApiKey
        fields = ("project", "owner", "name")

    def clean_ticket(self) -> uuid.UUID:
        """Raises ValidationError when this very form already made its key."""
        ticket: uuid.UUID = self.cleaned_data["ticket"]
        if ticket.version != 4:  # ids that are reckoned are others' (`gateway.console.playground.minting`)
            raise ValidationError(_("This is no page of this console: open it again."))
        if ApiKey.objects.filter(pk=ticket).exists():
            raise ValidationError(_("This key was made already; its secret is not shown again. Make another."))
        return ticket


def clean_of(access: Access, key: ApiKey, given: dict[str, Any]) -> None:
    """Raises ValidationError for a key beyond the rights of its maker: with scopes that their role does not have, or
    for somebody who is no member.
    """
    project = given.get("project") or key.project
    role = access.role_in(project.organization_id)
    if role is None:
        return
    owner = given.get("owner")
    if owner and not owner.memberships.filter(organization=project.organization_id).exists():
        raise ValidationError({"owner": _("This person does not belong to the project's organization.")})
    held = set(key.scopes) if not key._state.adding else set()
    beyond = set(given.get("scopes") or ()) - SCOPES[role] - held
    if beyond:
        words = _("Keys with %(scopes)s read what all of the organization did: an owner makes them.")
        raise ValidationError({"scopes": words % {"scopes": ", ".join(sorted(beyond))}})


class ApiKeyPage(NeverDeleted, Page):
    """Keys. A secret is on the page that answers its making and nowhere else, then or later.

    The gateway registers it, with forms that know what a key may name.
    """

    add_form: type[NewKeyForm] = NewKeyForm
    add_form_template = "admin/accounts/apikey/add_form.html"
    list_display = ("name", "prefix", "project", "owner", "scope_list", "state_shown", "created_at")
    list_filter = (KeyState, ("project__organization", RelatedFilter))
    list_select_related = ("project__organization", "owner")
    search_fields = ("name", "prefix", "project__slug", "project__organization__slug", "owner__username")
    ordering = ("-created_at",)
    autocomplete_fields = ("project", "owner")
    presets = (
        (gettext_lazy("Usable"), "state=usable"),
        (gettext_lazy("Expired"), "state=expired"),
        (gettext_lazy("Revoked"), "state=revoked"),
    )
    actions = ("revoke_selected",)
    actions_detail = ("revoke",)
    form_sections = (
        (gettext_lazy("What it may do"), ("scopes", "allowed_endpoints", "allowed_models", "allowed_ips")),
        (gettext_lazy("What it may spend"), ("max_request_price", "min_output_cap", "on_leave")),
        (gettext_lazy("When"), ("valid_from", "expires_at")),
        (gettext_lazy("How it is answered"), ("dialect",)),
    )

    @display(description=gettext_lazy("Scopes"))
    def scope_list(self, key: ApiKey) -> str:
        """As a list shows them."""
        return ", ".join(key.scopes)

    @display(description=gettext_lazy("State"))
    def state(self, key: ApiKey) -> str:
        """What a call with this key meets, and why."""
        return _state(key)[1]

    @display(
        description=gettext_lazy("State"),
        label={"usable": "success", "waiting": "info", "expired": "warning", "off": "warning", "revoked": "danger"},
    )
    def state_shown(self, key: ApiKey) -> tuple[str, str]:
        """The same, as a list shows it."""
        return _state(key)

    def get_form(self, request: HttpRequest, obj: ApiKey | None = None, change: bool = False, **kwargs: Any) -> Any:
        made: Any = super().get_form(request, obj, change, **({} if obj else {"form": self.add_form}), **kwargs)
        access = access_of(request)

        class Checked(made):  # a class of this request's own
            def clean(self) -> dict[str, Any]:
                cleaned: dict[str, Any] = super().clean() or self.cleaned_data
                if self.instance.project_id or "project" in cleaned:
                    clean_of(access, self.instance, cleaned)
                return cleaned

        return Checked

    def get_fieldsets(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        owner = ("owner",) if obj or _names_owners(access_of(request)) else ()
        who: tuple[Any, ...] = ("ticket", "project", *owner, "name")
        if obj:
            who = ("name", "prefix", "project", "owner", "state", "revoked_at", "id", "created_at")
        return [(None, {"fields": who}), *((title, {"fields": names}) for title, names in self.form_sections)]

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        """What a key is stays; and a developer's own stays theirs."""
        if obj is None:
            return ()
        own = access_of(request).role_in(obj.project.organization_id) is Role.DEVELOPER
        return ("id", "prefix", "state", "project", "created_at", "revoked_at", *(("owner",) if own else ()))

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("project__organization", "owner")

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        only_save = {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().add_view(request, form_url, {**(extra_context or {}), **only_save})

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """Saves; a new key gets its secret here, which `response_add` shows and nobody keeps."""
        if not change:
            secret = new_secret()
            obj.pk = form.cleaned_data["ticket"]
            obj.digest = digest(secret, settings.KEY_PEPPERS[0])
            obj.prefix = display_prefix(secret)
            if access_of(request).role_in(obj.project.organization_id) is Role.DEVELOPER:
                obj.owner_id = request.user.pk
            obj.__dict__["secret"] = secret  # rides on the instance, which ends with this request
        super().save_model(request, obj, form, change)

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """The secret, once. No redirect: a page after one would need it kept somewhere meanwhile."""
        log(Action.REVEAL, obj, obj.project.organization_id)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Key made"),
            "opts": self.opts,
            "key": obj,
            "secret": obj.__dict__.pop("secret"),
        }
        # Not `no-referrer`: a form of the page would then be sent with no origin, and refused.
        headers = {"Cache-Control": "no-store, private", "Referrer-Policy": "same-origin"}
        return TemplateResponse(request, "admin/accounts/apikey/secret.html", context, headers=headers)

    @admin.action(description=gettext_lazy("Revoke"), permissions=("change",))
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        """Revokes the ticked keys, once confirmed."""
        if request.POST.get("confirmed"):
            self._revoke(request, queryset)
            return None
        return self._ask(request, queryset)

    @action(description=gettext_lazy("Revoke"), permissions=("change",), variant=ActionVariant.DANGER)
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Revokes one key: asks on GET, acts on POST."""
        key = self.get_object(request, object_id)
        if key is None:
            raise Http404
        if not self.has_change_permission(request, key):
            raise PermissionDenied
        if request.method != "POST":
            return self._ask(request, ApiKey.objects.filter(pk=key.pk))
        self._revoke(request, ApiKey.objects.filter(pk=key.pk))
        return redirect("admin:accounts_apikey_change", key.pk)

    def _ask(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": _("Revoke"),
            "opts": self.opts,
            "keys": queryset.select_related("project__organization"),
            "action": request.POST.get("action", ""),
            "ticked": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/accounts/apikey/revoke.html", context)

    def _revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        with transaction.atomic():
            # Locked first: what somebody else revokes at the same moment keeps the earlier time.
            theirs = access_of(request).rows(ApiKey.objects.all(), Verb.CHANGE)  # of what they see
            chosen = theirs.filter(pk__in=queryset.values("pk"), revoked_at=None)
            alive = list(chosen.order_by("pk").select_for_update())
            ApiKey.objects.filter(pk__in=[key.pk for key in alive]).update(revoked_at=Now())
            for key in alive:
                self.log_change(request, key, "Revoked.")
        messages.success(
            request, _("Revoked: %(alive)s. A revoked key makes no further paid call.") % {"alive": len(alive)}
        )


def _state(key: ApiKey) -> tuple[str, str]:
    """What a call with a key meets, as the filter of its list names it, and in words."""
    now = timezone.now()
    if key.revoked_at:
        return "revoked", _("revoked")
    if key.expires_at and key.expires_at <= now:
        return "expired", _("expired")
    if key.valid_from and key.valid_from > now:
        return "waiting", _("not yet valid")
    if key.owner and not key.owner.is_active:
        return "off", _("owner disabled")
    if not key.project.active:
        return "off", _("project off")
    return ("usable", _("usable")) if key.project.organization.active else ("off", _("organization off"))


def _names_owners(access: Access) -> bool:
    """Whether a key may be made for somebody else."""
    return access.is_staff or Role.OWNER in access.roles.values()
