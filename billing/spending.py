"""What was spent in a range of days: by whom, on what and when, beside the range before, and beside the other books.

**Which month a call belongs to**: that in which it began, UTC, by the database's clock at its hold, however late it was
settled ("The date" in `docs/design.md`). Its usage row, the rollups and exports say so, and the ledger's postings; only
what was settled after that month was closed is posted to a later one, with a note of its day.

Read from the days of the rollups by key (`billing.models.SpendRollup`), the running one as far as it is rolled up; so a
month of any number of calls costs as much as the keys, models and providers that there are. By end user, or by a tag of
metadata, from those of `TagRollup`, within one organization: days that it does not tell apart are the rollups by key,
so that every cut of the same comes to the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.backends.utils import CursorWrapper

from billing.auditing import SETTLED_BY
from billing.closings import month_after
from billing.exports.columns import Column, Kind, Layout
from billing.exports.csv_file import CsvFile
from billing.exports.pages import File
from billing.exports.parquet_file import ParquetFile
from billing.exports.xlsx_file import XlsxFile
from billing.ids import CLOCKS_APART, EPOCH, first_id
from billing.retention import kept_since
from billing.rollups import COUNTS, SPENT, SPENT_COLUMNS

EARLIEST, LATEST = date(2000, 1, 1), date(9000, 1, 1)
MOST_DAYS = 1100  # three years
ADDED_UP_AT_ONCE = 50_000  # usage rows that may be read without being asked for
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Days:
    """UTC days, both inclusive. Raises ValueError when they are none, or too many."""

    first: date
    last: date

    def __post_init__(self) -> None:
        if not EARLIEST <= self.first <= self.last <= LATEST or (self.last - self.first).days >= MOST_DAYS:
            raise ValueError("not a range of days")

    @property
    def begin(self) -> datetime:
        """The first moment."""
        return datetime.combine(self.first, time(), UTC)

    @property
    def end(self) -> datetime:
        """The first moment after."""
        return datetime.combine(self.last, time(), UTC) + DAY

    @property
    def count(self) -> int:
        """How many days they are."""
        return (self.last - self.first).days + 1

    @property
    def months(self) -> int:
        """How many months they are of, when they begin with one's first day; else 0."""
        apart = 12 * (self.last.year - self.first.year) + self.last.month - self.first.month + 1
        return apart if self.first.day == 1 else 0

    def before(self) -> "Before":
        """The range that they are compared with: as many months before, or as many days.

        Of a last month that is not whole as many days: a month up to its 12th is compared with the one before up to its
        12th.
        """
        if not self.months:
            return Before(self.first - self.count * DAY, self.first - DAY)
        first, last = (_months_back(month.replace(day=1), self.months) for month in (self.first, self.last))
        longest = month_after(last) - DAY
        whole = month_after(self.last) - DAY == self.last
        return Before(first, longest if whole else min(longest, last.replace(day=min(self.last.day, longest.day))))


class Before(NamedTuple):
    """UTC days, both inclusive, that others are compared with; they may be before anything there is."""

    first: date
    last: date


def _months_back(month: date, count: int) -> date:
    years, left = divmod(12 * month.year + month.month - 1 - count, 12)
    return date(years, left + 1, 1)


_NARROWS = ("organization", "project", "key", "model", "provider")


