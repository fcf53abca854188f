"""Step: add. What the auditor finds and remembers."""

from django.db import migrations, models

GRANTS = """
revoke insert, update, delete on billing_auditfinding, billing_auditstate from meterline_console;
grant insert, update, delete on billing_auditfinding, billing_auditstate to meterline_app;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0018_sealed_ledger")]
    operations = [
        migrations.CreateModel(
            name="AuditFinding",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("generation", "A generation and its postings"),
                            ("block", "A block and the ledger"),
                            ("touched", "Rows that only ever grow were changed"),
                            ("balances", "Balances and blocks"),
                            ("closed", "A closed month and what it was"),
                            ("rollup", "A rollup and what it is made of"),
                            ("sealing", "Entries are not sealed"),
                        ],
                        max_length=16,
                    ),
                ),
                ("place", models.TextField()),
                ("expected", models.TextField()),
                ("found", models.TextField()),
                ("first_seen", models.DateTimeField()),
                ("gone_at", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("gone_at", None)), fields=("kind", "place"), name="one_open_finding_a_place"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditState",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("ended_at", models.DateTimeField()),
                ("state", models.JSONField()),
            ],
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
