"""What every page of the console shares: rows and rights by role, bounded lists, forms kind to lists and money."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib.admin import ShowFacets
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import flatten_fieldsets, get_fields_from_path, unquote
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import FieldDoesNotExist, PermissionDenied
from django.db import models, transaction
from django.forms.utils import pretty_name
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.contrib.filters.forms import AutocompleteDropdownForm
from unfold.paginator import InfinitePaginator
from unfold.views import ChangeList
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminTextareaWidget,
)

from accounts.access.access import Access, access_of
from accounts.access.table import Verb
from accounts.exact import plain
from accounts.formats import dollars as dollars
from accounts.formats import moment as moment
from accounts.formats import money as money
from accounts.formats import number as number
from accounts.formats import whose as whose

if TYPE_CHECKING:
    from django.contrib import admin

    # unfold's classes are Django's with more looks; its annotations contradict theirs.
    ModelAdmin = admin.ModelAdmin[Any]
    TabularInline = admin.TabularInline[Any, Any]
else:
    from unfold.admin import ModelAdmin, TabularInline

LONGEST_SEARCH = 100  # characters
CHANGED = gettext_lazy(
    "Somebody else has changed this since you opened it. Open it again, and make your change to what is there now."
)


def link(row: models.Model) -> str:
    """Leads to the page of `row`."""
    url = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
    return format_html('<a href="{}" class="text-link">{}</a>', url, str(row))


@cache
def shown_as(model: type[models.Model], name: str, codes: tuple[str, ...] = ()) -> str | Callable[[Any], str]:
    """For a list or a form that is read: `name`, or what shows the column of this name as `accounts.formats` does.

    Times and numbers; not the numbers that are names: keys, and `codes`.
    """
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        return name
    form = _form_of(field)
    if form is None or name in codes:
        return name

    def column(row: Any) -> str:
        return form(getattr(row, name))

    column.__name__ = name
    column.short_description, column.admin_order_field = field.verbose_name, name  # type: ignore[attr-defined]
    return column


def _form_of(field: Any) -> Callable[[Any], str] | None:
    if isinstance(field, models.DateTimeField):
        return moment
    counts = isinstance(field, models.IntegerField | models.DecimalField | models.FloatField)
    return number if counts and not field.choices and not field.primary_key else None


def _write_as_in_lists(form: Any, model: type[models.Model], codes: tuple[str, ...] = ()) -> None:
    """Of a form of the admin's, or its rows: what is only read."""
    read = frozenset(form.readonly_fields)

    def shown(one: Any) -> Any:
        if isinstance(one, list | tuple):
            return [shown(each) for each in one]
        return shown_as(model, one, codes) if one in read else one

    form.fieldsets = [(title, {**said, "fields": shown(said["fields"])}) for title, said in form.fieldsets]
    form.readonly_fields = shown(list(form.readonly_fields))


def is_operator(request: HttpRequest) -> bool:
    """Whether the person runs the installation."""
    return access_of(request).is_operator


def sees_books(request: HttpRequest) -> bool:
    """Whether the person has an office: sees what all organizations together come to."""
    return access_of(request).is_staff


class PlainDecimalField(forms.DecimalField):
    """A decimal, shown without the zeros that fill its column."""

    def prepare_value(self, value: Any) -> Any:
        """What the input shows."""
        return plain(value) if isinstance(value, Decimal) else value


