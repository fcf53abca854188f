"""Answers that are kept for idempotency keys, and what each organization has of them."""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"

GRANTS = """
-- Sealed content does not compress.
alter table billing_keptanswer alter column content set storage external;
grant insert, update, delete on billing_keptanswer, billing_keptshare to meterline_app;
-- What is inside is none of the console's business.
revoke all on billing_keptanswer, billing_keptshare from meterline_console;
grant select (id, organization, key, generation, state, created_at) on billing_keptanswer to meterline_console;
grant select on billing_keptshare to meterline_console;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0016_usage_by_name")]
    operations = [
        migrations.CreateModel(
            name="KeptAnswer",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("fingerprint", models.UUIDField()),
                ("organization", models.UUIDField()),
                ("key", models.UUIDField()),
                ("generation", models.UUIDField()),
                ("lease", models.UUIDField()),
                (
                    "state",
                    models.CharField(
                        choices=[("running", "Running"), ("done", "Kept"), ("lost", "Not kept: too long")],
                        max_length=8,
                    ),
                ),
                ("content", models.BinaryField(null=True)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["created_at"], name="answer_by_age"),
                    models.Index(
                        condition=models.Q(("state", "running")), fields=["lease"], name="answer_by_lease"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="KeptShare",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "organization", "hour", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("organization", models.UUIDField()),
                ("hour", models.DateTimeField()),
                ("bytes", models.BigIntegerField()),
            ],
        ),
        *(
            migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
            for name in ("settlement.sql", "answers.sql")
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