@dataclass(frozen=True, slots=True)
class Whose:
    """What is added up: of one organization, project, key, model and provider, as far as they are given.

    - `end_user`: of one end user alone
    - `tag`: the key of metadata that the dimension `tag` is; with a `value`, of that value alone
    """

    organization: UUID | None = None
    project: UUID | None = None
    key: UUID | None = None
    model: str | None = None
    provider: str | None = None
    end_user: str | None = None
    tag: str | None = None
    value: str | None = None

    def where(self) -> str:
        """SQL that narrows to it, after a condition; `%(name)s` stands for each value."""
        return "".join(f" and {name} = %({name})s" for name in _NARROWS if getattr(self, name) is not None)

    def values(self) -> dict[str, Any]:
        """What is given, by name; None for what is not."""
        return {name: getattr(self, name) for name in (*_NARROWS, "end_user", "tag", "value")}

    def told(self, by: Iterable[str] = ()) -> str | None:
        """The tag whose rollups are read: a key of metadata, "" for end users; None where neither is asked for.

        Raises ValueError for both at once, of which no rollups are, for a tag without a name, and outside of an
        organization, since its end users are nobody elsewhere.
        """
        users, tags = self.end_user is not None or "end_user" in by, self.value is not None or "tag" in by
        if not users and not tags:
            return None
        if users and tags:
            raise ValueError("End users and tags are told apart one at a time.")
        if self.organization is None:
            raise ValueError("End users and tags are told apart within one organization: choose it.")
        if tags and not self.tag:
            raise ValueError("Choose the tag: a key of metadata.")
        return (self.tag or "") if tags else ""


class Dimension(NamedTuple):
    """Something that spending is told apart by.

    - `columns`: SQL of what makes a group, by name
    - `name`: SQL of what a group is called, where `lines` has the columns, `o`, `p` and `k` the rows of the tenant's
    - `file`: its columns in a file
    """

    columns: Mapping[str, str]
    name: str
    file: tuple[Column, ...]


def _id(column: str) -> Column:
    return Column(column, Kind.CODE, f"replace(lines.{column}::text, '-', '')")


_SLUG, _PROJECT, _KEY = (
    f"coalesce({name}, lines.{column}::text)"
    for name, column in (("o.slug", "organization"), ("p.slug", "project"), ("k.name", "key"))
)
_ONE = "case when lines.value is null then '(others)' else lines.value end"
_WHICH = "case when lines.value is null then 'others' when lines.value = '' then 'none' else 'named' end"


def _told_apart(name: str) -> Dimension:
    """By a value of a tag. In a file, a column says which rows are the others', or of requests that name none."""
    return Dimension(
        {"value": "value"},
        _ONE,
        (Column(name, Kind.TEXT, "coalesce(lines.value, '')"), Column(f"{name}_is", Kind.CODE, _WHICH)),
    )


_ORGANIZATION = (Column("organization_slug", Kind.TEXT, _SLUG), _id("organization"))
_OF_PROJECT = (*_ORGANIZATION, Column("project_slug", Kind.TEXT, _PROJECT), _id("project"))
DIMENSIONS = {
    "organization": Dimension({"organization": "organization"}, _SLUG, _ORGANIZATION),
    "project": Dimension(
        {"organization": "organization", "project": "project"}, f"{_SLUG} || '/' || {_PROJECT}", _OF_PROJECT
    ),
    "key": Dimension(
        {"organization": "organization", "project": "project", "key": "key"},
        f"{_SLUG} || '/' || {_PROJECT} || '/' || {_KEY}",
        (*_OF_PROJECT, Column("key_name", Kind.TEXT, _KEY), _id("key")),
    ),
    "model": Dimension({"model": "model"}, "lines.model", (Column("model", Kind.TEXT, "lines.model"),)),
    "provider": Dimension(
        {"provider": "provider"}, "lines.provider", (Column("provider", Kind.TEXT, "lines.provider"),)
    ),
    "end_user": _told_apart("end_user"),
    "tag": _told_apart("tag"),
    "month": Dimension(
        {"month": "date_trunc('month', moment at time zone 'UTC')::date"},
        "to_char(lines.month, 'YYYY-MM')",
        (Column("month", Kind.CODE, "to_char(lines.month, 'YYYY-MM')"),),
    ),
    "day": Dimension(
        {"day": "(moment at time zone 'UTC')::date"},
        "lines.day::text",
        (Column("day", Kind.CODE, "lines.day::text"),),
    ),
}
TIMES = ("month", "day")
TOLD = ("end_user", "tag")
# What stands for a group of each dimension in an address.
MEANT = {name: f"lines.{name}::text" for name in DIMENSIONS} | dict.fromkeys(TOLD, "lines.value")

