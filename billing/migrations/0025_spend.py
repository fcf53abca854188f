"""Step: add. What each key spent by day; the worker's next run makes it of all usage that is there."""

from django.db import migrations, models

SPANS = [("minute", "A minute"), ("hour", "An hour"), ("day", "A day")]
GRANTS = """
revoke insert, update, delete on billing_spendrollup from meterline_console;
grant insert, update, delete on billing_spendrollup to meterline_app;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0024_budget_alerts")]
    operations = [
        migrations.CreateModel(
            name="SpendRollup",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("span", models.CharField(choices=SPANS, max_length=8)),
                ("starts_at", models.DateTimeField()),
                ("organization", models.UUIDField()),
                ("project", models.UUIDField()),
                ("key", models.UUIDField()),
                ("model", models.TextField()),
                ("provider", models.TextField()),
                ("requests", models.BigIntegerField()),
                ("prompt_tokens", models.BigIntegerField()),
                ("completion_tokens", models.BigIntegerField()),
                ("charge", models.DecimalField(decimal_places=12, max_digits=30)),
                ("provider_cost", models.DecimalField(decimal_places=12, max_digits=30)),
                ("unpriced", models.BigIntegerField()),
                ("uncosted", models.BigIntegerField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["organization", "span", "starts_at"], name="spend_by_organization")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("span", "starts_at", "organization", "project", "key", "model", "provider"),
                        name="one_spend_rollup_a_time",
                    )
                ],
            },
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
