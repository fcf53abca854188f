"""Counters are found without a walk through what their writes have left behind, no plan depends on statistics, leases
outlive steps of the clock, and the console cannot change a rate that is in force.
"""

from pathlib import Path

import django.db.models.expressions
from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0014_settled_within_the_budget")]
    operations = [
        migrations.AddField("counter", "writes", models.BigIntegerField(default=0, db_default=0)),
        migrations.AddField(
            "counter",
            "version",
            models.GeneratedField(
                expression=django.db.models.expressions.CombinedExpression(
                    models.F("writes"), "/", models.Value(32)
                ),
                output_field=models.BigIntegerField(),
                db_persist=True,
            ),
        ),
        migrations.AddConstraint(
            "counter",
            models.UniqueConstraint(
                fields=["subject", "measure", "period", "period_start", "version"], name="one_new_counter_a_window"
            ),
        ),
        migrations.RemoveConstraint("counter", "one_counter_a_window"),
        migrations.RunSQL(
            "alter table billing_counter drop constraint billing_counter_pkey, add primary key (id, version)",
            migrations.RunSQL.noop,
        ),
        *(
            migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
            for name in ("counters.sql", "admission.sql", "settlement.sql", "partitions.sql", "rates.sql")
        ),
    ]
