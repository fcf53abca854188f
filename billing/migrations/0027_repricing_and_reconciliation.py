"""Step: add. Usage is priced anew and the difference posted; bills of providers are compared with the books."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


SQL = Path(__file__).resolve().parent.parent / "sql"

# The console asks and tells to stop; the worker counts and applies. What was reconciled stays.
GRANTS = """
revoke insert, update, delete on billing_repricingsum from meterline_console;
revoke update, delete on billing_repricing from meterline_console;
grant update (stop) on billing_repricing to meterline_console;
grant insert, update, delete on billing_repricing, billing_repricingsum to meterline_app;
revoke update, delete on billing_reconciliation, billing_reconciliationline from meterline_console;
revoke execute on function billing_apply_repricing(bigint, text) from public;
grant execute on function billing_apply_repricing(bigint, text) to meterline_app;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0026_ledger_indexes"),
    ]

    operations = [
        migrations.CreateModel(
            name="Reconciliation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("provider", models.CharField(max_length=200)),
                ("form", models.CharField(max_length=16)),
                ("files", models.TextField()),
                ("first", models.DateField()),
                ("last", models.DateField()),
                ("made_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("made_by", models.CharField(max_length=150)),
                ("billed", models.DecimalField(decimal_places=12, max_digits=30)),
                ("booked", models.DecimalField(decimal_places=12, max_digits=30)),
                ("missing", models.DecimalField(decimal_places=12, max_digits=30)),
                ("tokens", models.DecimalField(decimal_places=12, max_digits=30)),
                ("price", models.DecimalField(decimal_places=12, max_digits=30)),
            ],
        ),
        migrations.AlterField(
            model_name="auditfinding",
            name="kind",
            field=models.CharField(
                choices=[
                    ("generation", "A generation and its postings"),
                    ("block", "A block and the ledger"),
                    ("touched", "Rows that only ever grow were changed"),
                    ("balances", "Balances and blocks"),
                    ("closed", "A closed month and what it was"),
                    ("rollup", "A rollup and what it is made of"),
                    ("repricing", "Re-pricing and its postings"),
                    ("sealing", "Entries are not sealed"),
                ],
                max_length=16,
            ),
        ),
        migrations.CreateModel(
            name="Repricing",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("first", models.DateField(verbose_name="from")),
                ("until", models.DateField(help_text="The first day that is not in it any more.")),
                ("asked_by", models.CharField(editable=False, max_length=150)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("counting", "Being counted"), ("counted", "Counted"), ("applied", "Applied")],
                        default="counting",
                        editable=False,
                        max_length=8,
                    ),
                ),
                ("stop", models.BooleanField(default=False, editable=False)),
                ("total", models.BigIntegerField(default=0, editable=False)),
                ("done", models.BigIntegerField(default=0, editable=False)),
                ("after", models.UUIDField(editable=False, null=True)),
                ("digest", models.CharField(blank=True, editable=False, max_length=64)),
                ("looks", models.PositiveIntegerField(default=1, editable=False)),
                ("applied_at", models.DateTimeField(editable=False, null=True)),
                ("applied_by", models.CharField(blank=True, editable=False, max_length=150)),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.tariffversion"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="RepricingSum",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                ("day", models.DateField()),
                ("rows", models.BigIntegerField(default=0)),
                ("left", models.BigIntegerField(default=0)),
                ("charge_before", models.DecimalField(decimal_places=12, default=0, max_digits=30)),
                ("charge_after", models.DecimalField(decimal_places=12, default=0, max_digits=30)),
                ("charge_prior", models.DecimalField(decimal_places=12, default=0, max_digits=30)),
                ("cost_before", models.DecimalField(decimal_places=12, default=0, max_digits=30)),
                ("cost_after", models.DecimalField(decimal_places=12, default=0, max_digits=30)),
                ("cost_prior", models.DecimalField(decimal_places=12, default=0, max_digits=30)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="sums", to="billing.repricing"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ReconciliationLine",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("day", models.DateField()),
                ("model", models.TextField()),
                ("credential", models.TextField(blank=True)),
                ("billed_calls", models.BigIntegerField(null=True)),
                ("booked_calls", models.BigIntegerField()),
                ("billed_tokens", models.BigIntegerField()),
                ("booked_tokens", models.BigIntegerField()),
                ("billed", models.DecimalField(decimal_places=12, max_digits=30)),
                ("booked", models.DecimalField(decimal_places=12, max_digits=30)),
                ("missing", models.DecimalField(decimal_places=12, max_digits=30)),
                ("tokens", models.DecimalField(decimal_places=12, max_digits=30)),
                ("price", models.DecimalField(decimal_places=12, max_digits=30)),
                (
                    "reconciliation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="lines", to="billing.reconciliation"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("reconciliation", "day", "model", "credential"), name="one_reconciliation_line"
                    )
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="repricing",
            constraint=models.CheckConstraint(
                condition=models.Q(("first__lt", models.F("until"))), name="repricing_has_days"
            ),
        ),
        migrations.AddIndex(
            model_name="repricingsum",
            index=models.Index(fields=["organization", "day"], name="repricing_sum_by_day"),
        ),
        migrations.AddConstraint(
            model_name="repricingsum",
            constraint=models.UniqueConstraint(fields=("run", "organization", "day"), name="one_repricing_sum_a_day"),
        ),
        migrations.RunSQL((SQL / "repricing.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
