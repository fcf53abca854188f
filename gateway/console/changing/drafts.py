"""Forms of the console whose changes may be drafted instead of saved, and are applied later by the very same form.

A draft is what the form was sent as. To apply it, it is sent again: by whoever applies it, through the same checks and
with the same log. Before that the row is looked at anew: what its form would be filled with now has to be what it was
filled with then. So nobody writes over what somebody else has saved meanwhile.
"""

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.admin.utils import flatten_fieldsets, unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model
from django.forms.formsets import all_valid
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import override

from accounts.access.access import access_of
from accounts.access.table import Verb as Right
from gateway.changes.models import MOST_BYTES, MOST_CHANGES, Change, ChangeSet, Kind, Verb

if TYPE_CHECKING:
    from accounts.console import Page
else:
    Page = object

Data = dict[str, list[str]]
Sent = Mapping[str, list[str]] | None
NOT_FIELDS = frozenset({"csrfmiddlewaretoken", "seen", "draft_into"})
MOST_DRAFTS = 20  # of a person, to choose among


class CannotApply(Exception):
    """A change is not applied, and with it none of its set. The message says which and why, for people."""


class TooLarge(Exception):
    """What was sent is more than a change keeps."""


class Drafted(Page):
    """For pages: a second button, which drafts what the first one would save; where its kind needs a second person, the
    only one.
    """

    kind: Kind
    _create_formsets: Any  # Django's own, which its types do not know
    change_form_after_template = "admin/draft.html"

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The form. A draft is as valid as what is saved: what is wrong with it is told in the form."""
        if not access_of(request).may(ChangeSet, Right.CHANGE):
            return super().changeform_view(request, object_id, form_url, extra_context)
        only = self.kind in settings.SECOND_PERSON
        if request.method == "POST" and "_replay" not in request.POST and (only or "_draft" in request.POST):
            try:
                with transaction.atomic():
                    made = self._draft(request, object_id)
            except TooLarge:
                messages.error(request, _("This is too large to be drafted. Nothing is changed."))
                return redirect(request.get_full_path())
            if made is not None:
                messages.success(request, _("Drafted. Nothing is changed before the set is applied."))
                return redirect("admin:gateway_changeset_change", made.pk)
            request.only_drafts = True  # type: ignore[attr-defined]  # what is wrong is told, and not saved
        more = {"drafts_into": open_drafts(request), "only_drafts": only, "may_draft": True}
        return super().changeform_view(request, object_id, form_url, {**(extra_context or {}), **more})

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Without the buttons that save, where all is drafted."""
        if context.get("only_drafts"):
            context |= {"show_save": False, "show_save_and_continue": False, "show_save_and_add_another": False}
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Saves; never what was sent as a draft."""
        if getattr(request, "only_drafts", False):
            raise PermissionDenied
        super().save_model(request, obj, form, change)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Not past a second person."""
        past = self.kind in settings.SECOND_PERSON and access_of(request).may(ChangeSet, Right.CHANGE)
        return super().has_delete_permission(request, obj) and not past

    # --- what a draft holds -------------------------------------------------------------------------------------------

    def filled(self, request: HttpRequest, obj: Any) -> Data:
        """What the form of a row, and those of the rows below it, are filled with, as they would be sent back."""
        asked = copy(request)
        asked.method, asked.GET, asked.POST = "GET", QueryDict(), QueryDict()
        data = as_data(self._form_class(asked, obj)(instance=obj))
        for rows in self._create_formsets(asked, obj, change=True)[0]:
            for form in (rows.management_form, *rows.forms):
                data |= as_data(form)
        return data

    def whole(self, request: HttpRequest, obj: Any) -> Data:
        """What the form of a new row would be sent as, to make this one."""
        return as_data(self._form_class(request, None)(instance=obj))

    def basis(self, request: HttpRequest, sent: QueryDict) -> Data:
        """What a row that is to be added rests on: that may not change meanwhile."""
        return {}

    def due(self, after: Data) -> Data:
        """What is sent when a draft is applied, at this moment."""
        return after

    def bound(self, request: HttpRequest, obj: Any, after: Mapping[str, list[str]]) -> tuple[Any, list[Any]]:
        """The form, and the forms of rows below it, as a draft sends them; `form.sent` is the request that does."""
        sent, data = copy(request), as_sent(after)
        sent.method, sent.GET, sent.POST = "POST", QueryDict(), data  # type: ignore[assignment]
        form = self._form_class(sent, obj)(data, instance=obj)
        form.sent = sent
        return form, self._create_formsets(sent, form.instance, change=obj is not None)[0]

    def effect(self, request: HttpRequest, change: Change) -> dict[str, Any] | None:
        """What it would have made of the last days (`gateway.changes.effects`); None: that is not known."""
        if change.verb == Verb.DELETE:
            return None
        obj = self.get_object(request, change.row) if change.row else None
        form, formsets = self.bound(request, obj, self.due(change.after or {}))
        if not (form.is_valid() and all_valid(formsets)):
            return None
        return self.effect_of(form.instance, formsets)

    def shown(self, change: Change) -> list[tuple[str, str, str]]:
        """The fields that it changes, as people know them: name, was, will be. Whose the row is its subject says."""
        before, after = change.before, change.after
        if change.verb == Verb.CHANGE:  # what it was not filled with was not sent either
            after = {**(before or {}), **(after or {})}
        elif change.verb == Verb.ADD:
            before = {}
        named = {field.name: field for field in self.model._meta.concrete_fields}
        found = []
        for name, was, now in differences(before, after):
            field = named.get(name)
            if change.verb == Verb.CHANGE or ((was, now) != ("-", "-") and not (field and field.is_relation)):
                found.append((str(capfirst(field.verbose_name)) if field else name, was, now))
        return found

    def called(self, form: Any) -> str:
        """What the row of a form is called in its set."""
        return str(form.instance)

    def effect_of(self, row: Any, formsets: list[Any]) -> dict[str, Any]:
        """The same of a row that is not saved, with the forms of those below it."""
        raise NotImplementedError

    def apply_change(self, request: HttpRequest, change: Change) -> None:
        """Does what a change says, in the transaction that is open. Raises `CannotApply`; then all is taken back."""
        obj = self._row(request, change)
        if change.verb == Verb.DELETE:
            self.log_deletions(request, self.model._default_manager.filter(pk=obj.pk))
            self.delete_model(request, obj)
            return
        form, formsets = self.bound(request, obj, self.due(change.after or {}))
        if not (form.is_valid() and all_valid(formsets)):
            raise CannotApply(f"{change}: {' '.join(_wrong(form, formsets))}")
        adds = obj is None
        made = self.save_form(form.sent, form, change=not adds)
        self.save_model(form.sent, made, form, not adds)
        self.save_related(form.sent, form, formsets, not adds)
        said = self.construct_change_message(form.sent, form, formsets, adds)
        (self.log_addition if adds else self.log_change)(request, made, said)
        Change.objects.filter(pk=change.pk).update(row=str(made.pk))

    def taking_back(self, request: HttpRequest, change: Change) -> Change:
        """The change that takes back one that was applied. Raises `CannotApply` where that is none any more."""
        if change.verb == Verb.DELETE:
            basis = self.basis(request, as_sent(change.before))
            return Change(kind=change.kind, verb=Verb.ADD, before=basis, after=change.before)
        obj = self.get_object(request, change.row)
        if obj is None:
            raise CannotApply(_("%(what)s: it is gone.") % {"what": change.subject})
        if change.verb == Verb.ADD:
            return Change(kind=change.kind, verb=Verb.DELETE, row=change.row, before=self.whole(request, obj))
        now = self.filled(request, obj)
        return Change(kind=change.kind, verb=Verb.CHANGE, row=change.row, before=now, after=change.before)

    def _row(self, request: HttpRequest, change: Change) -> Any:
        """The row as it was when the change was drafted, locked; None: it is to be added. Raises `CannotApply`."""
        if change.verb == Verb.ADD:
            if not self.has_add_permission(request):
                raise PermissionDenied
            self._same(change, self.basis(request, as_sent(change.after)))
            return None
        self.model._base_manager.select_for_update().filter(pk=change.row).values("pk").first()
        obj = self.get_object(request, change.row)
        if obj is None:
            raise CannotApply(_("%(what)s: it is gone.") % {"what": change.subject})
        deletes = change.verb == Verb.DELETE
        may = access_of(request).may(self.model, Right.DELETE if deletes else Right.CHANGE, obj)
        if not (may and (deletes or self.has_change_permission(request, obj))):
            raise PermissionDenied
        self._same(change, self.whole(request, obj) if deletes else self.filled(request, obj))
        return obj

    def _same(self, change: Change, now: Data) -> None:
        if now != change.before:
            differs = [f"{name}: {was} → {is_}" for name, was, is_ in differences(change.before, now)]
            facts = {"what": change.subject, "differs": "; ".join(differs)[:1000]}
            raise CannotApply(_("%(what)s has been changed since this was drafted. %(differs)s") % facts)

    def _draft(self, request: HttpRequest, object_id: str | None) -> ChangeSet | None:
        """The set with one more change; None: it is not right as it was sent. Raises PermissionDenied."""
        obj = self.get_object(request, unquote(object_id)) if object_id is not None else None
        if object_id is not None and obj is None:
            return None
        if not (self.has_change_permission(request, obj) if obj else self.has_add_permission(request)):
            raise PermissionDenied
        before = self.filled(request, obj) if obj else self.basis(request, request.POST)
        # A box that was unticked is not sent, and yet changes something: it stands there as nothing.
        names = (*(before if obj else ()), *request.POST)
        after = {name: request.POST.getlist(name) for name in names
                 if name not in NOT_FIELDS and not name.startswith("_")}  # fmt: skip
        form = self._form_class(request, obj)(request.POST, instance=obj)
        formsets = self._create_formsets(request, form.instance, change=obj is not None)[0]
        if not (form.is_valid() and all_valid(formsets)):
            return None
        if len(msgspec.json.encode(after)) > MOST_BYTES:
            raise TooLarge
        with override("en"):  # it is kept, for whoever else reads the set
            called = self.called(form)
        made = _set_for(request, called)
        Change.objects.create(
            set=made,
            kind=self.kind,
            verb=Verb.CHANGE if obj else Verb.ADD,
            row=str(obj.pk) if obj else "",
            subject=called[:300],
            before=before,
            after=after,
        )
        return made

    def _form_class(self, request: HttpRequest, obj: Any) -> Any:
        fields = flatten_fieldsets(self.get_fieldsets(request, obj))
        return self.get_form(request, obj, change=obj is not None, fields=fields)


