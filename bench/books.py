"""`python -m bench.books [ROWS]`: what the pages of finance and of a tenant's people take among a million
generations, or as many as are said.

Engines of its own in a folder of its own (where temporary files are), a month of generations of a hundred
organizations, half of them one's, of 20,000 end users each and six teams, which the database copies from one, with
their postings, rolled up, sealed, closed and stated as the worker does it; then each page, the best of five:
milliseconds beside what they may take, with how many statements of the database and how much of it they were. The last
line says how many pages stay below their bound, and which is the slowest. How far the making is shows on a terminal.

The other scale is `python -m bench.books 10000000`: the same pages. 200,000 were made in 41 s and took 0.6 GB, with
their postings and indexes, on a 2-core machine; so ten million want an hour, and 40 GB with the log of their writing.
"""

import os
import secrets
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

ROWS, TENANTS, CHUNK = 1_000_000, 100, 50_000
STATEMENT, PAGE = 2000.0, 300.0  # milliseconds
BEST_OF = 5


class Took(NamedTuple):
    """Milliseconds: all of it, and that of its statements; and how many these were."""

    whole: float
    database: float
    statements: int


# Copies of one generation, a moment apart from `since` on: tenants, models, providers and amounts in turn.
MAKE = """
insert into billing_usage
select made.*
  from billing_usage u, generate_series(%(first)s, %(last)s) n,
       lateral (select *, %(since)s + n * %(apart)s as at from billing_bench_tenant
                 where number = case when n %% 2 = 0 then 0 else n %% %(tenants)s end) t,
       jsonb_populate_record(u, jsonb_build_object(
           'id', left(billing_first_id(t.at)::text, 24) || lpad(to_hex(n), 12, '0'),
           'created_at', t.at, 'settled_at', t.at, 'organization', t.organization, 'project', t.project, 'key', t.key,
           'organization_slug', t.slug, 'model', 'lab/model-' || n %% 7, 'provider', 'vendor-' || n %% 3,
           'end_user', case when n %% 11 > 0 then 'user-' || n * 7919::bigint %% 20000 else '' end,
           'metadata', case when n %% 13 > 0 then jsonb_build_object('team', 'team-' || n %% 6, 'trace', n::text)
                       else '{}' end,
           'suspect', n %% 997 = 0, 'charge', (n %% 1000) * 0.000001, 'provider_cost', (n %% 900) * 0.000001)) made
 where u.id = %(pattern)s
"""
TENANT = """
create table billing_bench_tenant (number int primary key, organization uuid, project uuid, key uuid, slug text)
"""
IDS = "select id from billing_usage where id > %s order by id limit %s"


