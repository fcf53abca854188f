"""A provider's bill beside the books: what is planted in it lands in its class with its exact amount."""

import hashlib
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.urls import reverse

from billing.bills.files import Form
from billing.bills.reconciling import reconcile
from billing.models import Reconciliation, ReconciliationLine, Usage
from routing.bills.credentials import billed_as
from routing.console.reconciliations import HEADER, as_csv
from routing.models import Provider
from tests.console.browser import console, make_attempt, make_usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider, make_tariff

DAY = datetime(2026, 10, 5, 12, tzinfo=UTC)
COST = Decimal("0.0012")  # of what `make_usage` makes: 1000 tokens in at 0.4, 500 out at 1.6


@pytest.fixture
def provider(database: None) -> Provider:
    """One with a credential."""
    return make_provider("https://vendor.example/v1", "sk-secret-of-a-vendor")


def used(tenant: Tenant, provider: Provider, at: datetime = DAY, **fields: Any) -> Usage:
    """A call of $0.0012, by the provider's credential."""
    row = make_usage(tenant, at, provider=provider.slug, upstream_id=f"chatcmpl-{uuid4().hex}", **fields)
    credential = provider.credentials.get()
    make_attempt(row, id=UUID(int=row.pk.int + 1), credential=credential.pk)
    return row


def compared(provider: Provider, *lines: str, header: str = "day,model,credential,calls,input,output,cost") -> Any:
    """What comes of a bill in our own form."""
    text = "\n".join((header, *lines))
    return reconcile(provider.slug, Form.METERLINE, [("bill.csv", text.encode())], billed_as(provider.slug), "finance")


def parts(made: Reconciliation) -> Any:
    """Missing calls, token drift, price drift, which sum to the gap in each line and together."""
    assert made.missing + made.tokens + made.price == made.billed - made.booked
    for name in ("billed", "booked", "missing", "tokens", "price"):
        assert sum(getattr(line, name) for line in made.lines.all()) == getattr(made, name)
    return made.missing, made.tokens, made.price


def test_what_agrees_is_no_gap(alice: Tenant, charlie: Tenant, provider: Provider) -> None:
    """Whoever called: the provider bills us, not them. Not in it: another day's, another's, what was not dialled."""
    for tenant in (alice, alice, charlie):
        used(tenant, provider)
    used(alice, provider, DAY + timedelta(days=1))
    used(alice, make_provider("https://other.example/v1", "sk-secret-of-another"))
    used(alice, provider, basis="nothing", arithmetic=[], charge=Decimal(0), provider_cost=Decimal(0))
    made = compared(provider, "2026-10-05,model-1,default,3,3000,1500,0.0036")
    assert parts(made) == (0, 0, 0)
    assert (made.billed, made.booked, made.form, made.made_by) == (3 * COST, 3 * COST, "meterline", "finance")
    line = made.lines.get()
    assert (line.billed_calls, line.booked_calls, line.billed_tokens, line.booked_tokens) == (3, 3, 4500, 4500)
    assert (line.model, line.credential) == ("model-1", "default")


def test_each_gap_lands_in_its_class(alice: Tenant, provider: Provider) -> None:
    for hours in (0, 24, 48, 72, 96):
        for _ in range(2):
            used(alice, provider, DAY + timedelta(hours=hours))
    made = compared(
        provider,
        "2026-10-05,model-1,default,3,3000,1500,0.0036",  # a call that we have not
        "2026-10-06,model-1,default,2,2000,1100,0.00256",  # 100 tokens more
        "2026-10-07,model-1,default,2,2000,1000,0.0025",  # dearer
        "2026-10-08,model-1,other,2,2000,1000,0.0024",  # by a credential that we did not use
        "2026-10-09,model-1,default,1,1000,500,0.0012",  # a call that the bill has not
    )
    found = {(f"{line.day:%d}", line.credential): (line.missing, line.tokens, line.price) for line in made.lines.all()}
    assert found == {
        ("05", "default"): (COST, 0, 0),
        ("06", "default"): (0, Decimal("0.00016"), 0),
        ("07", "default"): (0, 0, Decimal("0.0001")),
        ("08", "default"): (-2 * COST, 0, 0),
        ("08", "other"): (2 * COST, 0, 0),
        ("09", "default"): (-COST, 0, 0),
    }  # fmt: skip
    assert parts(made) == (0, Decimal("0.00016"), Decimal("0.0001"))