# What pages show of it; each further sum of a line is a tenth of a statement's time.
SHOWN = (
    *("requests", "prompt_tokens", "completion_tokens", "web_searches", "images", "seconds"),
    *("charge", "provider_cost", "unpriced", "uncosted"),
)
_BEFORE = ("requests", "charge", "provider_cost")
_MONEY = ("charge", "provider_cost")


def _sum(name: str, when: str) -> str:
    return f"coalesce(sum({name}) filter (where {when}), 0)::{'numeric' if name in _MONEY else 'bigint'}"


def _sums(names: Iterable[str]) -> str:
    return ", ".join(
        [f"{_sum(name, 'now')} as {name}" for name in names]
        + [f"{_sum(name, 'not now')} as {name}_before" for name in _BEFORE]
    )


def _fields(names: Iterable[str]) -> list[str]:
    """What `Sums` calls them, and those of the range before."""
    return [_FIELDS.get(name, name) for name in (*names, *(f"{name}_before" for name in _BEFORE))]


_FIELDS = {"provider_cost": "cost", "provider_cost_before": "cost_before"}
_FILED = ("requests", "prompt_tokens", "completion_tokens", "charge", "provider_cost")
_OPERATORS = ("provider_cost", "margin", "uncosted", "provider_cost_before")
FURTHER = COUNTS[2:]  # what few calls have, beside tokens

# The rows of both ranges; those of the one before are moved onto the days that they are compared with.
_ROWS = """
rows as {how}(
    select r.*, starts_at >= %(begin)s as now,
           case when starts_at >= %(begin)s then starts_at else starts_at + %(shift)s::interval end as moment
      from {rollups} r
     where span = 'day' and (starts_at >= %(begin)s and starts_at < %(end)s
                             or starts_at >= %(before_begin)s and starts_at < %(before_end)s){where}
)
"""
# By value of a tag: its days, and those of which there are none.
_VALUES = f"""(
    select span, starts_at, organization, project, key, model, provider, value, {SPENT_COLUMNS}
      from billing_tagrollup where organization = %(organization)s and tag = %(told)s
    union all
    select span, starts_at, organization, project, key, model, provider, '', {SPENT_COLUMNS}
      from billing_spendrollup s
     where organization = %(organization)s and starts_at <> all(array(
           select d from (select generate_series(%(begin)s::timestamptz, %(end)s, '24 hours')
                           union all
                          select generate_series(%(before_begin)s::timestamptz, %(before_end)s, '24 hours')) g(d)
            where exists (select from billing_tagrollup t
                           where t.organization = %(organization)s and t.tag = %(told)s and t.span = 'day'
                             and t.starts_at = d)))
)"""  # noqa: S608 - names of columns
_LINES = """
with {rows}{dearest}, found as (
    select {columns}, {sums} from rows where moment < %(end)s{among} group by {places}
), lines as (
    select * from found lines order by {order} limit %(most)s
)
select {shown}
  from lines {joins}
 order by {order}
"""
# Which values are in the first lines, found with two sums alone; the other sums are then made of their rows, for which
# there is an index (`TagRollup`): of a month there may be as many values as rows, and a group of its own for each.
_DEAREST = f""", dearest as materialized (
    select {{columns}}, {_sums(("requests", "charge"))} from rows lines where moment < %(end)s
     group by {{places}} order by {{order}} limit %(most)s
)"""  # noqa: S608 - names of columns
_AMONG = """ and (value = any(array(select value from dearest))
                  or value is null and exists (select from dearest where value is null))"""
_BY_TIME = """
with {rows}
select {moment}, {sums} from rows group by 1 order by 1
"""
_JOINS = {
    "organization": "left join accounts_organization o on o.id = lines.organization",
    "project": "left join accounts_project p on p.id = lines.project",
    "key": "left join accounts_apikey k on k.id = lines.key",
}


