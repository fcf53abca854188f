"""Generations are looked for by names and states that none has, without looking through all of them.

The index keeps a small filter for every 64 pages and is only written when such a range is full, by the autovacuum.
Each partition's is made beside those who write to it; a migration that was stopped goes on where it was.
"""

import django.contrib.postgres.indexes
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

FIELDS = {"model": 64, "provider": 64, "app": 64, "status": 16, "basis": 16}  # kinds a range may well have
OPCLASSES = [f"text_bloom_ops(n_distinct_per_range={most})" for most in FIELDS.values()]
COLUMNS = ", ".join(f"{name} {opclass}" for name, opclass in zip(FIELDS, OPCLASSES, strict=True))
FORM = f"using brin ({COLUMNS}) with (pages_per_range = 64, autosummarize = on)"
PARTITIONS = """
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'billing_usage'::regclass
       and not exists (select from pg_index x join pg_inherits on inhrelid = x.indexrelid
                        where x.indrelid = c.oid and inhparent = 'usage_by_name'::regclass)
"""


def make(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Makes the index, partition by partition."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(f"create index if not exists usage_by_name on only billing_usage {FORM}")
        cursor.execute(PARTITIONS)
        for (partition,) in cursor.fetchall():
            cursor.execute("set lock_timeout = 0")  # nobody waits behind the next two
            cursor.execute(f"drop index concurrently if exists {partition}_by_name")
            cursor.execute(f"create index concurrently {partition}_by_name on {partition} {FORM}")
            cursor.execute("set lock_timeout = '100ms'")
            cursor.execute(f"alter index usage_by_name attach partition {partition}_by_name")


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("billing", "0015_counters_found_at_once")]
    operations = [
        migrations.SeparateDatabaseAndState(
            [migrations.RunPython(make, migrations.RunPython.noop)],
            [
                migrations.AddIndex(
                    "usage",
                    django.contrib.postgres.indexes.BrinIndex(
                        fields=list(FIELDS),
                        name="usage_by_name",
                        opclasses=OPCLASSES,
                        pages_per_range=64,
                        autosummarize=True,
                    ),
                )
            ],
        )
    ]