def open_drafts(request: HttpRequest) -> list[ChangeSet]:
    """The sets of the person to which more may be added, newest first."""
    mine = ChangeSet.objects.filter(drafted_by=request.user.get_username(), state=ChangeSet.State.DRAFT)
    return list(mine.order_by("-pk")[:MOST_DRAFTS])


def _set_for(request: HttpRequest, title: str) -> ChangeSet:
    """The open set that was chosen, locked; or a new one."""
    chosen = request.POST.get("draft_into", "")
    if chosen.isdecimal():
        mine = ChangeSet.objects.select_for_update().filter(
            pk=int(chosen), drafted_by=request.user.get_username(), state=ChangeSet.State.DRAFT
        )
        if (found := mine.first()) is not None and found.changes.count() < MOST_CHANGES:
            return found
    return ChangeSet.objects.create(title=title[:200], drafted_by=request.user.get_username())


def as_sent(data: Sent) -> QueryDict:
    """The fields of a form as a browser sends them."""
    made = QueryDict(mutable=True)
    for name, values in (data or {}).items():
        made.setlist(name, values)
    return made


def as_data(form: forms.BaseForm) -> Data:
    """What a form that was not sent yet would be sent as, if nobody touched it."""
    data: Data = {}
    for one in form:
        value, widget = one.value(), one.field.widget
        if isinstance(widget, forms.CheckboxInput):
            if value:
                data[one.html_name] = ["on"]
        elif isinstance(widget, forms.MultiWidget):
            parts = value if isinstance(value, list) else widget.decompress(value)
            for number, inner in enumerate(widget.widgets):
                data[f"{one.html_name}_{number}"] = [_text(inner.format_value(parts[number] if parts else None))]
        elif isinstance(widget, forms.CheckboxSelectMultiple):
            if value:
                data[one.html_name] = list(map(str, value))
        elif isinstance(widget, forms.NullBooleanSelect):
            data[one.html_name] = [str(widget.format_value(value))]
        elif isinstance(widget, forms.Select):
            data[one.html_name] = [_text(getattr(value, "pk", value))]
        else:
            data[one.html_name] = [_text(widget.format_value(value))]
    return data


def differences(before: Sent, after: Sent) -> list[tuple[str, str, str]]:
    """The fields that differ: name, what it was, what it is; of a form of rows without what only counts them."""
    was, now = before or {}, after or {}
    names = [name for name in {**was, **now} if not name.endswith("_FORMS") and was.get(name) != now.get(name)]
    return [(name, _shown(was.get(name)), _shown(now.get(name))) for name in names]


def _shown(values: list[str] | None) -> str:
    return ", ".join(filter(None, values or ())) or "-"


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = value[0] if value else ""
    if isinstance(value, Model):
        value = value.pk
    return "" if value is None else str(value)


def _wrong(form: Any, formsets: list[Any]) -> list[str]:
    found = [f"{name}: {' '.join(said)}" for name, said in form.errors.items()]
    for rows in formsets:
        found += [f"{name}: {' '.join(said)}" for errors in rows.errors for name, said in errors.items()]
        found += rows.non_form_errors()
    return found
