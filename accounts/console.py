"""What every page of the console shares: operators alone, bounded lists, forms kind to lists and money."""

from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib.admin import ShowFacets
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import unquote
from django.contrib.postgres.fields import ArrayField
from django.db import models, transaction
from django.forms.utils import pretty_name
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import mark_safe
from django.utils.text import capfirst
from unfold.paginator import InfinitePaginator
from unfold.views import ChangeList
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminTextareaWidget,
)

if TYPE_CHECKING:
    from django.contrib import admin

    # unfold's classes are Django's with more looks; its annotations contradict theirs.
    ModelAdmin = admin.ModelAdmin[Any]
    TabularInline = admin.TabularInline[Any, Any]
else:
    from unfold.admin import ModelAdmin, TabularInline

LONGEST_SEARCH = 100  # characters
CHANGED = (
    "Somebody else has changed this since you opened it. Open it again, and make your change to what is there now."
)


def plain(value: Decimal) -> str:
    """A decimal without trailing zeros and never with an exponent: 0.000000080000 is "0.00000008"."""
    return f"{value.normalize():f}" if value else "0"


def dollars(value: Decimal | None) -> str:
    """An amount as pages show it. None is an unknown price, which is not 0."""
    return "unknown" if value is None else f"${plain(value)}"


def rounded(value: Decimal) -> str:
    """An amount short enough to compare: cents from a dollar on, four significant digits below; thousands apart."""
    short = Decimal(f"{value:.3e}")
    if short and abs(short) < 1:
        return plain(short)
    return f"{value.quantize(Decimal('0.01')):,f}"


UNKNOWN = mark_safe('<span class="number" title="No price is known.">unknown</span>')


def money(value: Decimal | None) -> str:
    """An amount for a list or a card: rounded, with every digit in its title. Escaped."""
    if value is None:
        return UNKNOWN
    return format_html('<span class="number" title="{}">${}</span>', dollars(value), rounded(value))


def number(value: int | None) -> str:
    """A count for a list, thousands apart. Escaped."""
    return format_html('<span class="number">{}</span>', "-" if value is None else f"{value:,}")


def is_operator(request: HttpRequest) -> bool:
    """Whether the person may use the console at all. Other staff see nothing yet."""
    return request.user.is_active and bool(getattr(request.user, "is_superuser", False))


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
            help_text = f"{db_field.help_text} One a line.".lstrip()
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
        kwargs.setdefault("choices", db_field.get_choices(include_blank=blank, blank_choice=[("", "Select value")]))
        return super().formfield_for_choice_field(db_field, request, **kwargs)  # type: ignore[misc]


class OperatorsOnly:
    """For admins and inlines: permissions held in rows count for nothing, being an operator is everything."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return is_operator(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_operator(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_operator(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_operator(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_operator(request)


class ReadOnly(OperatorsOnly):
    """For admins and inlines of what only the product writes."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class NeverDeleted(OperatorsOnly):
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


class Page(OperatorsOnly, FriendlyForms, ModelAdmin):
    """A list and a form of the console."""

    actions: tuple[str, ...] | None = None
    list_per_page = 50
    list_max_show_all = 200
    list_fullwidth = True
    list_filter_submit = True
    show_facets = ShowFacets.NEVER  # each would count the table
    change_form_before_template = "admin/seen.html"

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
        form = super().get_form(request, obj, change, **kwargs)
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

        `locked`: and stays until this transaction ends.
        """
        form = form or self.get_form(request, obj, change=True)
        shown = [(self.model._base_manager.filter(pk=obj.pk), form)]
        for inline in self.get_inline_instances(request, obj):
            if inline.has_change_permission(request, obj):
                rows: Any = inline.get_formset(request, obj)
                shown.append((inline.model._base_manager.filter(**{rows.fk.name: obj}), rows.form))
        found = [_columns(rows.select_for_update() if locked else rows, its_form) for rows, its_form in shown]
        return sha256(repr(found).encode()).hexdigest()

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> Any:
        """Searches for the first characters of what was asked: every further word is another scan."""
        return super().get_search_results(request, queryset, search_term.replace("\0", "")[:LONGEST_SEARCH])

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Refuses regular expressions in the query string, which a list could be kept busy with, and sealed bytes."""
        name = lookup.partition("__")[0]
        sealed = {field.name for field in self.opts.fields if isinstance(field, models.BinaryField)}
        if name in sealed or lookup.endswith("regex"):
            return False
        return bool(super().lookup_allowed(lookup, value, request))


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
    show_full_result_count = False
    list_max_show_all = 0
    sortable_by = ()
    search_fields: ClassVar[tuple[str, ...]] = ("pk",)  # shows the box; `get_search_results` decides
    search_help_text = "Generation id"
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
        return lookup in self.lookups


def link(row: models.Model) -> str:
    """Leads to the page of `row`."""
    url = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
    return format_html('<a href="{}" class="text-link">{}</a>', url, str(row))


class Rows(OperatorsOnly, FriendlyForms, TabularInline):
    """Rows of another table on a page."""

    extra = 0
    hide_title = True

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        """Rows whose inputs carry their column's name: no label stands beside them."""
        rows = super().get_formset(request, obj, **kwargs)
        for name, field in rows.form.base_fields.items():
            field.widget.attrs.setdefault("aria-label", capfirst(field.label or pretty_name(name)))
        return rows