@dataclass(frozen=True, slots=True)
class Sums:
    """What calls come to, and those of the range before. Money is of what has a known price or cost: `unpriced` calls
    have something without a price, `uncosted` ones no known cost.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    audio_input_tokens: int = 0
    image_input_tokens: int = 0
    reasoning_tokens: int = 0
    audio_output_tokens: int = 0
    web_searches: int = 0
    video_input_tokens: int = 0
    image_output_tokens: int = 0
    images: int = 0
    seconds: int = 0
    charge: Decimal = Decimal(0)
    cost: Decimal = Decimal(0)
    unpriced: int = 0
    uncosted: int = 0
    requests_before: int = 0
    charge_before: Decimal = Decimal(0)
    cost_before: Decimal = Decimal(0)

    @property
    def margin(self) -> Decimal:
        """What is left of the charge."""
        return self.charge - self.cost

    @property
    def margin_before(self) -> Decimal:
        """What was left of it in the range before."""
        return self.charge_before - self.cost_before


@dataclass(frozen=True, slots=True)
class Line:
    """A group: what it is called in each dimension, what stands for it in an address, and its sums."""

    names: tuple[str, ...]
    meant: tuple[str | None, ...]
    sums: Sums


def values(days: Days, whose: Whose, by: Iterable[str], most: int = 0) -> dict[str, Any]:
    """What a statement takes: of these days, and at most so many lines."""
    before = days.before()
    apart = f"{days.months} months" if days.months and "day" not in by else f"{(days.first - before.first).days} days"
    return {
        "begin": days.begin,
        "end": days.end,
        "before_begin": datetime.combine(before.first, time(), UTC),
        "before_end": datetime.combine(before.last, time(), UTC) + DAY,
        "shift": apart,
        "most": most,
        **whose.values(),
        "told": whose.told(by),
        "value": whose.value if whose.end_user is None else whose.end_user,
    }


def _rows(whose: Whose, by: Iterable[str], how: str = "") -> str:
    told = whose.told(by) is not None
    of_one = " and value = %(value)s" if whose.end_user is not None or whose.value is not None else ""
    return _ROWS.format(how=how, rollups=_VALUES if told else "billing_spendrollup", where=whose.where() + of_one)


def _statement(whose: Whose, by: Sequence[str], shown: str, sums: Iterable[str], *, few: bool) -> str:
    """SQL of lines with `sums`; `few`: they are some hundred at most."""
    columns = {name: sql for one in by for name, sql in DIMENSIONS[one].columns.items()}
    times = [name for name in by if name in TIMES]
    # Those that are told apart by nothing else are in one order all the same.
    order = [*times, "charge desc", "requests desc", *columns]
    made = {
        "columns": ", ".join(f"{sql} as {name}" for name, sql in columns.items()),
        "places": ", ".join(str(place) for place in range(1, len(columns) + 1)),
    }
    among = few and not set(TOLD).isdisjoint(by)
    return _LINES.format(
        rows=_rows(whose, by, "not materialized " if among else ""),
        dearest=_DEAREST.format(order=", ".join(order), **made) if among else "",
        among=_AMONG if among else "",
        sums=_sums(sums),
        shown=shown,
        joins=" ".join(join for name, join in _JOINS.items() if name in columns),
        order=", ".join(f"lines.{one}" for one in order),
        **made,
    )


def lines(days: Days, whose: Whose, by: Sequence[str], most: int, sums: Sequence[str] = SPENT) -> list[Line]:
    """What was spent, told apart by the dimensions `by` (one at least): at most `most` groups, some hundred, by time if
    that is one of them, and the dearest first. A group that spent in the range before alone is among them. `sums`:
    which of them are made; the others are 0. Raises as `Whose.told`.
    """
    names = [f"{DIMENSIONS[name].name}, {MEANT[name]}" for name in by]
    names += [f"lines.{name}" for name in (*sums, *(f"{name}_before" for name in _BEFORE))]
    with connection.cursor() as cursor:
        cursor.execute(_statement(whose, by, ", ".join(names), sums, few=True), values(days, whose, by, most))
        found = cursor.fetchall()
    width, fields = 2 * len(by), _fields(sums)
    return [Line(row[:width:2], row[1:width:2], Sums(**dict(zip(fields, row[width:], strict=True)))) for row in found]


def filed(
    whose: Whose,
    by: Sequence[str],
    format: type[CsvFile] | type[XlsxFile] | type[ParquetFile],
    *,
    tenants: bool = False,
) -> tuple[File, str]:
    """The same as a file, whose columns are told apart by `by`; and SQL of its lines, as one text, and how many they
    are, which takes `values`. `tenants`: without what the operator pays. Raises as `Whose.told`.

    Written by the server as exports are: no text is a formula, numbers stay numbers, ids are as in other files.
    """
    columns = {column.name: column for one in by for column in DIMENSIONS[one].file}
    sums = {name: f"lines.{name}" for name in _FILED} | {"margin": "lines.charge - lines.provider_cost"}
    more = ("unpriced", "uncosted", *(f"{name}_before" for name in _BEFORE), *FURTHER)
    sums |= {name: f"lines.{name}" for name in more}
    numbers = (Column(name, Kind.DECIMAL, sql) for name, sql in sums.items() if not (tenants and name in _OPERATORS))
    layout = Layout("spend", (*columns.values(), *numbers), ())
    made = _statement(whose, by, format.line(layout), SPENT, few=False)
    return format(layout), f"select coalesce(string_agg(line, ''), ''), count(*) from ({made}) made(line)"  # noqa: S608 - SQL of ours


def lines_file(
    days: Days, whose: Whose, by: Sequence[str], most: int, format: type[CsvFile] | type[XlsxFile]
) -> list[bytes] | None:
    """The pieces of such a file; None where there are more than `most` lines."""
    file, made = filed(whose, by, format)
    with connection.cursor() as cursor:
        cursor.execute(made, values(days, whose, by, most + 1))
        text, count = cursor.fetchone()
    return None if count > most else [file.begin(), file.page(text), file.end()]


def by_time(days: Days, whose: Whose, unit: str, sums: Sequence[str] = SPENT) -> tuple[Sums, dict[date, Sums]]:
    """Everything together, and by `unit`, day or month, of those days; units of the range before beside them. `sums`:
    which of them are made; the others are 0.
    """
    statement = _BY_TIME.format(rows=_rows(whose, ()), moment=DIMENSIONS[unit].columns[unit], sums=_sums(sums))
    with connection.cursor() as cursor:
        cursor.execute(statement, values(days, whose, (unit,)))
        rows = cursor.fetchall()
    fields = _fields(sums)
    total = Sums(**{name: sum((row[at] for row in rows), getattr(Sums(), name)) for at, name in enumerate(fields, 1)})
    found = {row[0]: Sums(**dict(zip(fields, row[1:], strict=True))) for row in rows}
    return total, {start: made for start, made in found.items() if start <= days.last}


def rolled_up_until() -> datetime | None:
    """Until when the rollups are; None before the first."""
    with connection.cursor() as cursor:
        cursor.execute("select until from billing_mark where name = 'spend'")
        found = cursor.fetchone()
    return found[0] if found and found[0] > EPOCH else None


# --- beside the other books ------------------------------------------------------------------------------------------


class Side(NamedTuple):
    """What one of the books says: dollars that tenants and providers take, and how many calls."""

    charge: Decimal
    cost: Decimal
    requests: int


@dataclass(frozen=True, slots=True)
class Books:
    """What the books say of the same days, whole organizations.

    - `days`: those of the range that are over for so long that nothing of them is on its way any more
    - `usage`: None where there are more rows than are read unasked, or not all are kept any more
    - `kept`: since when they are, if it was not always
    - `late`: what of the ledger's charge is posted to a later month, because its own was closed
    - `pending`: something of those days is not sealed, or not rolled up again, yet
    """

    days: Days
    rollups: Side
    ledger: Side
    usage: Side | None
    late: Decimal
    pending: bool
    kept: date | None = None

    @property
    def agree(self) -> bool:
        """Whether all that were read say the same, to the smallest unit."""
        return self.rollups == self.ledger and self.usage in (None, self.rollups)


_ROLLED = """
select coalesce(sum(charge), 0), coalesce(sum(provider_cost), 0), coalesce(sum(requests), 0)::bigint
  from billing_spendrollup where span = 'day' and starts_at >= %(begin)s and starts_at < %(end)s{where}