def test_calls_by_name_are_told_exactly_though_none_is_like_another(alice: Tenant, provider: Provider) -> None:
    rows = [used(alice, provider) for _ in range(3)]
    lines = [
        f"2026-10-05,model-1,default,{rows[0].upstream_id},1000,500,0.0012",
        f"2026-10-05,model-1,default,{rows[1].upstream_id},1000,600,0.00136",
        "2026-10-05,model-1,default,chatcmpl-nobodys,90000,7,0.0360112",
    ]
    made = compared(provider, *lines, header="day,model,credential,call,input,output,cost")
    assert parts(made) == (Decimal("0.0360112") - COST, Decimal("0.00016"), 0)


def test_what_has_no_price_and_what_nobody_counted(alice: Tenant, provider: Provider) -> None:
    lines = [{"item": "input", "quantity": 1000, "cost": None, "charge": None}]
    used(alice, provider, arithmetic=lines, provider_cost=None, charge=None)
    made = compared(provider, "2026-10-05,model-1,default,1,1000,0,0.5")
    assert parts(made) == (0, 0, Decimal("0.5"))
    used(alice, provider, basis="unknown", arithmetic=[], provider_cost=None, charge=Decimal(0))
    made = compared(provider, "2026-10-05,model-1,default,2,2000,0,1")
    assert parts(made) == (Decimal("0.5"), 0, Decimal("0.5"))


def test_each_of_two_providers_of_one_stream_has_its_own_part(alice: Tenant, provider: Provider) -> None:
    other = make_provider("https://other.example/v1", "sk-secret-of-another")
    lines = [
        {"item": "input", "quantity": count, "cost": rate, "charge": rate, "attempt": number, "provider": whose.slug,
         "provider_cost": cost}
        for number, count, rate, whose, cost in ((1, 100, "1", provider, "0.0001"), (2, 300, "2", other, "0.0006"))
    ]  # fmt: skip
    row = used(alice, other, arithmetic=lines, provider_cost=Decimal("0.0007"))
    make_attempt(row, id=UUID(int=row.pk.int + 2), provider=provider.slug, upstream_model="first",
                 credential=provider.credentials.get().pk)  # fmt: skip
    assert parts(compared(provider, "2026-10-05,first,default,1,100,0,0.0001")) == (0, 0, 0)
    assert parts(compared(other, "2026-10-05,model-1,default,1,300,0,0.0006")) == (0, 0, 0)


def test_a_bill_that_is_refused_leaves_nothing(alice: Tenant, provider: Provider, tmp_path: Path) -> None:
    before = Reconciliation.objects.count(), ReconciliationLine.objects.count()
    bill = tmp_path / "bill.csv"
    bill.write_text("day,model,cost\n2026-10-05,model-1,1\n2026-10-05,=1+1,1\n")
    with pytest.raises(CommandError, match=r"bill.csv: Line 3: model is no name: '=1\+1'."):
        call_command("reconcile", str(bill), provider=provider.slug)
    with pytest.raises(CommandError, match="There is no provider nobody"):
        call_command("reconcile", str(bill), provider="nobody")
    client = console()
    page = client.post(
        reverse("admin:billing_reconciliation_upload"),
        {"provider": provider.slug, "form": "meterline", "file": SimpleUploadedFile("bill.csv", bill.read_bytes())},
    )
    assert page.status_code == 200 and "Line 3: model is no name" in page.content.decode()
    assert (Reconciliation.objects.count(), ReconciliationLine.objects.count()) == before


