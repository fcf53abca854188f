"""The console as a browser meets it: an operator's session, every request under the console's database role."""

import re
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any
from uuid import UUID, uuid4

from django.db import connection, models
from django.test import Client
from django.test.client import ClientHandler
from django.urls import reverse
from django.utils import timezone

from accounts.models import ApiKey, AuditEvent, Membership, Organization, Project, User
from accounts.sealing import seal_bytes
from billing.credit.prepaid import grant
from billing.ids import first_id, new_id
from billing.models import (
    Attempt,
    AuditFinding,
    BillFetch,
    BillSource,
    Budget,
    ClosedMonth,
    CreditKind,
    Crossing,
    Delivery,
    ExportSchedule,
    Hold,
    Lease,
    LedgerEntry,
    Limit,
    Prepaid,
    PriceList,
    PriceProposal,
    Quarantined,
    Recipient,
    Reconciliation,
    ReportTags,
    Repricing,
    Retention,
    Statement,
    StoredExport,
    Tariff,
    TariffVersion,
    Terms,
    Usage,
)
from gateway.models import ChangeSet, Payload, Refused, RefusedCount
from gateway.process.payloads import ANSWER, PROMPT, place
from routing.models import ChoiceWeight, Credential, Model, Offer, Policy, Provider
from tests.stage.cast import Tenant


@contextmanager
def console_role() -> Iterator[None]:
    """Within, this process's connection has the rights of the console alone, for one who sees all until a request says
    who makes it.
    """
    with connection.cursor() as cursor:
        cursor.execute("set role meterline_console")
        cursor.execute("select set_config('meterline.sees', 'all', false)")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("reset role")
            cursor.execute("select set_config('meterline.sees', '', false), set_config('meterline.actor', '', false)")


@contextmanager
def app_role() -> Iterator[None]:
    """Within, this process's connection has the rights of a worker and the API alone."""
    with connection.cursor() as cursor:
        cursor.execute("set role meterline_app")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("reset role")


HANDLERS = {enforces: ClientHandler(enforces) for enforces in (False, True)}


class Console(Client):
    """Django's test client in the console's role."""

    def __init__(self, enforce_csrf_checks: bool = False, **defaults: Any) -> None:
        super().__init__(enforce_csrf_checks, **defaults)
        # One for all, as in a process that serves: a fresh one looks through every file of every package that has any.
        self.handler = HANDLERS[enforce_csrf_checks]

    def request(self, **request: Any) -> Any:
        """Sends a request."""
        with console_role():
            return super().request(**request)


def console(*, superuser: bool = True, **options: Any) -> Console:
    """A client with the session of a fresh person who may log in; an operator unless told otherwise."""
    user = User.objects.create_user(f"op-{secrets.token_hex(4)}", is_staff=True, is_superuser=superuser)
    client = Console(**options)
    client.force_login(user)
    return client


def context_of(page: Any) -> dict[str, Any]:
    """What the template of a page is told, by name."""
    given: dict[str, Any] = page.context_data
    return given


def make_usage(tenant: Tenant, at: datetime | None = None, **fields: Any) -> Usage:
    """A generation of `tenant`, made `at` (now): 1000 tokens in at 0.44, 500 out at 1.76 dollars a million."""
    at = at or timezone.now()
    row: dict[str, Any] = {
        "id": UUID(int=first_id(at).int | secrets.randbits(62)),
        "organization": tenant.organization.pk,
        "project": tenant.project.pk,
        "key": tenant.key.pk,
        "organization_slug": tenant.organization.slug,
        "project_slug": tenant.project.slug,
        "key_name": tenant.key.name,
        "model": "lab/model",
        "provider": "vendor",
        "upstream_model": "model-1",
        "stream": True,
        "status": "completed",
        "attempts": 1,
        "prompt_tokens": 1000,
        "completion_tokens": 500,
        "cached_tokens": 0,
        "cache_write_5m_tokens": 0,
        "cache_write_1h_tokens": 0,
        "audio_input_tokens": 0,
        "image_input_tokens": 0,
        "reasoning_tokens": 0,
        "audio_output_tokens": 0,
        "web_searches": 0,
        "basis": "reported",
        "suspect": False,
        "charge": Decimal("0.00132"),
        "provider_cost": Decimal("0.0012"),
        "overrun": Decimal(0),
        "arithmetic": [
            {"item": "input", "quantity": 1000, "cost": "0.4", "charge": "0.44"},
            {"item": "output", "quantity": 500, "cost": "1.6", "charge": "1.76"},
        ],
        "created_at": at,
        "settled_at": at,
    }
    return Usage.objects.create(**{**row, **fields})


