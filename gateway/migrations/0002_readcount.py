"""Step 2: how often a key read the books this minute. Unlogged: to lose it in a crash costs nobody anything."""

from django.db import migrations, models

GRANTS = """
alter table gateway_readcount set unlogged;
revoke all on gateway_readcount from meterline_console;
grant insert, update, delete on gateway_readcount to meterline_app;
"""


class Migration(migrations.Migration):
    dependencies = [("gateway", "0001_files")]
    operations = [
        migrations.CreateModel(
            name="ReadCount",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "key", "endpoint", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("key", models.UUIDField()),
                ("endpoint", models.CharField(max_length=32)),
                ("minute", models.DateTimeField()),
                ("reads", models.IntegerField()),
            ],
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
