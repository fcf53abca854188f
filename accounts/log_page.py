"""Console page of the audit log."""

import json
from typing import Any, ClassVar

from django.apps import apps
from django.db.models import OuterRef, Q, Subquery
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import display

from accounts.access.access import access_of, rule_of
from accounts.access.table import Verb
from accounts.console import Record
from accounts.log import Action, AuditBlock, AuditEvent
from accounts.models import Organization
from accounts.roles import Office

MONEY = "billing_"  # what finance sees the log of, as far as it sees the rows
OF_A_PAGE = ("billing_credit", "billing_judgement")  # rows that are shown on the page of another table's
LONGEST = 200  # characters of a value in the list


def called() -> dict[str, str]:
    """What tables hold, by their names."""
    found = {model._meta.db_table: str(model._meta.verbose_name) for model in apps.get_models()}
    return {**found, "accounts_user_groups": _("office of a user")}


def _of_money() -> list[str]:
    """The tables about money whose rows finance sees."""
    seen = [model._meta.db_table for model in apps.get_models()
            if Verb.VIEW in rule_of(model).offices.get(Office.FINANCE, ())]  # fmt: skip
    return [table for table in (*seen, *OF_A_PAGE) if table.startswith(MONEY)]


class TableFilter(DropdownFilter):
    """By what was changed."""

    title = gettext_lazy("what")
    parameter_name = "table"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        app_labels = ("accounts_", "billing_", "routing_", "gateway_")
        return sorted(((table, name) for table, name in called().items() if table.startswith(app_labels)),
                      key=lambda one: one[1])  # fmt: skip

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset.filter(table=self.value()) if self.value() else queryset


class AuditLogPage(Record):
    """Events, newest first. Nothing changes them."""

    list_display = ("at", "who", "address_shown", "action_shown", "what", "organization_shown", "change")
    list_filter = ("action", TableFilter)
    lookups = ("action__exact", "table")
    codes = ("actor",)
    ordering = ("-pk",)
    search_fields: ClassVar[tuple[str, ...]] = ("pk",)
    search_help_text = gettext_lazy("A row's id, or a person's name")
    fields = (
        *("id", "at", "who", "actor", "address_shown", "done", "what", "organization_shown"),
        *("before_shown", "after_shown", "note", "sealed"),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        """What the person may see: finance, what is about money."""
        slug = Organization.objects.filter(pk=OuterRef("organization")).values("slug")
        found, access = super().get_queryset(request).annotate(slug=Subquery(slug)), access_of(request)
        only_money = not access.superuser and access.offices == {Office.FINANCE}
        return found.filter(table__in=_of_money()) if only_money else found

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> Any:
        """The events of one row, or of one person."""
        text = search_term.strip().replace("\0", "")[:LONGEST]
        if not text:
            return queryset, False
        return queryset.filter(Q(row=text) | Q(actor_name=text)), False

    @display(description=gettext_lazy("Who"))
    def who(self, event: AuditEvent) -> str:
        """As they were called; of a command the database's role."""
        return event.actor_name

    @display(description=gettext_lazy("Address"))
    def address_shown(self, event: AuditEvent) -> str:
        """The address."""
        return event.address or "-"

    @display(
        description=gettext_lazy("Done"),
        label={
            Action.ADD.value: "success",
            Action.CHANGE.value: "info",
            Action.DELETE.value: "danger",
            Action.REVEAL.value: "warning",
            Action.EXPORT.value: "warning",
            Action.TEST.value: "info",
        },
    )
    def action_shown(self, event: AuditEvent) -> tuple[str, str]:
        """In a word; as a list shows it."""
        return event.action, event.get_action_display()

    @display(description=gettext_lazy("Done"))
    def done(self, event: AuditEvent) -> str:
        """The same on the page."""
        return event.get_action_display()

    @display(description=gettext_lazy("What"))
    def what(self, event: AuditEvent) -> str:
        """Of which table, and which row, by its name where the event has it."""
        row = event.after or event.before or {}
        return f"{called().get(event.table, event.table)} {row.get('slug') or row.get('name') or event.row}".strip()

    @display(description=gettext_lazy("Organization"))
    def organization_shown(self, event: Any) -> str:
        """By its slug."""
        return event.slug or str(event.organization or "-")

    @display(description=gettext_lazy("Change"))
    def change(self, event: AuditEvent) -> str:
        """What changed, in a line each; of what was added or deleted nothing: its page has it all."""
        if event.action != Action.CHANGE:
            return event.note or "-"
        before, after = event.before or {}, event.after or {}
        lines = ((name, _short(before.get(name)), _short(after.get(name))) for name in sorted(before))
        return format_html_join("", "{}: {} → {}<br>", lines)

    @display(description=gettext_lazy("Before"))
    def before_shown(self, event: AuditEvent) -> str:
        """The columns, secrets masked."""
        return _pretty(event.before)

    @display(description=gettext_lazy("After"))
    def after_shown(self, event: AuditEvent) -> str:
        """The columns, secrets masked."""
        return _pretty(event.after)

    @display(description=gettext_lazy("Sealed"))
    def sealed(self, event: AuditEvent) -> str:
        """By which block of the hash chain."""
        block = AuditBlock.objects.filter(last_id__gte=event.pk).order_by("number").first()
        if block is None:
            return _("within a minute")
        told = {"number": block.number, "moment": f"{block.sealed_at:%Y-%m-%d %H:%M:%S}"}
        return _("by block %(number)s, %(moment)s UTC") % told


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{text[:LONGEST]}…" if len(text) > LONGEST else text


def _pretty(value: Any) -> str:
    if value is None:
        return "-"
    return format_html('<pre class="row">{}</pre>', json.dumps(value, ensure_ascii=False, indent=1))
