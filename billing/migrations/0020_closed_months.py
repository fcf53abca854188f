"""Step: add. Months are closed, and what is settled later of them goes to the first open one, with a note."""

from pathlib import Path

import django.db.models.functions.datetime
from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"

# A month is closed and never opened: the console adds, and nobody changes.
GRANTS = """
revoke insert, update, delete on billing_closedsum from meterline_console;
revoke update, delete on billing_closedmonth from meterline_console;
revoke execute on function billing_sum_closed(integer) from public;
grant execute on function billing_sum_closed(integer) to meterline_app;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0019_audit")]
    operations = [
        migrations.CreateModel(
            name="ClosedMonth",
            fields=[
                (
                    "month",
                    models.DateField(
                        help_text="Its first day. All months before it are closed as well, and nothing opens them again.",
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "closed_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False),
                ),
                ("closed_by", models.TextField(editable=False)),
                ("summed_at", models.DateTimeField(editable=False, null=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("month__day", 1)), name="a_months_first_day")
                ],
            },
        ),
        migrations.CreateModel(
            name="ClosedSum",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("month", models.DateField()),
                ("organization", models.UUIDField()),
                ("account", models.TextField()),
                ("debit", models.DecimalField(decimal_places=12, max_digits=36)),
                ("credit", models.DecimalField(decimal_places=12, max_digits=36)),
                ("debits", models.BigIntegerField()),
                ("credits", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("month", "organization", "account"), name="one_closed_sum")
                ],
            },
        ),
        migrations.RunSQL((SQL / "settlement.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL((SQL / "closing.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
