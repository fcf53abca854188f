"""What the ledger comes to by account, for days and tenants that are chosen, and its entries as a file.

Sums are those that were kept when blocks were sealed (`billing.models.AccountDay`), and of the entries since. A day is
the one that an entry is posted to, UTC.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet
from django.db.models.expressions import RawSQL

from billing.exports.csv_file import header, text_cell
from billing.exports.pages import PAGE
from billing.models import LedgerEntry

MOST_ACCOUNTS = 100
MOST_UNSEALED = 50_000  # entries; a worker seals every minute


class Account(NamedTuple):
    """An account, or those of all tenants together: what moved in the chosen days, how often, and `balance`, debit less
    credit of all days up to their end; None where it is not asked for.
    """

    name: str
    debit: Decimal
    credit: Decimal
    entries: int
    balance: Decimal | None


@dataclass(frozen=True, slots=True)
class Postings:
    """Which entries are looked at, as far as it is given.

    - `account`: on either side, as the ledger writes it
    - `first`, `last`: the days that they are posted to, both inclusive
    - `generation`: of this one alone, whatever else is given
    """

    organization: UUID | None = None
    account: str | None = None
    first: date | None = None
    last: date | None = None
    generation: UUID | None = None

    def sums(self) -> tuple[list[Account], datetime | None]:
        """By account, at most `MOST_ACCOUNTS`; and when what is not in it yet began, where that is too much to look at.

        Balances are of one organization, one account, or from the beginning: those of all since then are many.
        """
        balances = self.generation is None and bool(self.organization or self.account or self.first is None)
        found = self._ask(_SUMS, date.min if balances else self.first)
        accounts = [
            Account(name, debit, credit, entries, balance if balances else None)
            for name, debit, credit, entries, balance, _ in found
        ]
        return accounts, found[0][-1] if found else None

    def where_there_are(self) -> "Postings | None":
        """The same from the first to the last day that have such entries; None where there is none.

        Of an account that few entries are on, or none, a list would else look through all that are not.
        """
        ((first, last, left_out),) = self._ask(_ENDS, self.first)
        if left_out is not None:
            return self
        return None if first is None else replace(self, first=first, last=last)

    def _ask(self, statement: str, since: date | None) -> list[tuple[Any, ...]]:
        values = {
            "organization": self.organization,
            "account": self.account,
            "first": self.first or date.min,
            "last": self.last or date.max,
            "since": since or date.min,
            "generation": self.generation,
            "most": MOST_UNSEALED,
            "accounts": MOST_ACCOUNTS,
        }
        names = ("organization", "account")
        where = "".join(f" and {name} = %({name})s" for name in names if getattr(self, name) is not None)
        with connection.cursor() as cursor:
            cursor.execute((_OF_GENERATION if self.generation else _OF_DAYS).format(where=where) + statement, values)
            found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


# Both give `days`, what is on an account on a day, and `left_out`, since when entries are too many to be in it.
_SPLIT = """
    select e.organization, s.account, (e.created_at at time zone 'UTC')::date as day,
           case when s.debits then e.amount else 0 end as debit, case when s.debits then 0 else e.amount end as credit,
           1 as entries
      from {entries} e cross join lateral (values (e.debit, true), (e.credit, false)) s(account, debits)
"""
_OF_GENERATION = f"""
with left_out as (select null::timestamptz as since),
days as ({_SPLIT.format(entries="billing_ledgerentry")} where e.generation = %(generation)s)
"""
_OF_DAYS = f"""
with head as (
    select coalesce(max(last_id), -9223372036854775808) as id, max(sealed_at) as sealed_at from billing_ledgerblock
), fresh as materialized (
    select l.* from billing_ledgerentry l
     where l.id > (select id from head) order by l.id limit %(most)s + 1  -- no expression: the rows' policy comes first
), left_out as (
    select case when count(*) > %(most)s then coalesce((select sealed_at from head), min(created_at)) end as since
      from fresh
), days as (
    select organization, account, day, debit, credit, debits + credits as entries
      from billing_accountday where day >= %(since)s and day <= %(last)s{{where}}
    union all
    select * from ({_SPLIT.format(entries="fresh")}) f
     where day >= %(since)s and day <= %(last)s and (select since from left_out) is null{{where}}
)
"""  # noqa: S608 - names of ours
_SUMS = """
select case when account like any (array['tenant:%%', 'prepaid:%%']) and %(organization)s::uuid is null
            then split_part(account, ':', 1) else account end,
       coalesce(sum(debit) filter (where day >= %(first)s), 0),
       coalesce(sum(credit) filter (where day >= %(first)s), 0),
       coalesce(sum(entries) filter (where day >= %(first)s), 0)::bigint, sum(debit - credit),
       (select since from left_out)
  from days group by 1 order by 1 limit %(accounts)s
"""
_ENDS = "select min(day), max(day), (select since from left_out) from days"

COLUMNS = (
    "id",
    "created_at",
    "kind",
    "transaction",
    "generation",
    "organization",
    "debit",
    "credit",
    "amount",
    "currency",
    "late_of",
)
_ENTRY = "billing_ledgerentry"
_UUIDS = ("transaction", "generation", "organization")
_CELLS = {
    "id": f"{_ENTRY}.id::text",
    "created_at": f"""'"' || to_char({_ENTRY}.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '"'""",
    **{name: f"""coalesce('"' || replace({_ENTRY}.{name}::text, '-', '') || '"', '')""" for name in _UUIDS},
    **{name: text_cell(f"{_ENTRY}.{name}") for name in ("kind", "debit", "credit", "currency")},
    "amount": f"{_ENTRY}.amount::text",
    "late_of": f"""coalesce('"' || {_ENTRY}.late_of::text || '"', '')""",
}
_LINE = " || ',' || ".join(_CELLS[name] for name in COLUMNS) + r" || E'\r\n'"


def entries_csv(entries: QuerySet[LedgerEntry], page: int = PAGE) -> Iterator[bytes]:
    """The file in chunks of a page of rows, by date, with the form of a file of generations (`billing/exports.py`).

    Nothing stays open between pages. What is posted meanwhile may be in it or not.
    """
    yield header(COLUMNS)
    ordered = (
        entries.order_by("created_at", "id")
        .annotate(line=RawSQL(_LINE, []))  # noqa: S611, of names of ours
        .values_list("created_at", "id", "line")
    )
    rest: Any = ordered
    while True:
        rows = list(rest[:page])
        if rows:
            yield "".join([line for *_, line in rows]).encode()
        if len(rows) < page:
            return
        at, last, _ = rows[-1]
        rest = ordered.filter(Q(created_at__gt=at) | Q(id__gt=last), created_at__gte=at)