"""
# What came late for a closed month is posted later than its day, never earlier.
_POSTED = """
select coalesce(sum(debit - credit) filter (where account = 'tenant:' || organization), 0),
       coalesce(sum(debit - credit) filter (where account = 'cost'), 0),
       coalesce(sum(debits - credits) filter (where account = 'tenant:' || organization), 0)::bigint,
       coalesce(sum(debit - credit) filter (where account = 'tenant:' || organization and day <> of_day), 0)
  from billing_accountday where day >= %(first)s and of_day >= %(first)s and of_day <= %(last)s{where}
"""
_USED = """
select coalesce(sum(charge), 0), coalesce(sum(provider_cost), 0), count(*)
  from billing_usage
 where id >= %(from_id)s and id < %(to_id)s and created_at >= %(begin)s and created_at < %(end)s{where}
"""
# In the order of ids, so that it begins behind the last block however many rows the planner expects there; and by a
# value, since of an expression a row's policy is asked first, of all rows. Of more than are looked at some may be of
# these days.
_PENDING = f"""
with fresh as materialized (
    select organization, coalesce(late_of, (created_at at time zone 'UTC')::date) as day from billing_ledgerentry
     where id > (select coalesce(max(last_id), -9223372036854775808) from billing_ledgerblock)
     order by id limit {ADDED_UP_AT_ONCE}
)
select exists (select from billing_latehour where hour >= %(begin)s and hour < %(end)s)
    or exists (select from fresh where day between %(first)s and %(last)s{{where}})
    or (select count(*) = {ADDED_UP_AT_ONCE} from fresh)
