"""Step 2: usage and attempts by month, the functions that write the hot tables, and who may do what with them."""

from pathlib import Path

from django.db import migrations

from accounts.watching import watch

SQL = Path(__file__).resolve().parent.parent / "sql"


def partition(table: str, *indexes: str) -> migrations.RunSQL:
    """Replaces an empty plain table by one of the same columns, partitioned by its id."""
    return migrations.RunSQL(
        f"""
        alter table {table} rename to {table}_plain;
        create table {table} (like {table}_plain including defaults) partition by range (id);
        drop table {table}_plain;
        alter table {table} add primary key (id);
        create table {table}_default partition of {table} default;
        revoke all on {table}_default from meterline_app, meterline_console;
        {" ".join(indexes)}
        """,
        migrations.RunSQL.noop,
    )


GRANTS = """
revoke insert, update, delete on billing_counter, billing_lease, billing_hold, billing_attempt, billing_usage,
    billing_ledgerentry from meterline_console;
grant insert, update, delete on billing_counter, billing_lease, billing_hold to meterline_app;
grant insert, update on billing_attempt, billing_usage to meterline_app;
grant insert on billing_ledgerentry to meterline_app;
revoke execute on function billing_make_partitions(integer), billing_seed_counter(bigint) from public;
grant execute on function billing_make_partitions(integer) to meterline_app;
grant execute on function billing_seed_counter(bigint) to meterline_console;
-- Many short updates of few rows: leave room for them in the page, and clean up early.
alter table billing_counter set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
alter table billing_hold set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_money")]
    operations = [
        partition(
            "billing_usage",
            "create index usage_by_organization on billing_usage (organization, id desc);",
            "create index usage_by_key on billing_usage (key, id desc);",
        ),
        partition("billing_attempt", "create index attempt_by_generation on billing_attempt (generation);"),
        *[
            migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
            for name in ("first_id.sql", "partitions.sql", "subjects.sql", "admission.sql", "settlement.sql")
        ],
        migrations.RunSQL("select billing_make_partitions(3);", migrations.RunSQL.noop),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
        watch("billing_tariff", "id"),
        watch("billing_tariffversion", "tariff_id"),
        watch("billing_rate", "version_id"),
    ]
