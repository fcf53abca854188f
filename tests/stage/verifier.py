"""Checks the books from raw rows, in fractions, sharing no code with the product.

Whoever wants to know whether the money is right runs this on a database that is at rest: it recomputes every charge
from tokens and the stored rates, adds up every account, and counts what may exist once only.

    python -m tests.stage.verifier postgres://…
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row

Row = Any

MILLION = 1_000_000
# The rate of each part of the input and output, and the column that counts it.
INPUT_PARTS = {
    "cached_input": "cached_tokens",
    "cache_write_5m": "cache_write_5m_tokens",
    "cache_write_1h": "cache_write_1h_tokens",
    "audio_input": "audio_input_tokens",
    "image_input": "image_input_tokens",
    "video_input": "video_input_tokens",
}
OUTPUT_PARTS = {
    "reasoning": "reasoning_tokens",
    "audio_output": "audio_output_tokens",
    "image_output": "image_output_tokens",
}
# What is no token, and the column that counts it.
EACH = {"web_search": "web_searches", "image": "images", "second": "seconds"}
Price = Fraction | None


class Sums(NamedTuple):
    """What the books come to, in dollars."""

    generations: int
    charge: Fraction
    provider_cost: Fraction
    overrun: Fraction


class Books:
    """The rows of some organizations, read in one snapshot."""

    def __init__(self, url: str, organizations: Iterable[UUID] | None = None) -> None:
        with psycopg.connect(url, row_factory=namedtuple_row) as connection:
            connection.execute("set transaction isolation level repeatable read")
            ids = list(organizations) if organizations is not None else None

            def rows(table: str) -> list[Row]:
                query = sql.SQL("select * from {} where %(ids)s::uuid[] is null or organization = any(%(ids)s)")
                return connection.execute(query.format(sql.Identifier(table)), {"ids": ids}).fetchall()

            self.usage = rows("billing_usage")
            self.ledger = rows("billing_ledgerentry")
            self.holds = rows("billing_hold")
            self.counters = rows("billing_counter")
            credits: list[Row] = connection.execute("select * from billing_credit").fetchall()
            self.credits: dict[UUID, list[Row]] = defaultdict(list)
            for credit in credits:
                if ids is None or credit.organization_id in ids:
                    self.credits[credit.organization_id].append(credit)
            prepaid: list[Row] = connection.execute("select * from billing_prepaid").fetchall()
            self.prepaid = {row.organization_id: row for row in prepaid}
            self.attempts: list[Row] = connection.execute(
                "select * from billing_attempt where generation = any(%s)", [[u.id for u in self.usage]]
            ).fetchall()
            self.rates: dict[int | None, list[Row]] = defaultdict(list)
            rates: list[Row] = connection.execute("select * from billing_rate order by above").fetchall()
            for rate in rates:
                self.rates[rate.version_id].append(rate)
            versions: list[Row] = connection.execute("select * from billing_tariffversion").fetchall()
            self.tariff_of = {version.id: version.tariff_id for version in versions}
            # By date, so that the last one that has begun is the one in force.
            self.versions = sorted(versions, key=lambda version: version.effective_from)
            self.marginal = {version.id for version in versions if version.marginal}
            self.dollars = {version.id: Fraction(version.exchange_rate) for version in versions}
            zones: list[Row] = connection.execute("select id, time_zone from accounts_organization").fetchall()
            self.zones = {organization.id: organization.time_zone for organization in zones}
            self.terms: list[Row] = connection.execute("select * from billing_terms order by effective_from").fetchall()

    def problems(self) -> list[str]:
        """What is wrong, one line a finding; empty when the books are right."""
        return [
            *self._at_rest(),
            *self._amounts(),
            *self._ledger(),
            *self._counters(),
            *self._balances(),
            *self._attempts(),
        ]

    def sums(self) -> Sums:
        """What the usage rows come to."""
        columns = ("charge", "provider_cost", "overrun")
        totals = (sum(Fraction(getattr(u, name) or 0) for u in self.usage) for name in columns)
        return Sums(len(self.usage), *map(Fraction, totals))

    def _at_rest(self) -> Iterable[str]:
        for hold in self.holds:
            yield f"hold {hold.id} is still there"
        for counter in self.counters:
            if counter.held:
                yield f"counter {counter.id} ({counter.measure} {counter.period}) holds {counter.held} of nobody"

    def _amounts(self) -> Iterable[str]:
        for u in self.usage:
            if u.basis in ("nothing", "unknown"):
                charge: Fraction | None = Fraction(0)
                cost = None if u.basis == "unknown" else Fraction(0)
            elif _continued(u):
                charge, cost = (_sum_of_lines(u, name) for name in ("charge", "cost"))
                yield from _line_problems(u)
            else:
                charge, cost = (self._price(u, name) for name in ("charge", "cost"))
            if not _continued(u) and (served := _class(u)) and not self._of_class(u.tariff_version, served):
                cost = None  # nobody knows what the provider takes for it
            owed = None if u.charge is None else Fraction(u.charge) + Fraction(u.overrun)
            if owed != charge:
                yield f"generation {u.id} is charged {u.charge} + {u.overrun}, its tokens come to {charge}"
            if (u.provider_cost is None) != (cost is None) or Fraction(u.provider_cost or 0) != (cost or 0):
                yield f"generation {u.id} costs {u.provider_cost}, its tokens come to {cost}"
            if u.overrun and u.basis != "capped":
                yield f"generation {u.id} has an overrun and is not capped"
            if (u.charge or 0) < 0 or u.overrun < 0 or (u.provider_cost or 0) < 0:
                yield f"generation {u.id} has a negative amount"

    def _price(self, u: Row, column: str) -> Price:
        """Tokens times rates, every token once: what is known of it, None when rates are needed and none is known."""
        rates, margins = self._rates(u, column)
        amounts: list[Price] = []
        for whole, count, parts in (
            ("input", u.prompt_tokens, INPUT_PARTS),
            ("output", u.completion_tokens, OUTPUT_PARTS),
        ):
            sizes = margins if whole == "input" else [(0, rates)]
            left = count
            for item, counted in (*parts.items(), (whole, "")):
                if item != whole and not any(item in found for _, found in sizes):
                    continue
                part = left if item == whole else min(getattr(u, counted), left)
                amounts += _beyond(item, whole, count - left, part, sizes)
                left -= part
        for item, count in (
            ("request", 1 if "request" in rates else 0),
            *((i, getattr(u, c)) for i, c in EACH.items()),
        ):
            if count and (item in rates or item == "web_search" or not u.prompt_tokens + u.completion_tokens):
                price = rates.get(item)
                amounts.append(None if price is None else count * price)
        return _known(amounts)

    def _rates(self, u: Row, column: str) -> tuple[dict[str, Price], list[tuple[int, dict[str, Price]]]]:
        """Prices by item for a prompt of this size, and, for its tokens, by the number that come before them: of the
        tariff's version, or, for a charge, what the organization's terms make of them.
        """
        version, term = u.tariff_version, self._term(u) if column == "charge" else None
        if term is not None and term.price_list_id is not None:
            listed = [v for v in self.versions if v.tariff_id == term.price_list_id]
            begun = [v.id for v in listed if v.effective_from <= u.created_at]
            version = next(reversed(begun), None)
        served = _class(u)
        own = [rate for rate in self.rates[version] if rate.service_tier == served] if served else []
        ordinary = [rate for rate in self.rates[version] if not rate.service_tier]
        factor = None if term is None or term.markup is None else 1 + Fraction(term.markup) / 100

        def price(rate: Row) -> Price:
            amount = _fraction(getattr(rate, column) if factor is None else rate.cost)
            if amount is None:
                return None
            amount = _rounded(amount * self.dollars[rate.version_id])  # exact in dollars, as it is entered
            return amount if factor is None else _rounded(amount * factor)

        def at(size: int) -> dict[str, Price]:
            # Rates are in the order of sizes, so that of several of an item the last that the prompt is above stays.
            found = {rate.item: price(rate) for rate in ordinary if rate.above == 0 or size > rate.above}
            return found | {rate.item: price(rate) for rate in own if rate.above == 0 or size > rate.above}

        sizes = {rate.above for rate in (*own, *ordinary) if 0 < rate.above < u.prompt_tokens}
        whole = at(u.prompt_tokens)
        return whole, [(size, at(size + 1)) for size in sorted({0, *sizes})] if version in self.marginal else [
            (0, whole)
        ]

    def _of_class(self, version: int | None, served: str) -> bool:
        return any(rate.service_tier == served for rate in self.rates[version])

    def _term(self, u: Row) -> Row | None:
        """The terms that the organization's charge is by: the newest for the tariff, else the newest for every one."""
        begun = [t for t in self.terms if t.organization_id == u.organization and t.effective_from <= u.created_at]
        own = [t for t in begun if t.tariff_id is not None and t.tariff_id == self.tariff_of.get(u.tariff_version)]
        every = [t for t in begun if t.tariff_id is None]
        return (own or every or [None])[-1]

    def _ledger(self) -> Iterable[str]:
        closings: dict[UUID, set[UUID]] = defaultdict(set)
        reversals: dict[UUID, set[UUID]] = defaultdict(set)
        balance: dict[UUID, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        for entry in self.ledger:
            if entry.kind == "reprice":  # of no generation, and on accounts of its own
                accounts = {entry.debit, entry.credit}
                known = {f"repriced:{entry.organization}", "repriced-revenue"}, {"repriced-cost", "repriced-provider"}
                if accounts not in known or entry.generation is not None:
                    yield f"entry {entry.id} of a re-pricing is between {accounts}"
                continue
            if any(
                account.startswith("prepaid") for account in (entry.debit, entry.credit)
            ):  # `_balances` adds them up
                continue
            (reversals if entry.kind == "reverse" else closings)[entry.generation].add(entry.transaction)
            balance[entry.generation][entry.debit] -= Fraction(entry.amount)
            balance[entry.generation][entry.credit] += Fraction(entry.amount)
        usage = {u.id: u for u in self.usage}
        for id in usage.keys() ^ closings.keys():
            yield f"generation {id} is only in {'usage' if id in usage else 'the ledger'}"
        for id, u in usage.items():
            standing = len(closings[id]) - len(reversals[id])
            if standing != 1:
                yield f"generation {id} has {standing} closing transactions"
            charge, cost, overrun = (Fraction(x or 0) for x in (u.charge, u.provider_cost, u.overrun))
            expected = {
                f"tenant:{u.organization}": -charge,
                "overrun": -overrun,
                "revenue": charge + overrun,
                "cost": -cost,
                **_shares(u, cost),
            }
            if {k: v for k, v in balance[id].items() if v} != {k: v for k, v in expected.items() if v}:
                yield f"generation {id}: the ledger says {dict(balance[id])}, usage {expected}"

    def _counters(self) -> Iterable[str]:
        windows = Counter(
            (c.owner or c.subject, c.model, c.end_user, c.measure, c.period, c.period_start) for c in self.counters
        )
        yield from (f"a window has {count} counters: {window}" for window, count in windows.items() if count > 1)
        users = Counter((c.organization, c.period, c.period_start) for c in self.counters if c.end_user is not None)
        for counter in self.counters:
            start = counter.period_start
            prepaid = self.prepaid.get(counter.subject) if counter.period == "balance" else None
            if counter.period == "balance":
                if prepaid is None:  # it has ended: `_balances` says that all of it is used
                    continue
                start = prepaid.since  # of what began after it was prepaid
            end = _end(counter.period, start, self.zones[counter.organization])
            rows = [
                u
                for u in self.usage
                if (counter.owner or counter.subject) in (u.key, u.project, u.organization)
                and counter.model in ("", u.model)
                and counter.end_user in (None, u.end_user)
                and start <= u.created_at < end
            ]
            used = Fraction(
                {
                    "money": sum(Fraction(u.charge or 0) for u in rows),
                    "tokens": sum(u.prompt_tokens + u.completion_tokens for u in rows),
                    "requests": len(rows),
                    "open": 0,
                    "users": users[counter.organization, counter.period, start],
                }[counter.measure]
            )
            if prepaid is not None:
                used += Fraction(prepaid.carried)
                used -= sum(Fraction(k.amount) for k in self.credits[counter.subject] if not _grants(k))
            if Fraction(counter.used) != used:
                yield f"counter {counter.id} ({counter.measure} {counter.period}) says {counter.used}, rows say {used}"

    def _balances(self) -> Iterable[str]:
        """What was granted, what the ledger has of it, and that no more was spent."""
        posted: dict[UUID, dict[tuple[str, str, str], Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        for entry in self.ledger:
            if any(account.startswith("prepaid") for account in (entry.debit, entry.credit)):
                posted[entry.organization][entry.kind, entry.debit, entry.credit] += Fraction(entry.amount)
        used = {c.subject: Fraction(c.used) for c in self.counters if c.period == "balance"}
        for organization in self.credits.keys() | posted.keys() | used.keys():
            expected: dict[tuple[str, str, str], Fraction] = defaultdict(Fraction)
            granted = Fraction(0)
            for k in self.credits[organization]:
                sides = (f"prepaid-{k.kind}", f"prepaid:{organization}")
                expected[k.kind, *(sides if k.amount > 0 else sides[::-1])] += abs(Fraction(k.amount))
                granted += Fraction(k.amount) if _grants(k) else 0
            if posted[organization] != expected:
                yield f"balance of {organization}: the ledger says {dict(posted[organization])}, not {dict(expected)}"
            kept = self.prepaid.get(organization)
            if Fraction(kept.granted if kept else used[organization]) != granted:
                yield f"balance of {organization}: granted {kept.granted if kept else 'nothing'}, credits say {granted}"
            if used[organization] > granted:
                yield f"balance of {organization}: {used[organization]} of {granted} is used"

    def _attempts(self) -> Iterable[str]:
        numbers: dict[UUID, list[int]] = defaultdict(list)
        for attempt in self.attempts:
            numbers[attempt.generation].append(attempt.number)
            if attempt.status == "dialling":
                yield f"attempt {attempt.id} never ended"
        for u in self.usage:
            if sorted(numbers[u.id]) != list(range(1, u.attempts + 1)):
                yield f"generation {u.id} counts {u.attempts} attempts, there are {sorted(numbers[u.id])}"


def _fraction(amount: Any) -> Fraction | None:
    return None if amount is None else Fraction(amount)


def _grants(credit: Row) -> bool:
    """Whether it raised a balance; all others count as used, those that give back what expired as less."""
    return bool(credit.amount > 0 and credit.kind != "expired")


def _continued(u: Row) -> bool:
    """Whether two providers answered it together; then each line of the arithmetic says whose it is."""
    return bool(u.arithmetic) and "provider" in u.arithmetic[0]


def _rounded(rate: Fraction) -> Fraction:
    """To the six decimals of a rate, half to even."""
    return Fraction(round(rate * MILLION), MILLION)


def _class(u: Row) -> str:
    """The class of service that a row was served with, empty for the ordinary one."""
    named = (u.service_tier or "").lower()
    return "" if named in ("auto", "default", "standard") else named


def _beyond(item: str, whole: str, before: int, count: int, sizes: list[tuple[int, dict[str, Price]]]) -> list[Price]:
    """What so many tokens come to that have others `before` them: those beyond a size and not beyond the next."""
    beyond = [min(count, max(0, before + count - size)) for size, _ in sizes]
    amounts: list[Price] = []
    for (_, rates), here, further in zip(sizes, beyond, (*beyond[1:], 0), strict=True):
        price = rates.get(item if item in rates else whole)
        if here > further:
            amounts.append(None if price is None else (here - further) * price / MILLION)
    return amounts


def _amount(line: Mapping[str, Any], column: str) -> Fraction | None:
    if line[column] is None:
        return None
    each = 1 if line["item"] in ("request", *EACH) else MILLION
    return Fraction(line["quantity"]) * Fraction(line[column]) / each


def _sum_of_lines(u: Row, column: str) -> Fraction | None:
    return _known([_amount(line, column) for line in u.arithmetic])


def _known(amounts: list[Fraction | None]) -> Fraction | None:
    """What is known of a sum; None when nothing is, of something."""
    found = [amount for amount in amounts if amount is not None]
    return sum(found, Fraction(0)) if found or not amounts else None


def _line_problems(u: Row) -> Iterable[str]:
    """The lines count every token once, and say what each is to its provider."""
    for whole, parts, count in (
        ("input", INPUT_PARTS, u.prompt_tokens),
        ("output", OUTPUT_PARTS, u.completion_tokens),
    ):
        lines = sum(line["quantity"] for line in u.arithmetic if line["item"] in (whole, *parts))
        if lines != count:
            yield f"generation {u.id} counts {count} tokens of {whole}, its lines {lines}"
    for line in u.arithmetic:
        if Fraction(line["provider_cost"] or 0) != (_amount(line, "cost") or 0):
            yield f"generation {u.id}: a line says {line['provider_cost']}, and comes to {_amount(line, 'cost')}"


def _shares(u: Row, cost: Fraction) -> dict[str, Fraction]:
    """What each provider is owed."""
    if not _continued(u) or u.provider_cost is None:
        return {f"provider:{u.provider}": cost}
    shares: dict[str, Fraction] = defaultdict(Fraction)
    for line in u.arithmetic:
        shares[f"provider:{line['provider']}"] += _amount(line, "cost") or 0
    return shares


def _end(period: str, start: datetime, zone: str) -> datetime:
    """When a window ends, exclusive. Days are those of the zone's clock."""
    local = start.astimezone(ZoneInfo(zone))
    if period == "minute":
        return start + timedelta(minutes=1)
    if period in ("day", "week"):
        return local + timedelta(days=1 if period == "day" else 7)  # of the calendar: 23 hours to 25, or so many more
    if period == "month":
        return (local.replace(day=1) + timedelta(days=32)).replace(day=1)
    return datetime.max.replace(tzinfo=UTC)


if __name__ == "__main__":
    found = Books(sys.argv[1]).problems()
    print("\n".join(found) or "The books are right.")
    sys.exit(bool(found))