class LinesField(forms.Field):
    """A list of texts, one a line. Blank lines are dropped; the model validates each text.

    Where the column may be null, no line at all is null: nothing said, which is not a list of nothing. `read` makes
    of a line what the list holds.
    """

    widget = UnfoldAdminTextareaWidget({"rows": 3})

    def __init__(self, *, null: bool = False, read: Callable[[str], Any] = str, **options: Any) -> None:
        super().__init__(**options)
        self.null = null
        self.read = read

    def prepare_value(self, value: Any) -> Any:
        """What the input shows."""
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[Any] | None:
        """What the lines that were typed say. Raises ValidationError."""
        lines = [self.read(line) for line in map(str.strip, (value or "").splitlines()) if line]
        return lines or (None if self.null else [])

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compares lists: line ends and blank lines are no change."""
        try:
            return not self.disabled and (initial or []) != (self.to_python(data) or [])
        except forms.ValidationError:
            return True


class BoxesField(forms.MultipleChoiceField):
    """Boxes to tick; where the column may be null, none ticked is null."""

    def __init__(self, *, null: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.null = null

    def clean(self, value: Any) -> Any:
        """The ticked choices."""
        return super().clean(value) or (None if self.null else [])


class FriendlyForms:
    """For admins and inlines: lists are lines or boxes to tick, money is plain and not negative."""

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """The form field of a column."""
        if isinstance(db_field, models.DecimalField):
            return db_field.formfield(form_class=PlainDecimalField, widget=UnfoldAdminDecimalFieldWidget, min_value=0)
        if not isinstance(db_field, ArrayField):
            return super().formfield_for_dbfield(db_field, request, **kwargs)  # type: ignore[misc]
        label = db_field.verbose_name.capitalize()
        if not db_field.base_field.choices:
            help_text = f"{db_field.help_text} {_('One a line.')}".lstrip()
            return LinesField(
                required=not db_field.blank,
                label=label,
                help_text=help_text,
                null=db_field.null,
                read=db_field.base_field.to_python,
                initial=db_field.get_default(),
            )
        return BoxesField(
            null=db_field.null,
            choices=db_field.base_field.choices,
            initial=db_field.get_default(),
            required=not db_field.blank,
            widget=UnfoldAdminCheckboxSelectMultipleWidget,
            label=label,
            help_text=db_field.help_text,
        )

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """A choice nobody made stays open, unless the column has a default."""
        blank = db_field.blank or not db_field.has_default()
        kwargs.setdefault("choices", db_field.get_choices(include_blank=blank, blank_choice=[("", _("Select value"))]))
        return super().formfield_for_choice_field(db_field, request, **kwargs)  # type: ignore[misc]


class RelatedForm(AutocompleteDropdownForm):
    """The form of a filter by a row of another table: it names only rows that the person may see."""

    def __init__(self, request: HttpRequest, name: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, name, *args, **kwargs)
        self.fields[name].queryset = access_of(request).rows(self.fields[name].queryset.all())


class RelatedFilter(AutocompleteSelectFilter):
    """By a row of another table, which the browser asks for as it is typed."""

    form_class = RelatedForm


class ByRole:
    """For admins and inlines: rows and rights are what `accounts.access` says of the model; permissions held in rows
    count for nothing.

    `model`: the admin's or inline's. `concealed`: fields and filters that are not for members of organizations to see.
    """

    model: type[models.Model]
    concealed: tuple[Any, ...] = ()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self._may(request, Verb.VIEW)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, Verb.VIEW, obj)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, Verb.ADD)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, Verb.CHANGE, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, Verb.DELETE, obj)

    def _may(self, request: HttpRequest, verb: Verb, row: Any = None) -> bool:
        """`row`: a row of the model, its primary key, or, of an inline, the row it stands below, which says nothing."""
        if isinstance(row, models.Model) and not isinstance(row, self.model):
            row = None
        return access_of(request).may(self.model, verb, row)

    def get_queryset(self, request: HttpRequest) -> Any:
        """The rows that the person may see."""
        return access_of(request).rows(super().get_queryset(request))  # type: ignore[misc]

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Rows of the organizations for which the person may write this one."""
        offered = kwargs.get("queryset")
        if offered is None:
            offered = db_field.remote_field.model._default_manager.all()
        kwargs["queryset"] = access_of(request).offered(offered, self.model, (Verb.ADD, Verb.CHANGE))
        return super().formfield_for_foreignkey(db_field, request, **kwargs)  # type: ignore[misc]

    def shown_to(self, access: Access, names: Sequence[Any]) -> list[Any]:
        """Those of `names`, or groups of them, that are not concealed."""
        if access.is_staff:
            return list(names)
        shown = [self.shown_to(access, one) if isinstance(one, list | tuple) else one for one in names]
        return [one for one in shown if one not in ([], *self.concealed)]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """The fields that the person may see, by section; a section of none is left out."""
        access = access_of(request)
        found = super().get_fieldsets(request, obj)  # type: ignore[misc]
        hidden = (
            () if self.has_change_permission(request, obj) or obj is None else ("secret",)
        )  # read, it would be told
        kept = [
            (title, {**said, "fields": [one for one in self.shown_to(access, said["fields"]) if one not in hidden]})
            for title, said in found
        ]
        return [(title, said) for title, said in kept if said["fields"]]