def test_in_the_console_a_bill_is_compared_shown_and_exported(alice: Tenant, provider: Provider) -> None:
    used(alice, provider, upstream_model="=cmd()")
    client = console()
    bill = b"day,model,credential,calls,input,output,cost\n2026-10-05,model-1,default,1,1000,500,0.0012\n"
    made = client.post(
        reverse("admin:billing_reconciliation_upload"),
        {"provider": provider.slug, "form": "meterline", "file": SimpleUploadedFile("bill.csv", bill)},
    )
    assert made.status_code == 302
    page = client.get(made["Location"]).content.decode()
    assert "model-1" in page and "$0.0012" in page
    found = Reconciliation.objects.get(provider=provider.slug)
    exported = client.get(reverse("admin:billing_reconciliation_file", args=[found.pk]))
    assert exported["Content-Type"] == "text/csv; charset=utf-8"
    assert exported.content.decode().splitlines() == [
        ",".join(HEADER),
        "2026-10-05,'=cmd(),default,0,1,0,1500,0.000000000000,0.001200000000,-0.001200000000,0.000000000000,0.000000000000",
        "2026-10-05,model-1,default,1,0,1500,0,0.001200000000,0.000000000000,0.001200000000,0.000000000000,0.000000000000",
    ]  # fmt: skip
    staff = console(superuser=False)
    for name, args in (("upload", []), ("file", [found.pk])):
        assert staff.get(reverse(f"admin:billing_reconciliation_{name}", args=args)).status_code == 403


@pytest.mark.backbone
def test_a_planted_bill_of_the_simulated_provider(
    alice: Tenant, gateway: Gateway, simulated: SimulatedProvider, tmp_path: Path
) -> None:
    """Real calls; the bill is what the provider itself has written down, and what we plant in it."""
    secret = f"sk-{uuid4().hex}"
    provider = make_provider(simulated.base_url, secret)
    model = make_model(provider, "sim-small", make_tariff(input=("1", "2"), output=("3", "4")))
    synchronize(gateway)
    for words in ("one", "one two", "one two three", "one two three four"):
        answer = gateway.chat(alice.secret, model.slug, messages=[{"role": "user", "content": words}])
        assert answer.status_code == 200, answer.text
    digest = hashlib.sha256(secret.encode()).hexdigest()[:16]
    ends = [end for end in simulated.bill() if end["credential"] and end["credential"]["digest"] == digest]
    assert len(ends) == 4

    def amount(end: dict[str, Any]) -> Decimal:
        return (Decimal(end["prompt_tokens"]) + 3 * Decimal(end["completion_tokens"])).scaleb(-6)

    def line(end: dict[str, Any], cost: Decimal | None = None) -> str:
        day = datetime.fromtimestamp(end["started"], UTC).date()
        counts = f"{end['prompt_tokens']},{end['completion_tokens']}"
        return f"{day},{end['model']},default,{end['id']},{counts},{amount(end) if cost is None else cost:f}"

    header = "day,model,credential,call,input,output,cost"
    assert parts(compared(provider, *map(line, ends), header=header)) == (0, 0, 0)
    twice = {**ends[1], "id": "chatcmpl-not-ours", "completion_tokens": 1000}
    longer = {**ends[2], "completion_tokens": ends[2]["completion_tokens"] + 7}
    dearer = Decimal("0.000000000001")
    out = StringIO()
    bill = tmp_path / "bill.csv"
    lines = [line(ends[0]), line(ends[1]), line(twice), line(longer), line(ends[3], amount(ends[3]) + dearer)]
    bill.write_text("\n".join((header, *lines)))
    call_command("reconcile", str(bill), provider=provider.slug, csv=tmp_path / "lines.csv", stdout=out)
    made = Reconciliation.objects.filter(provider=provider.slug).latest("pk")
    assert parts(made) == (amount(twice), Decimal("0.000021"), dearer)
    assert out.getvalue().splitlines()[1:] == [
        f"  missing calls: ${amount(twice).normalize():f}",
        "  token drift: $0.000021",
        "  price drift: $0.000000000001",
    ]
    assert (tmp_path / "lines.csv").read_text() == as_csv(made).replace("\r\n", "\n")
