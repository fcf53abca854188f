"""The ledger's hash chain: what is sealed and when, recomputed here without the product, and every change found."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from psycopg.rows import namedtuple_row

from billing.models import AccountDay, LedgerBlock, LedgerEntry
from billing.sealing import seal, wrong_blocks
from tests.stage.backbone import app_url, database, owner_url
from tests.stage.books import forced, fresh_books, post

pytestmark = pytest.mark.backbone

UNIT = Decimal("0.000000000001")


@pytest.fixture(scope="module")
def fresh(database: None) -> Iterator[None]:
    """A database whose ledger no other test has touched."""
    with fresh_books():
        yield


@pytest.fixture(autouse=True)
def empty(fresh: None) -> None:
    """Nothing posted, nothing sealed."""
    forced("truncate billing_ledgerentry, billing_ledgerblock, billing_accountday")


def digests() -> list[str]:
    """What the digests must be, from raw rows."""
    found: list[str] = []
    with psycopg.connect(owner_url(), row_factory=namedtuple_row) as owner:
        after = -(2**63)
        blocks: list[Any] = owner.execute("select * from billing_ledgerblock order by number").fetchall()
        for b in blocks:
            entries: list[Any] = owner.execute(
                "select * from billing_ledgerentry where id > %s and id <= %s order by id", [after, b.last_id]
            ).fetchall()
            lines = [
                [str(b.number), found[-1] if found else "", str(b.last_id), str(len(entries)),
                 f"{sum(e.amount for e in entries):.12f}", written(b.sealed_at)],
                *([str(e.id), str(e.transaction), e.kind, e.generation and str(e.generation), str(e.organization),
                   e.debit, e.credit, f"{e.amount:.12f}", e.currency, written(e.created_at)] for e in entries),
            ]  # fmt: skip
            late = ["", *(f' "{e.late_of}"' if e.late_of else "" for e in entries)]
            texts = [json.dumps(line, ensure_ascii=False) for line in lines]
            text = "".join(f"{line}{more}\n" for line, more in zip(texts, late, strict=True))
            found.append(hashlib.sha256(text.encode()).hexdigest())
            after = b.last_id
    return found


def written(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def sealed() -> list[tuple[int, int]]:
    """The blocks' ends and sizes."""
    return list(LedgerBlock.objects.order_by("number").values_list("last_id", "entries"))


def last_id() -> int:
    return LedgerEntry.objects.order_by("-pk")[0].pk


def test_every_entry_is_in_one_block_and_the_digests_can_be_recomputed() -> None:
    assert seal() == 0
    for amount in ("0", "0.000000000001", "999999999999.999999999999", "0.25"):
        post(Decimal(amount), debit='tenant "\\\n\té\x01', credit='", "')
    first = last_id()
    assert seal(3) == 2
    assert seal(3) == 0
    assert sealed() == [(first - 1, 3), (first, 1)]
    post(Decimal(1))
    post(Decimal(2), generation=None, late_of="2026-10-31")
    assert seal() == 1
    assert sealed()[2:] == [(last_id(), 2)]
    assert list(LedgerBlock.objects.order_by("number").values_list("number", "digest")) == [
        *enumerate(digests(), start=1)
    ]
    assert len(set(digests())) == 3
    assert wrong_blocks(1, 3) == []


def test_the_digest_is_the_same_wherever_it_is_computed() -> None:
    post(Decimal(1))
    seal()
    with database(app_url()) as app:
        app.execute("set timezone = 'Asia/Kathmandu'")
        app.execute("set datestyle = 'German'")
        app.execute("set extra_float_digits = 0")
        assert app.execute("select * from billing_wrong_blocks(1, 1)").fetchall() == []


def test_balances_are_what_the_entries_come_to() -> None:
    organization = uuid4()
    for amount, kind in (("1.5", "settle"), ("0.25", "settle"), ("0", "void")):
        post(Decimal(amount), organization=organization, kind=kind)
    seal(2)
    post(Decimal("1.5"), organization=organization, kind="reverse", debit="revenue", credit=f"tenant:{organization}")
    seal()
    days = {
        row["account"]: (row["debit"], row["debits"], row["credit"], row["credits"])
        for row in AccountDay.objects.filter(organization=organization).values()
    }
    assert days == {
        f"tenant:{organization}": (Decimal("1.75"), 3, Decimal("1.5"), 1),
        "revenue": (Decimal("1.5"), 1, Decimal("1.75"), 3),
    }


def test_what_is_still_being_written_is_not_sealed_nor_waited_for_by_anybody() -> None:
    """A transaction is held open over several sealings: its low id is in no block before it can be seen."""
    post(Decimal(1))
    before = last_id()
    assert seal() == 1
    with psycopg.connect(owner_url()) as slow:
        post(Decimal(2), by=slow)
        for amount in (3, 4, 5):
            post(Decimal(amount))  # nobody waits
            assert seal() == 0
            assert sealed() == [(before, 1)]
        slow.commit()
    assert seal() == 1
    assert sealed()[1:] == [(last_id(), 4)]
    assert wrong_blocks(1, 2) == []