def generate(rows: int) -> None:
    """Fills the books, rolls up and seals what is there, closes the month and issues its statements."""
    from datetime import UTC, datetime, timedelta

    from django.db import connection

    from billing.ids import EPOCH, first_id
    from billing.issuing import issue, statement, waiting
    from billing.models import ClosedMonth, ReportTags
    from billing.rollups import roll_up_usage
    from billing.sealing import seal, sum_closed
    from routing.starter.progress import Progress
    from tests.console.browser import make_usage
    from tests.stage.cast import make_tenant

    tenants = [make_tenant("bench") for _ in range(TENANTS)]
    month = (datetime.now(UTC).replace(day=1) - timedelta(days=1)).replace(day=1, hour=0, minute=0, second=0)
    month = month.replace(microsecond=0)
    pattern = make_usage(tenants[0], EPOCH + timedelta(days=365 * 40))
    told: dict[str, Any] = {
        "since": month, "apart": timedelta(days=28) / rows, "tenants": TENANTS, "pattern": pattern.pk,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(TENANT)
        cursor.executemany(
            "insert into billing_bench_tenant values (%s, %s, %s, %s, %s)",
            [(n, t.organization.pk, t.project.pk, t.key.pk, t.organization.slug) for n, t in enumerate(tenants)],
        )
        ReportTags.objects.bulk_create(
            ReportTags(organization=t.organization, names=["team", "trace"]) for t in tenants
        )
        progress = Progress("Making", rows, sys.stderr)
        for first in range(0, rows, CHUNK):
            cursor.execute(MAKE, {**told, "first": first, "last": min(first + CHUNK, rows) - 1})
            progress.step(min(CHUNK, rows - first))
        pattern.delete()
        after, progress = first_id(EPOCH), Progress("Posting", rows, sys.stderr)
        while True:
            cursor.execute(IDS, [after, CHUNK])
            ids = [id for (id,) in cursor.fetchall()]
            if not ids:
                break
            cursor.execute("select billing_close(%s)", [ids])
            after = ids[-1]
            progress.step(len(ids))
        cursor.execute("vacuum analyze")
    while not roll_up_usage():
        pass
    while seal():
        pass
    ClosedMonth.objects.create(month=month.date(), closed_by="bench")
    sum_closed()
    for organization in waiting(month.date()):
        issue(statement(month.date(), organization, "bench"))
    with connection.cursor() as cursor:
        cursor.execute("vacuum analyze")


def measure() -> Iterator[tuple[str, float, Took]]:
    """What was done, the milliseconds that it may take, and what it took."""
    from datetime import UTC, datetime, timedelta
    from urllib.parse import urlencode

    from accounts.models import ApiKey, Membership, Organization, Project, User
    from billing.models import LedgerEntry, Quarantined, Reconciliation, Statement, Usage
    from billing.spending import Days, Whose, by_time, lines
    from tests.console.browser import console, url

    last = datetime.now(UTC).replace(day=1).date() - timedelta(days=1)
    days = Days(last.replace(day=1), last)
    (most,) = lines(days, Whose(), ["organization"], 1)
    tenant = Organization.objects.get(pk=str(most.meant[0]))
    whose, month = Whose(organization=tenant.pk), {"from": days.first, "to": days.last}
    yield "a tenant's month by model", STATEMENT, best(lambda: lines(days, whose, ["model"], 1000))
    yield (
        "everyone's month by tenant and model",
        STATEMENT,
        best(lambda: lines(days, Whose(), ["organization", "model"], 1000)),
    )
    yield "everyone's month by day", STATEMENT, best(lambda: by_time(days, Whose(), "day"))

    client = console()
    project = Project.objects.get(organization=tenant)
    key = ApiKey.objects.get(project=project)
    of, day = {"organization": str(tenant.pk)}, {"created_at_from": days.first, "created_at_to": days.first}
    dated = {"created_at_from_0": days.first, "created_at_to_0": days.last}
    ledger, usage, statements = (url(model, "changelist") for model in (LedgerEntry, Usage, Statement))
    stated = Statement.objects.get(organization=tenant.pk)
    whole = {"created_at_from": days.first, "created_at_to": days.last}
    for name, address, asked in (
        ("Spend, by tenant", "/console/spend/", month),
        ("Spend, by tenant, model and day", "/console/spend/", {**month, "by": ["organization", "model", "day"]}),
        ("Spend of a tenant, by key", "/console/spend/", {**month, **of, "by": "key"}),
        ("Spend of a tenant, its file by key, model and day", "/console/spend/export/",
         {**month, **of, "by": ["key", "model", "day"]}),
        ("Spend of a tenant, the same as XLSX", "/console/spend/export/",
         {**month, **of, "by": ["key", "model", "day"], "format": "xlsx"}),
        ("Spend of a tenant, by end user", "/console/spend/", {**month, **of, "by": "end_user"}),
        ("Spend of a tenant, by end user and model", "/console/spend/", {**month, **of, "by": ["end_user", "model"]}),
        ("Spend of one end user, by day", "/console/spend/", {**month, **of, "end_user": "user-7919", "by": "day"}),
        ("Spend of a tenant, by tag", "/console/spend/", {**month, **of, "by": "tag", "tag": "team"}),
        ("Spend of a tenant, by a tag no two share", "/console/spend/", {**month, **of, "by": "tag", "tag": "trace"}),
        ("End users of a tenant", "/console/end-users/", {**month, **of}),
        ("Ledger", ledger, whole),
        ("Ledger of a day", ledger, day),
        ("Ledger of a tenant", ledger, {**whole, **of}),
        ("Ledger of a provider", ledger, {**whole, "account": "provider:vendor-1"}),
        ("Ledger of no account", ledger, {**whole, "account": "provider:none"}),
        ("Statements", statements, {}),
        ("A statement", url(Statement, "change", stated.pk), {}),
        ("A statement as PDF", url(Statement, "pdf", stated.pk), {}),
        ("Quarantine", url(Quarantined, "changelist"), {}),
        ("Quarantine of a tenant", url(Quarantined, "changelist"), of),
        ("Reconciliation", url(Reconciliation, "changelist"), {}),
        ("Generations", usage, dated),
        ("Generations of a tenant", usage, {**dated, **of}),
        ("The first page", "/console/", {}),
        ("The first page, 30 days", "/console/", {"days": 30}),
        ("The first page, 30 days of a tenant", "/console/", {"days": 30, "organization": tenant.slug}),
        ("A tenant", url(Organization, "change", tenant.pk), {}),
        ("A project", url(Project, "change", project.pk), {}),
        ("A key", url(ApiKey, "change", key.pk), {}),
        ("Search for an id", "/console/search/", {"q": Usage.objects.latest("pk").pk.hex, "stay": 1}),
        ("Search for an id that none has", "/console/search/", {"q": "0" * 31 + "1"}),
        ("Search for a name", "/console/search/", {"q": "bench"}),
    ):  # fmt: skip
        yield name, PAGE, best(opened(client, f"{address}?{urlencode(asked, doseq=True)}"))
    yield from lists(client)
    for role in ("owner", "developer"):
        member = console(superuser=False)
        person = User.objects.get(pk=member.session["_auth_user_id"])
        Membership.objects.create(user=person, organization=tenant, role=role)
        if role == "developer":
            ApiKey.objects.filter(project__organization=tenant).update(owner=person)
        yield f"The first page, for a tenant's {role}", PAGE, best(opened(member, "/console/?days=30"))
        yield f"A tenant, for its {role}", PAGE, best(opened(member, url(Organization, "change", tenant.pk)))
        for name, asked in (("", dated), (", of a model", {**dated, "model": "lab/model-3"}),
                            (", of none", {**dated, "model": "none"})):  # fmt: skip
            address = f"{usage}?{urlencode(asked)}"
            yield f"Generations{name}, for a tenant's {role}", PAGE, best(opened(member, address))


def lists(client: Any) -> Iterator[tuple[str, float, Took]]:
    """The same of every list of the console, as the menu opens it."""
    from django.contrib import admin

    from tests.console.browser import url

    for model in sorted(admin.site._registry, key=lambda model: model._meta.label):
        yield f"List of {model._meta.verbose_name_plural}", PAGE, best(opened(client, url(model, "changelist")))


def opened(client: Any, address: str) -> Callable[[], None]:
    """Opens a page, and raises RuntimeError where it is none."""

    def page() -> None:
        status = client.get(address).status_code
        if status != 200:
            raise RuntimeError(f"{status} for {address}")

    return page


def best(work: Callable[[], Any]) -> Took:
    """The quickest of some."""
    from django.db import connection

    def timed(execute: Callable[..., Any], *args: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(*args)
        finally:
            statements.append((time.perf_counter() - began) * 1000)

    took = []
    for _ in range(BEST_OF):
        statements: list[float] = []
        began = time.perf_counter()
        with connection.execute_wrapper(timed):
            work()
        took.append(Took((time.perf_counter() - began) * 1000, sum(statements), len(statements)))
    return min(took)


def main(arguments: list[str]) -> int:
    """Prints the table. 1 if something takes longer than it may."""
    rows = int(arguments[0]) if arguments else ROWS
    with TemporaryDirectory(prefix="meterline-books-") as state:
        from deploy.engines import start

        with start(Path(state)) as engines:
            os.environ |= engines.urls | {
                "DJANGO_SETTINGS_MODULE": "gateway.settings",
                "DATABASE_ROLE": "owner",
                "SECRET_KEY": secrets.token_urlsafe(50),
                "KEY_PEPPERS": secrets.token_urlsafe(32),
                "SEALING_KEYS": urlsafe_b64encode(os.urandom(32)).decode(),
                "ALLOWED_HOSTS": "*",
            }
            import django
            from django.core.management import call_command
            from django.db import connection

            django.setup()
            call_command("migrate", verbosity=0)
            connection.close()  # on which locks are hardly waited for
            began = time.perf_counter()
            generate(rows)
            took = time.perf_counter() - began
            with connection.cursor() as cursor:
                cursor.execute("select pg_database_size(current_database()) / 1e9")
                (size,) = cursor.fetchone()
            print(f"{rows:,} generations, made, rolled up and sealed in {took:,.0f} s; {size:.1f} GB", flush=True)
            found = list[tuple[str, float, Took]]()
            for name, limit, measured in measure():
                found.append((name, limit, measured))
                print(
                    f"{name:55} {measured.whole:9,.1f} ms, of {limit:,.0f}; "
                    f"{measured.statements} statements of {measured.database:,.1f}",
                    flush=True,
                )
            pages = sorted((measured.whole, name) for name, limit, measured in found if limit == PAGE)
            late = [name for whole, name in pages if whole > PAGE]
            print(
                f"{len(pages) - len(late)} of {len(pages)} pages within {PAGE:.0f} ms among {rows:,} generations; "
                f"the slowest: {pages[-1][1]}, {pages[-1][0]:,.1f} ms"
            )
    return 1 if any(measured.whole > limit for _, limit, measured in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
