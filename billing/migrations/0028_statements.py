"""Step: add. Statements and credit notes: numbered, held to the ledger's sums, and never changed."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"

GRANTS = "revoke update, delete, truncate on billing_statement from meterline_console;"


class Migration(migrations.Migration):
    dependencies = [("billing", "0027_repricing_and_reconciliation")]
    operations = [
        migrations.CreateModel(
            name="Statement",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("issuer", models.TextField()),
                ("year", models.IntegerField(default=0)),
                ("number", models.IntegerField(default=0)),
                (
                    "kind",
                    models.CharField(choices=[("statement", "Statement"), ("credit", "Credit note")], max_length=9),
                ),
                ("organization", models.UUIDField()),
                ("slug", models.TextField()),
                ("name", models.TextField()),
                ("month", models.DateField()),
                ("currency", models.CharField(default="USD", max_length=3)),
                ("total", models.DecimalField(decimal_places=12, max_digits=36)),
                ("lines", models.JSONField(default=list)),
                ("reason", models.TextField(blank=True)),
                ("issued_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("issued_by", models.TextField()),
                (
                    "refers_to",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="credits",
                        to="billing.statement",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("issuer", "year", "number"), name="one_document_a_number"),
                    models.UniqueConstraint(
                        condition=models.Q(("kind", "statement")),
                        fields=("organization", "month"),
                        name="one_statement_a_month",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind", "statement"), ("refers_to", None)),
                            models.Q(("kind", "credit"), ("refers_to__isnull", False)),
                            _connector="OR",
                        ),
                        name="credit_refers_to_a_statement",
                    ),
                ],
            },
        ),
        migrations.RunSQL((SQL / "statements.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