class ReadOnly(ByRole):
    """For admins and inlines of what only the product writes."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class NeverDeleted(ByRole):
    """For admins of what usage refers to: it is switched off or revoked instead."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def _columns(rows: Any, form: Any) -> list[Any]:
    """Of rows, in the order of their keys, what a form shows."""
    names = [field.attname for field in rows.model._meta.concrete_fields if field.name in form.base_fields]
    return list(rows.order_by("pk").values_list("pk", *names))


class KeptList(ChangeList):
    """A list that keeps its filters: a page past the last one is the first one of the same rows, not of all."""

    def get_results(self, request: HttpRequest) -> None:
        """The rows of the page."""
        try:
            super().get_results(request)
        except IncorrectLookupParameters:
            self.page_num = 1
            super().get_results(request)


class Page(ByRole, FriendlyForms, ModelAdmin):
    """A list and a form of the console."""

    actions: tuple[str, ...] | None = None
    list_per_page = 50
    list_max_show_all = 200
    list_fullwidth = True
    list_filter_submit = True
    show_facets = ShowFacets.NEVER  # each would count the table
    show_full_result_count = False  # it would be counted twice
    change_form_before_template = "admin/seen.html"
    list_before_template = "admin/list_head.html"
    presets: tuple[tuple[Any, str], ...] = ()  # titles and query strings of what is often asked of the list
    codes: tuple[str, ...] = ()  # columns whose numbers are names, and count nothing

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeptList

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The form, which carries what it was filled with; looked at before it is filled, so never too new."""
        seen = request.POST.get("seen", "")
        if request.method == "GET" and object_id is not None:
            row = self.get_object(request, unquote(object_id))
            seen = self._state(request, row) if row and self.has_change_permission(request, row) else ""
        return super().changeform_view(request, object_id, form_url, {**(extra_context or {}), "seen": seen})

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row; where it is to be saved it is locked. All of its columns are: also those that somebody else is
        about to write beside this page, such as when a key was revoked, must be as they will be.
        """
        row: Any = super().get_object(request, object_id, from_field)
        saves = request.method == "POST" and transaction.get_connection().in_atomic_block
        if saves and row is not None and self.has_change_permission(request, row):
            self.model._base_manager.select_for_update().filter(pk=row.pk).values("pk").first()
            row = super().get_object(request, object_id, from_field)
        return row

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """The form of a row; it is not saved over what somebody else has saved since it was opened."""
        form: Any = super().get_form(request, obj, change, **kwargs)
        seen = request.POST.get("seen")
        if not (change and obj and seen):
            return form

        def clean(filled: Any) -> Any:
            cleaned = form.clean(filled)
            if self._state(request, obj, form, locked=True) != seen:
                filled.add_error(None, CHANGED)
            return cleaned

        metaclass: Any = type(form)
        return metaclass(form.__name__, (form,), {"clean": clean, "__module__": form.__module__})

    def _state(self, request: HttpRequest, obj: Any, form: Any = None, *, locked: bool = False) -> str:
        """A digest of what the form of a row, and those of the rows on its page, are filled with, as it is now.

        `locked`: and stays until this transaction ends, where there is one.
        """
        locked = locked and transaction.get_connection().in_atomic_block
        form = form or self.get_form(request, obj, change=True)
        shown = [(self.model._base_manager.filter(pk=obj.pk), form)]
        for inline in self.get_inline_instances(request, obj):
            if inline.has_change_permission(request, obj):
                rows: Any = inline.get_formset(request, obj)
                shown.append((inline.model._base_manager.filter(**{rows.fk.name: obj}), rows.form))
        found = [_columns(rows.select_for_update() if locked else rows, its_form) for rows, its_form in shown]
        return sha256(repr(found).encode()).hexdigest()

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """What was done to a row that the person may see; of a model that is not for them: refused, not missing."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return super().history_view(request, object_id, extra_context)

    def get_list_display(self, request: HttpRequest) -> Any:
        names = self.shown_to(access_of(request), super().get_list_display(request))
        return [one if one in self.list_editable else shown_as(self.model, one, self.codes) for one in names]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The form; what of it is only read is written as in lists."""
        _write_as_in_lists(context["adminform"], self.model, self.codes)
        return super().render_change_form(request, context, *args, **kwargs)

    def get_inline_formsets(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """The rows on the page; what of them is only read is written as in lists."""
        found: Any = super().get_inline_formsets(request, *args, **kwargs)
        for one in found:
            if not one.has_add_permission and not one.has_change_permission:
                one.readonly_fields = flatten_fieldsets(one.fieldsets)
            _write_as_in_lists(one, one.opts.model)
        return found

    def get_list_filter(self, request: HttpRequest) -> Any:
        """The filters, less those by rows that the person may not see."""
        found = self.shown_to(access_of(request), super().get_list_filter(request))
        return [one for one in found if self._may_filter(request, one)]

    def _may_filter(self, request: HttpRequest, filter: Any) -> bool:
        if not isinstance(filter, tuple) or not issubclass(filter[1], RelatedFilter):
            return True
        related = get_fields_from_path(self.model, filter[0])[-1].related_model
        return isinstance(related, type) and access_of(request).may(related, Verb.VIEW)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> Any:
        """Searches for the first characters of what was asked: every further word is another scan."""
        return super().get_search_results(request, queryset, search_term.replace("\0", "")[:LONGEST_SEARCH])

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Refuses regular expressions in the query string, which a list could be kept busy with, and sealed bytes; to
        members of organizations everything but the page's filters, which could otherwise be asked what is not shown.
        """
        name = lookup.partition("__")[0]
        if not access_of(request).is_staff and name not in self._filtered(request):
            return False
        sealed = {field.name for field in self.opts.fields if isinstance(field, models.BinaryField)}
        if name in sealed or lookup.endswith("regex"):
            return False
        return bool(super().lookup_allowed(lookup, value, request))

    def _filtered(self, request: HttpRequest) -> set[str]:
        filters = [one[0] if isinstance(one, tuple) else one for one in self.get_list_filter(request)]
        return {one.partition("__")[0] for one in filters if isinstance(one, str)}


class CountlessPaginator(InfinitePaginator):
    """Pages of a table nobody may count. Ends after `PAGES`: an offset is walked row by row."""

    PAGES = 200
    template_name = "admin/pages.html"

    @property
    def count(self) -> int:
        """Not how many rows there are, but how many may be paged through."""
        return int(self.per_page) * self.PAGES


class UncountedList(KeptList):
    """A list that claims no number of results, in the one order an index has, whatever the query string asks."""

    def get_ordering(self, request: HttpRequest, queryset: Any) -> Any:
        """The page's own."""
        return self.model_admin.get_ordering(request)

    def get_results(self, request: HttpRequest) -> None:
        """The rows of the page."""
        super().get_results(request)
        self.full_result_count = self.result_count


class Record(ReadOnly, Page):
    """A list and a page of rows written by the million: never counted, newest first, found by id."""

    paginator = CountlessPaginator
    list_max_show_all = 0
    sortable_by = ()
    search_fields: ClassVar[tuple[str, ...]] = ("pk",)  # shows the box; `get_search_results` decides
    search_help_text = gettext_lazy("Generation id")
    found_by = "pk"
    lookups: tuple[str, ...] = ()  # what the query string may filter by

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> Any:
        """The rows of one generation, by its id with or without dashes; nothing for any other text."""
        if not search_term:
            return queryset, False
        try:
            return queryset.filter(**{self.found_by: UUID(search_term.strip())}), False
        except ValueError:
            return queryset.none(), False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return UncountedList

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Only the filters of the page: any other could read the whole table."""
        return lookup in self.lookups and (lookup not in self.concealed or access_of(request).is_staff)


class Rows(ByRole, FriendlyForms, TabularInline):
    """Rows of another table on a page."""

    extra = 0
    hide_title = True

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        """Rows whose inputs carry their column's name: no label stands beside them."""
        rows = super().get_formset(request, obj, **kwargs)
        for name, field in rows.form.base_fields.items():
            field.widget.attrs.setdefault("aria-label", capfirst(field.label or pretty_name(name)))
        return rows
