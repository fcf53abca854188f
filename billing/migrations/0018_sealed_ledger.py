"""Step: add. Blocks that seal the ledger, and its balances; the worker's next runs seal what is there."""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"

# Both are written by `billing_seal` alone, which runs as its owner.
GRANTS = """
revoke insert, update, delete on billing_ledgerblock, billing_accountday from meterline_console;
revoke execute on function billing_seal(integer, integer, integer) from public;
grant execute on function billing_seal(integer, integer, integer) to meterline_app;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0017_kept_answers")]
    operations = [
        migrations.CreateModel(
            name="LedgerBlock",
            fields=[
                ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ("last_id", models.BigIntegerField()),
                ("entries", models.IntegerField()),
                ("amount", models.DecimalField(decimal_places=12, max_digits=30)),
                ("previous", models.TextField(blank=True)),
                ("digest", models.TextField()),
                ("sealed_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="AccountDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("day", models.DateField()),
                ("of_day", models.DateField()),
                ("organization", models.UUIDField()),
                ("account", models.TextField()),
                ("debit", models.DecimalField(decimal_places=12, max_digits=36)),
                ("credit", models.DecimalField(decimal_places=12, max_digits=36)),
                ("debits", models.BigIntegerField()),
                ("credits", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("organization", "account", "day", "of_day"), name="one_account_day"
                    )
                ],
            },
        ),
        migrations.AddField("ledgerentry", "late_of", models.DateField(null=True)),
        migrations.RunSQL((SQL / "sealing.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