"""  # noqa: S608 - a number of ours


def books(days: Days, organization: UUID | None, *, thoroughly: bool = False) -> Books | None:
    """Usage rows, rollups and ledger of the days that are over, of one organization or of all; None where none is over.

    The ledger knows no projects, keys or models. Usage rows are read when they are few, by what the rollups count, or
    `thoroughly`, however many they are.
    """
    until = rolled_up_until()
    if until is None:
        return None
    over = min(days.last, (until - SETTLED_BY).date() - DAY)
    if over < days.first:
        return None
    asked = Days(days.first, over)
    whose = Whose(organization=organization)
    values = {
        "begin": asked.begin,
        "end": asked.end,
        "first": asked.first,
        "last": asked.last,
        "from_id": first_id(asked.begin - CLOCKS_APART),
        "to_id": first_id(asked.end + CLOCKS_APART),
        **whose.values(),
    }
    since = kept_since()
    whole = since is None or asked.begin >= since
    with connection.cursor() as cursor:
        rollups = Side(*_one(cursor, _ROLLED, whose, values))
        *posted, late = _one(cursor, _POSTED, whose, values)
        few = whole and (thoroughly or rollups.requests <= ADDED_UP_AT_ONCE)
        usage = Side(*_one(cursor, _USED, whose, values)) if few else None
        (pending,) = _one(cursor, _PENDING, whose, values)
    kept = None if since is None else since.date()
    return Books(asked, rollups, Side(*posted), usage, late, pending, kept)


def _one(cursor: CursorWrapper, statement: str, whose: Whose, values: Mapping[str, Any]) -> tuple[Any, ...]:
    cursor.execute(statement.format(where=whose.where()), values)
    found: tuple[Any, ...] = cursor.fetchone()
    return found
