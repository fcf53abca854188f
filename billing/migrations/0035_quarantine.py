"""Step: add. Claims of providers that were not believed are found and judged.

The index holds those generations alone, which are few. Each partition's is made beside those who write to it; a
migration that was stopped goes on where it was.
"""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

FORM = "(id desc) where suspect"
PARTITIONS = """
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'billing_usage'::regclass
       and not exists (select from pg_index x join pg_inherits on inhrelid = x.indexrelid
                        where x.indrelid = c.oid and inhparent = 'usage_suspect'::regclass)
"""


def make(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Makes the index, partition by partition."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(f"create index if not exists usage_suspect on only billing_usage {FORM}")
        cursor.execute(PARTITIONS)
        for (partition,) in cursor.fetchall():
            cursor.execute("set lock_timeout = 0")  # nobody waits behind the next two
            cursor.execute(f"drop index concurrently if exists {partition}_suspect")
            cursor.execute(f"create index concurrently {partition}_suspect on {partition} {FORM}")
            cursor.execute("set lock_timeout = '100ms'")
            cursor.execute(f"alter index usage_suspect attach partition {partition}_suspect")


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("billing", "0034_fetched_from_outside")]
    operations = [
        migrations.SeparateDatabaseAndState(
            [migrations.RunPython(make, migrations.RunPython.noop)],
            [
                migrations.AddIndex(
                    "usage",
                    models.Index(condition=models.Q(("suspect", True)), fields=["-id"], name="usage_suspect"),
                )
            ],
        ),
        migrations.CreateModel(
            name="Quarantined",
            fields=[],
            options={
                "verbose_name": "quarantined generation",
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("billing.usage",),
        ),
    ]
