"""Step: add. Percents of a budget at which somebody is told, whom, what was reached, and what became of each message;
and what a hard budget had left when a request was admitted.
"""

import uuid
from pathlib import Path

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

import billing.alerts

SQL = Path(__file__).resolve().parent.parent / "sql"

# The worker notes and tells; the console says whom.
GRANTS = """
revoke insert, update, delete on billing_crossing, billing_delivery from meterline_console;
grant insert, update, delete on billing_crossing, billing_delivery to meterline_app;
"""
CHANNELS = [("mail", "Mail"), ("webhook", "Webhook")]


class Migration(migrations.Migration):
    dependencies = [("accounts", "0009_on_leave_kept"), ("billing", "0023_time_zones")]
    operations = [
        migrations.AddField(
            model_name="budget",
            name="alerts",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.PositiveSmallIntegerField(
                    validators=[
                        django.core.validators.MinValueValidator(1),
                        django.core.validators.MaxValueValidator(1000),
                    ]
                ),
                blank=True,
                db_default=[80, 100],
                default=billing.alerts.near_and_all,
                help_text="Percents of the amount, 1 to 1000: when so much is spent the organization's recipients are told.",
                size=10,
            ),
        ),
        migrations.CreateModel(
            name="Crossing",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                ("organization_slug", models.TextField()),
                ("project", models.UUIDField(null=True)),
                ("project_slug", models.TextField(blank=True)),
                ("key", models.UUIDField(null=True)),
                ("key_name", models.TextField(blank=True)),
                ("subject", models.UUIDField()),
                ("period", models.CharField(max_length=8)),
                ("period_start", models.DateTimeField()),
                ("percent", models.PositiveSmallIntegerField()),
                ("amount", models.DecimalField(decimal_places=12, max_digits=24)),
                ("hard", models.BooleanField()),
                ("used", models.DecimalField(decimal_places=12, max_digits=24)),
                ("crossed_at", models.DateTimeField()),
            ],
            options={
                "indexes": [models.Index(fields=["crossed_at"], name="crossing_by_age")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("subject", "period", "period_start", "percent", "amount"), name="one_crossing_a_period"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("message", models.UUIDField(unique=True)),
                ("organization", models.UUIDField()),
                ("recipient", models.UUIDField()),
                ("channel", models.CharField(choices=CHANNELS, max_length=8)),
                ("address", models.TextField()),
                (
                    "status",
                    models.CharField(
                        choices=[("waiting", "Waiting"), ("sent", "Sent"), ("given_up", "Given up")], max_length=8
                    ),
                ),
                ("tries", models.PositiveSmallIntegerField()),
                ("next_try_at", models.DateTimeField()),
                ("last_error", models.TextField(blank=True)),
                ("created_at", models.DateTimeField()),
                ("sent_at", models.DateTimeField(null=True)),
                (
                    "crossing",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="deliveries", to="billing.crossing"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "deliveries",
                "indexes": [
                    models.Index(condition=models.Q(("status", "waiting")), fields=["next_try_at"], name="delivery_due"),
                    models.Index(fields=["created_at"], name="delivery_by_age"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Recipient",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("channel", models.CharField(choices=CHANNELS, max_length=8)),
                (
                    "address",
                    models.CharField(help_text="Of mail, or of a webhook: https://host/path.", max_length=300),
                ),
                ("sealed", models.TextField(blank=True, editable=False)),
                ("active", models.BooleanField(db_default=True, default=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="recipients",
                        to="accounts.organization",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("organization", "channel", "address"), name="recipient_address")
                ],
            },
        ),
        migrations.RunSQL((SQL / "admission.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
