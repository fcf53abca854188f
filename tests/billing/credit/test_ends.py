"""The way back from prepaid: only once nothing is left, without a unit lost, whatever runs meanwhile."""

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError
from django.db import connections

from billing.auditing import audit
from billing.backbone.admission import Refused
from billing.backbone.backbone import Backbone
from billing.credit.prepaid import Balance, balance, end, grant
from billing.models import Counter, Credit, CreditKind, Lot, Prepaid
from billing.sealing import seal
from tests.console.browser import console, console_role, url
from tests.stage.backbone import backbone, books, run, settled, wanted
from tests.stage.books import empty, findings, forced, fresh_books
from tests.stage.cast import Tenant, make_tenant

pytestmark = pytest.mark.backbone


@pytest.fixture(scope="module")
def fresh(database: None) -> Iterator[None]:
    """A database whose books no other test has touched."""
    with fresh_books():
        yield


@pytest.fixture
def tenant(fresh: None) -> Tenant:
    """Who paid $2 and was given $1."""
    empty()
    found = make_tenant("alice")
    for kind, amount in ((CreditKind.TOP_UP, 2), (CreditKind.BONUS, 1)):
        grant(found.organization, kind, Decimal(amount), kind, "finance", begin=True)
    return found


async def spend(here: Backbone, tenant: Tenant, charge: str) -> None:
    """A request of so much. Raises Refused."""
    item = wanted(tenant.key, fixed=charge, rate="0", cap=1)
    await here.settler.settle(settled(item, await here.admission.hold(item), charge))


def spent(tenant: Tenant, spool: Path, *charges: str) -> None:
    """Requests, one after the other."""

    async def scenario() -> None:
        async with backbone(spool) as here:
            for charge in charges:
                await spend(here, tenant, charge)

    run(scenario())


def agree() -> None:
    """Nothing that was charged may have begun before a balance did; and all books agree."""
    seal()
    assert (audit(), findings()) == (0, [])


def refusal(tenant: Tenant) -> str:
    with pytest.raises(ValidationError) as caught, console_role():
        end(tenant.organization.pk)
    assert Prepaid.objects.filter(pk=tenant.organization.pk).exists()
    return " ".join(caught.value.messages)


def test_it_ends_when_the_rest_was_taken_and_begins_again_after_it(tenant: Tenant, tmp_path: Path) -> None:
    organization = tenant.organization
    forced("update billing_prepaid set since = since - interval '1 minute'")
    spent(tenant, tmp_path, "1.25")
    left = "The balance has $1.75 left, of which $0 are held: take what is not spent by an adjustment first."
    assert refusal(tenant) == left
    grant(organization, CreditKind.ADJUSTMENT, Decimal("-1.749999999999"), "refund 1", "finance")
    assert "has $0.000000000001 left" in refusal(tenant)
    grant(organization, CreditKind.ADJUSTMENT, Decimal("-0.000000000001"), "refund 2", "finance")
    agree()
    with console_role():
        end(organization.pk)
    assert (balance(organization.pk), Lot.objects.count(), Credit.objects.count()) == (None, 0, 4)
    agree()
    with pytest.raises(ValidationError, match="The organization is postpaid"):
        end(organization.pk)
    with pytest.raises(ValidationError, match="The organization is postpaid"):
        grant(organization, CreditKind.TOP_UP, Decimal(1), "late", "finance")

    spent(tenant, tmp_path, "40")  # which nothing bounds any more
    agree()
    # So long ago that nothing which is charged now may have begun before.
    forced("update billing_usage set created_at = created_at - interval '2 minutes'")
    grant(organization, CreditKind.TOP_UP, Decimal(5), "again", "finance", begin=True)
    forced("update billing_prepaid set since = since - interval '1 minute'")
    spent(tenant, tmp_path, "1.5")
    assert balance(organization.pk) == Balance(Decimal("3.5"), Decimal(0), Decimal("3.5"), Decimal(0))
    agree()
    with pytest.raises(ValidationError, match="has a credit with the reference refund 1 already"):
        grant(organization, CreditKind.ADJUSTMENT, Decimal(-1), "refund 1", "finance")


def test_what_is_open_is_settled_first(tenant: Tenant, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            await spend(here, tenant, "2")
            item = wanted(tenant.key, fixed="1", rate="0", cap=1)
            held = await here.admission.hold(item)
            free = wanted(tenant.key, fixed="0", rate="0", cap=1)
            free_held = await here.admission.hold(free)
            assert "has $1 left, of which $1 are held" in await asyncio.to_thread(told, tenant)
            await here.settler.settle(settled(item, held, "1"))
            assert "Requests are open that hold of the balance." in await asyncio.to_thread(told, tenant)
            await here.settler.settle(settled(free, free_held, "0"))
            assert await asyncio.to_thread(told, tenant) == ""
            await spend(here, tenant, "7")

    forced("update billing_prepaid set since = since - interval '1 minute'")
    run(scenario())
    agree()


def told(tenant: Tenant) -> str:
    """Tries to end it, on a connection of the calling thread's own; why not, or nothing."""
    try:
        end(tenant.organization.pk)
    except ValidationError as error:
        return " ".join(error.messages)
    finally:
        connections.close_all()
    return ""


def test_it_ends_between_two_requests_whatever_runs(tenant: Tenant, tmp_path: Path) -> None:
    """Thirty dollars of dimes and quarters against three: what goes before the end is of the balance, to the unit."""
    forced("update billing_prepaid set since = since - interval '1 minute'")
    done, refused = list[str](), list[str]()
    ended = asyncio.Event()

    async def spends(here: Backbone, charge: str) -> None:
        while True:
            try:
                await spend(here, tenant, charge)
            except Refused:
                refused.append(charge)
                await asyncio.sleep(0)
                continue
            done.append(charge)
            return

    async def ends() -> None:
        while await asyncio.to_thread(told, tenant):
            pass
        ended.set()

    async def scenario() -> None:
        async with backbone(tmp_path) as here, asyncio.timeout(60):
            await asyncio.gather(ends(), *(spends(here, "0.25") for _ in range(40)))

    run(scenario())
    assert (len(done), bool(refused)) == (40, True)
    counter = Counter.objects.get(subject=tenant.organization.pk, period="balance")
    assert (counter.used, counter.held, balance(tenant.organization.pk)) == (Decimal(3), Decimal(0), None)
    wrong = [problem for problem in books(tenant.organization).problems() if "tokens come to" not in problem]
    assert wrong == []  # a bare settlement has no tokens
    agree()


def test_an_operator_ends_it_in_the_console(tenant: Tenant) -> None:
    client, page = console(), url(Prepaid, "change", tenant.organization.pk)
    path = page.replace("change/", "end/")
    assert 'id="end_form"' in client.get(page).content.decode()
    assert console(superuser=False).post(path).status_code == 404
    assert client.get(path).status_code == 405
    assert "The balance has $3 left" in client.post(path, follow=True).content.decode()
    grant(tenant.organization, CreditKind.ADJUSTMENT, Decimal(-3), "refund", "finance")
    assert f"{tenant.organization.slug} is postpaid." in client.post(path, follow=True).content.decode()
    assert not Prepaid.objects.filter(pk=tenant.organization.pk).exists()
    assert client.post(path).status_code == 404