def test_what_is_taken_back_leaves_a_gap_that_stays() -> None:
    with psycopg.connect(owner_url()) as slow:
        post(Decimal(2), by=slow)
        post(Decimal(3))
        assert seal() == 0
        slow.rollback()
    assert seal() == 1
    assert sealed() == [(last_id(), 1)]
    assert [block.digest for block in LedgerBlock.objects.all()] == digests()


def test_a_part_of_a_transaction_taken_back_is_no_part_of_a_block() -> None:
    with psycopg.connect(owner_url()) as slow:
        slow.execute("savepoint here")
        post(Decimal(2), by=slow)
        slow.execute("rollback to here")
        post(Decimal(3))
        assert seal() == 1  # nothing of it can be seen any more
        post(Decimal(4), by=slow)
        assert seal() == 0
        slow.commit()
    assert seal() == 1
    assert [entries for _, entries in sealed()] == [1, 1]
    assert wrong_blocks(1, 2) == []


def test_an_idle_transaction_that_only_reads_delays_nothing() -> None:
    with psycopg.connect(owner_url()) as reader:
        reader.execute("select count(*) from billing_ledgerentry")
        post(Decimal(1))
        assert seal() == 1


def test_writers_and_sealers_at_once_leave_a_whole_chain() -> None:
    def write(number: int) -> None:
        with psycopg.connect(owner_url()) as own:
            for _ in range(60):
                post(Decimal(number), by=own)
                post(UNIT, by=own)
                if number % 3:
                    own.commit()
                else:
                    own.rollback()

    def work(_: int) -> None:
        try:
            for _ in range(25):
                seal(50)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        jobs = [*(pool.submit(work, n) for n in range(2)), *(pool.submit(write, n) for n in range(1, 7))]
        for job in jobs:
            job.result()
    seal(50)
    assert sum(entries for _, entries in sealed()) == 4 * 120 == LedgerEntry.objects.count()
    assert [block.digest for block in LedgerBlock.objects.order_by("number")] == digests()
    assert wrong_blocks(1, len(sealed())) == []


TAMPERING = {
    "an amount": "update billing_ledgerentry set amount = amount + 0.000000000001 where id = {id}",
    "a microsecond": "update billing_ledgerentry set created_at = created_at + interval '1 microsecond'"
    " where id = {id}",
    "two accounts": "update billing_ledgerentry set debit = credit, credit = debit where id = {id}",
    "an entry gone": "delete from billing_ledgerentry where id = {id}",
    "an entry more": "insert into billing_ledgerentry (id, transaction, kind, organization, debit, credit, amount,"
    " currency, created_at) overriding system value values (-1, gen_random_uuid(), 'settle', gen_random_uuid(), 'a',"
    " 'b', 1, 'USD', now())",
    "a generation": "update billing_ledgerentry set generation = null where id = {id}",
    "a block's amount": "update billing_ledgerblock set amount = amount + 0.000000000001 where number = {block}",
    "a block's digest": "update billing_ledgerblock set digest = reverse(digest) where number = {block}",
    "a block's time": "update billing_ledgerblock set sealed_at = now() where number = {block}",
    "a block gone": "delete from billing_ledgerblock where number = {block}",
}


@pytest.mark.parametrize("what", TAMPERING)
def test_the_first_block_that_does_not_hold_is_named(what: str) -> None:
    for amount in range(8):
        post(Decimal(amount))
    seal(2)
    call_command("audit", stdout=StringIO())
    block = 1 if what == "an entry more" else 2
    forced(TAMPERING[what].format(id=last_id() - 5, block=2))  # its sixth from the end is in the second
    with pytest.raises(CommandError, match=rf"^Block {block + (what == 'a block gone')} does not hold"):
        call_command("audit", stdout=StringIO())


def test_the_command_prints_the_head_and_knows_it_again() -> None:
    said = StringIO()
    call_command("audit", stdout=said)
    assert said.getvalue() == "Nothing is sealed yet.\n"
    post(Decimal(1))
    post(Decimal(2))
    seal(1)
    said = StringIO()
    call_command("audit", stdout=said)
    head = f"2:{digests()[1]}"
    assert f"The chain holds. Its head is {head}, sealed " in said.getvalue()
    call_command("audit", first=2, head=head, stdout=StringIO())
    # Whoever has every right makes the blocks anew: they hold, and another head was noted elsewhere.
    forced("delete from billing_ledgerblock; update billing_ledgerentry set amount = amount + 1")
    seal(1)
    call_command("audit", stdout=StringIO())
    with pytest.raises(CommandError, match=f"The head {head} is not in the chain"):
        call_command("audit", head=head, stdout=StringIO())


def test_the_apis_role_seals_and_changes_nothing() -> None:
    post(Decimal(1))
    with database(app_url()) as app:
        assert app.execute("select billing_seal(1, 10, 0)").fetchone() == (1,)
        statements: list[Any] = [
            "update billing_ledgerblock set digest = ''",
            "delete from billing_ledgerblock",
            "insert into billing_ledgerblock values (2, 9, 1, 0, '', '', now())",
            "update billing_accountday set debit = 0",
        ]
        for statement in statements:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute(statement)
    assert wrong_blocks(1, 1) == []
    assert UUID(str(AccountDay.objects.filter(debits=1).get().organization))