def make_attempt(usage: Usage, **fields: Any) -> Attempt:
    """The one dial of `usage`."""
    row = {"number": 1, "provider": usage.provider, "upstream_model": usage.upstream_model, "status": "completed"}
    return Attempt.objects.create(
        **{"id": uuid4(), "generation": usage.pk, "started_at": usage.created_at, **row, **fields}
    )


def sealed_sides(usage: Usage, prompt: str, answer: str) -> dict[str, Any]:
    """Of a kept payload of `usage`: both sides sealed, their sizes, and whose they are."""
    kept: dict[str, Any] = {"usage": usage}
    for side, text in ((PROMPT, prompt), (ANSWER, answer)):
        kept[side] = seal_bytes(zlib.compress(text.encode()), place(side, usage.pk))
        kept[f"{side}_bytes"] = len(text.encode())
    return kept


def make_payload(tenant: Tenant, usage: Usage | None = None, **fields: Any) -> Payload:
    """A kept payload of a generation, of nothing."""
    usage = usage or make_usage(tenant)
    Project.objects.filter(pk=tenant.project.pk).update(payload_days=30)
    row = {"prompt_bytes": 1, "answer_bytes": 2, "prompt": b"", "answer": b"", "created_at": usage.created_at}
    of = {"organization": usage.organization, "project": usage.project, "key": usage.key}
    return Payload.objects.create(**{"id": usage.pk, **of, **row, **fields})


def make_entry(usage: Usage, **fields: Any) -> LedgerEntry:
    """The posting of what `usage` is charged."""
    row = {"kind": "settle", "debit": f"tenant:{usage.organization}", "credit": "revenue", "amount": usage.charge}
    entry = LedgerEntry(
        transaction=uuid4(),
        generation=usage.pk,
        organization=usage.organization,
        created_at=usage.settled_at,
        **{**row, **fields},
    )
    LedgerEntry.objects.bulk_create([entry])  # `save` is closed: the product writes the ledger in SQL
    return entry


def exact(shown: str) -> str:
    """The amount behind a rounded one, with all its digits: what its title says."""
    found = re.search(r'title="([^"]*)"', shown)
    assert found is not None, shown
    return found[1]


PAGES = (
    User,
    Membership,
    AuditEvent,
    Organization,
    Project,
    ApiKey,
    Tariff,
    TariffVersion,
    Terms,
    PriceList,
    PriceProposal,
    Budget,
    Prepaid,
    Delivery,
    Recipient,
    Limit,
    Usage,
    Quarantined,
    ReportTags,
    LedgerEntry,
    ClosedMonth,
    Repricing,
    Reconciliation,
    BillFetch,
    BillSource,
    Statement,
    ExportSchedule,
    StoredExport,
    Retention,
    AuditFinding,
    Refused,
    RefusedCount,
    Hold,
    Lease,
    Provider,
    Model,
    Offer,
    Policy,
    ChoiceWeight,
    ChangeSet,
)
READ_ONLY = (
    AuditEvent,
    Delivery,
    Usage,
    Quarantined,
    LedgerEntry,
    Reconciliation,
    StoredExport,
    AuditFinding,
    Refused,
    RefusedCount,
    Hold,
    Lease,
)
NEVER_ADDED = (*READ_ONLY, PriceProposal, Retention, ChangeSet)
KEPT = (
    ChangeSet,
    User,
    Organization,
    Project,
    ApiKey,
    ClosedMonth,
    Prepaid,
    PriceList,
    PriceProposal,
    BillFetch,
    Repricing,
    Statement,
    ExportSchedule,
    Retention,
)

Rows = dict[type[models.Model], models.Model]


def make_hold(tenant: Tenant, lease: Lease, **fields: Any) -> Hold:
    """An open request of `tenant`."""
    row: dict[str, Any] = {
        "lease": lease.pk,
        "organization": tenant.organization.pk,
        "project": tenant.project.pk,
        "key": tenant.key.pk,
        "model": "lab/model",
        "money": Decimal("0.5"),
        "tokens": 100,
        "output_cap": 50,
        "hard": True,
        "counters": [],
        "facts": {},
        "created_at": timezone.now(),
    }
    return Hold.objects.create(id=new_id(), **{**row, **fields})


