"""Step: add. What was said to claims of providers, and what that came to; balances that end."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"
# Only the functions write, for the console.
GRANTS = """
revoke insert, update, delete on billing_judgement from meterline_console;
revoke execute on function billing_judge_claim(uuid, text, boolean, jsonb, numeric, numeric) from public;
grant execute on function billing_judge_claim(uuid, text, boolean, jsonb, numeric, numeric) to meterline_console;
revoke execute on function billing_end_balance(uuid) from public;
grant execute on function billing_end_balance(uuid) to meterline_console;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0035_quarantine")]
    operations = [
        migrations.AddField(
            model_name="repricing",
            name="generation",
            field=models.UUIDField(editable=False, null=True),
        ),
        migrations.CreateModel(
            name="Judgement",
            fields=[
                ("generation", models.UUIDField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                (
                    "decision",
                    models.CharField(
                        choices=[
                            ("accepted", "Accepted: the difference is posted"),
                            ("dismissed", "Dismissed: it stays as it was charged"),
                        ],
                        max_length=9,
                    ),
                ),
                ("claimed", models.JSONField()),
                ("charge_change", models.DecimalField(decimal_places=12, max_digits=24)),
                ("cost_change", models.DecimalField(decimal_places=12, max_digits=24)),
                ("decided_by", models.CharField(max_length=150)),
                ("decided_at", models.DateTimeField()),
                (
                    "run",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="billing.repricing",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="prepaid",
            name="carried",
            field=models.DecimalField(db_default=0, decimal_places=12, default=0, max_digits=24),
        ),
        *(
            migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
            for name in ("quarantine.sql", "credit.sql")
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
