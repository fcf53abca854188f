"""Step 1 of 1: what projects write in an hour, and a table of files that gives its space back. Old code counts nothing.

Content lies in the table's TOAST relation, which the usual settings clean once a fifth of it is dead.
"""

from django.db import migrations, models

SQL = """
alter table gateway_fileswritten set unlogged;
revoke all on gateway_fileswritten from meterline_console;
grant select, insert, update, delete on gateway_fileswritten to meterline_app;
alter table gateway_storedfile set (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.01, toast.autovacuum_vacuum_threshold = 1000,
    toast.autovacuum_vacuum_cost_delay = 0
);
"""


class Migration(migrations.Migration):
    dependencies = [("gateway", "0002_readcount")]
    operations = [
        migrations.CreateModel(
            name="FilesWritten",
            fields=[
                ("project", models.UUIDField(primary_key=True, serialize=False)),
                ("hour", models.DateTimeField()),
                ("bytes", models.BigIntegerField()),
            ],
        ),
        migrations.RunSQL(SQL, migrations.RunSQL.noop),
    ]