def make_refused(tenant: Tenant | None, **fields: Any) -> Refused:
    """A refused request of the tenant's key, as the gateway notes it; of no known key without a tenant."""
    whose: dict[str, Any] = {}
    if tenant is not None:
        ids = {"organization": tenant.organization.pk, "project": tenant.project.pk, "key": tenant.key.pk}
        names = {"organization_slug": tenant.organization.slug, "project_slug": tenant.project.slug}
        whose = {**ids, **names, "key_name": tenant.key.name}
    told = {"status": 400, "code": "invalid_request", "message": "Not so.", "method": "POST", "path": "/v1/chat"}
    return Refused.objects.create(**{"id": new_id(), "created_at": timezone.now(), **whose, **told, **fields})


def make_delivery(recipient: Recipient, **fields: Any) -> Delivery:
    """A message to `recipient`, sent: eight of ten dollars for ever."""
    now, organization = timezone.now(), recipient.organization
    crossing = Crossing.objects.create(
        organization=organization.pk,
        organization_slug=organization.slug,
        subject=uuid4(),
        period="total",
        period_start=now,
        percent=80,
        amount=Decimal(10),
        hard=True,
        used=Decimal(8),
        crossed_at=now,
    )
    row: dict[str, Any] = {
        "message": uuid4(),
        "organization": organization.pk,
        "recipient": recipient.pk,
        "channel": recipient.channel,
        "address": recipient.address,
        "status": "sent",
        "tries": 1,
        "next_try_at": now,
        "created_at": now,
        "sent_at": now,
    }
    return Delivery.objects.create(crossing=crossing, **{**row, **fields})


def make_balance(tenant: Tenant) -> Prepaid:
    """The tenant's, of five dollars that it paid."""
    grant(tenant.organization, CreditKind.TOP_UP, Decimal(5), "invoice 1", "finance", begin=True)
    return Prepaid.objects.get(pk=tenant.organization.pk)


def make_rows(tenant: Tenant) -> Rows:
    """A row of every page."""
    slug, now = tenant.organization.slug, timezone.now()
    months = ClosedMonth.objects.count()  # so long ago that nothing is of them
    schedule = ExportSchedule.objects.create(name=slug, organization=tenant.organization, kind="folder", active=False)
    tariff = Tariff.objects.create(slug=slug)
    version = tariff.versions.create(effective_from=now + timedelta(days=1))
    version.rates.create(item="input", cost=Decimal(1), charge=Decimal(2))
    provider = Provider.objects.create(slug=slug, name="Vendor", base_url="https://vendor.example/v1")
    Credential.objects.create(provider=provider)
    model = Model.objects.create(slug=f"lab/{slug}", name="A model")
    source = BillSource.objects.create(provider=slug, endpoint="https://vendor.example/v1")
    usage = make_usage(tenant)
    make_attempt(usage)
    lease = Lease.objects.create(id=uuid4(), host=slug, pid=1, started_at=now, heartbeat_at=now)
    subject = {"organization": tenant.organization, "project": tenant.project}
    recipient = Recipient.objects.create(
        organization=tenant.organization, channel="mail", address=f"{slug}@example.com", active=False
    )
    month = ClosedMonth.objects.create(
        month=date(1901 + months // 12, months % 12 + 1, 1), closed_by=slug, summed_at=now
    )
    member = User.objects.create_user(f"member-{slug}")
    return {
        User: tenant.user,
        Membership: Membership.objects.create(user=member, organization=tenant.organization, role="developer"),
        Organization: tenant.organization,
        Project: tenant.project,
        ApiKey: tenant.key,
        Tariff: tariff,
        TariffVersion: version,
        Terms: Terms.objects.create(
            organization=tenant.organization, tariff=tariff, effective_from=now + timedelta(days=1), markup=Decimal(5)
        ),
        PriceList: PriceList.objects.create(
            url="https://prices.example/data.json", state="fetched", lines=["+ model x"]
        ),
        PriceProposal: PriceProposal.objects.create(
            tariff=tariff, effective_from=now, rates=[["input", 0, "9", "9"]], reason="input 1 -> 9", proposed_by=slug
        ),
        Budget: Budget.objects.create(**subject, period="day", amount=Decimal(5)),
        Prepaid: make_balance(tenant),
        Recipient: recipient,
        Delivery: make_delivery(recipient),
        Limit: Limit.objects.create(**subject, measure="open", value=5),
        Usage: usage,
        Quarantined: Quarantined.objects.get(pk=make_usage(tenant, suspect=True).pk),
        ReportTags: ReportTags.objects.create(organization=tenant.organization, names=["team"]),
        LedgerEntry: make_entry(usage),
        Repricing: Repricing.objects.create(version=version, first=now.date(), until=now.date() + timedelta(days=1)),
        Reconciliation: Reconciliation.objects.create(
            provider=slug,
            form="meterline",
            files="bill.csv",
            first=now.date(),
            last=now.date(),
            made_by=slug,
            **dict.fromkeys(("billed", "booked", "missing", "tokens", "price"), Decimal(1)),
        ),
        BillSource: source,
        BillFetch: source.fetches.create(first=now.date(), last=now.date(), asked_by=slug, state="stopped"),
        ClosedMonth: month,
        Statement: Statement.objects.create(
            issuer=slug,
            kind="statement",
            organization=tenant.organization.pk,
            slug=slug,
            name=slug,
            month=month.month,
            total=Decimal(0),
            issued_by=slug,
        ),
        ExportSchedule: schedule,
        StoredExport: StoredExport.objects.create(schedule=schedule, start=now.date(), next_try_at=now),
        Retention: Retention.objects.get(pk="usage"),
        AuditFinding: AuditFinding.objects.create(
            kind="generation", place=f"generation {slug}", expected="1", found="0", first_seen=now, gone_at=now
        ),
        Refused: make_refused(tenant),
        RefusedCount: RefusedCount.objects.create(
            minute=now, key=tenant.key.pk, organization=tenant.organization.pk, status=429, code="limited", requests=1
        ),
        Hold: make_hold(tenant, lease),
        Lease: lease,
        Provider: provider,
        Model: model,
        Offer: Offer.objects.create(model=model, provider=provider, upstream_model="m", tariff=tariff),
        Policy: Policy.objects.create(level="model", model=model, providers=[slug], fallback="true"),
        ChangeSet: ChangeSet.objects.create(title=slug, drafted_by=slug),
        ChoiceWeight: ChoiceWeight.objects.get(word="balanced", term="quality"),
        # Of a table that each office may see, which has one by now.
        AuditEvent: AuditEvent.objects.filter(organization=tenant.organization.pk, table="billing_budget").latest("pk"),
    }


def url(model: type[models.Model], page: str, *args: Any) -> str:
    """The address of a page of the console."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


def addresses(model: type[models.Model], row: models.Model) -> list[str]:
    """Every address of `model` that a browser is led to."""
    found = [url(model, "changelist"), url(model, "change", row.pk), url(model, "history", row.pk)]
    if model not in NEVER_ADDED:
        found.append(url(model, "add"))
        if model not in KEPT:
            found.append(url(model, "delete", row.pk))
    return found


class _Form(HTMLParser):
    """Collects what a browser would send of the first form with id `wanted`."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self.wanted = wanted
        self.inside = False
        self.fields: dict[str, list[str]] = {}
        self._select: str | None = None
        self._textarea: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.inside = given.get("id") == self.wanted
        name = given.get("name", "")
        if not self.inside:
            return
        if tag == "input" and name and given.get("type") not in ("submit", "button", "file"):
            if given.get("type") not in ("checkbox", "radio") or "checked" in given:
                bare = "on" if given.get("type") == "checkbox" else ""
                self.fields.setdefault(name, []).append(given.get("value", bare))
        elif tag == "textarea":
            self._textarea = name
            self.fields[name] = [""]
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and "selected" in given:
            self.fields.setdefault(self._select, []).append(given.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.inside = False
        elif tag == "select":
            self._select = None
        elif tag == "textarea":
            self._textarea = None

    def handle_data(self, data: str) -> None:
        if self.inside and self._textarea:
            self.fields[self._textarea][0] += data.removeprefix("\n")


def filled(html: str, form: str) -> dict[str, list[str]]:
    """The fields of the form with the id `form`, as a browser would send them untouched."""
    parser = _Form(form)
    parser.feed(html)
    fields = {name: values for name, values in parser.fields.items() if "__prefix__" not in name}
    fields.pop("csrfmiddlewaretoken", None)
    return fields


def submit(client: Client, path: str, form: str, **changes: Any) -> Any:
    """Opens `path`, changes fields of its form and sends it; `__` in a name stands for the dash of a row's field."""
    fields: dict[str, Any] = filled(client.get(path).content.decode(), form)
    return client.post(path, {**fields, **{name.replace("__", "-"): value for name, value in changes.items()}})
