"""Step: add. Exports on a schedule, and what became of each period; how many months of usage and attempts are kept."""

import billing.schedules
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import uuid
from pathlib import Path

from django.db import migrations, models


SQL = Path(__file__).resolve().parent.parent / "sql"

# The console says what is to be stored, and that it be tried again at once; the worker what was.
GRANTS = """
revoke insert, update, delete on billing_storedexport from meterline_console;
grant update (next_try_at) on billing_storedexport to meterline_console;
grant insert, update on billing_storedexport to meterline_app;
revoke insert, delete on billing_retention from meterline_console;
revoke insert, update, delete on billing_droppedmonth from meterline_console;
revoke execute on function billing_lock_month(text, date), billing_drop_month(text, date) from public;
grant execute on function billing_lock_month(text, date), billing_drop_month(text, date) to meterline_app;
"""
SEED = """insert into billing_retention ("table") values ('usage'), ('attempt');"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0010_time_zone"),
        ("billing", "0031_budgets_of_parts"),
    ]

    operations = [
        migrations.CreateModel(
            name="ExportSchedule",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        help_text="Of the schedule, and of the folder that its files are in.",
                        max_length=64,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?\\Z",
                                "Lower-case letters, digits and inner dashes, 64 at most.",
                            )
                        ],
                    ),
                ),
                (
                    "layout",
                    models.CharField(
                        choices=[
                            ("generations", "Generations"),
                            ("focus-1.2", "FOCUS 1.2"),
                            ("focus-1.4", "FOCUS 1.4"),
                        ],
                        default="generations",
                        max_length=16,
                    ),
                ),
                (
                    "format",
                    models.CharField(
                        choices=[("csv", "CSV"), ("xlsx", "XLSX"), ("parquet", "Parquet")], default="csv", max_length=8
                    ),
                ),
                (
                    "every",
                    models.CharField(choices=[("day", "Daily"), ("month", "Monthly")], default="day", max_length=8),
                ),
                (
                    "first",
                    models.DateField(
                        default=billing.schedules.this_month,
                        help_text="The first day (UTC) that is written.",
                        verbose_name="from",
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[("folder", "A folder below EXPORT_DIR"), ("bucket", "A bucket (S3)")],
                        default="bucket",
                        max_length=8,
                        verbose_name="to",
                    ),
                ),
                (
                    "endpoint",
                    models.CharField(
                        blank=True,
                        help_text="Of a bucket: https://s3.us-east-1.amazonaws.com, or what serves it.",
                        max_length=300,
                    ),
                ),
                (
                    "region",
                    models.CharField(
                        default="us-east-1",
                        help_text="Of a bucket: that its signatures are for.",
                        max_length=32,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[a-z0-9]+(-[a-z0-9]+)*\\Z", "Write it like us-east-1."
                            )
                        ],
                    ),
                ),
                (
                    "bucket",
                    models.CharField(
                        blank=True,
                        max_length=63,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\\Z",
                                "Lower-case letters, digits, dots and dashes, 3 to 63.",
                            )
                        ],
                    ),
                ),
                (
                    "path_style",
                    models.BooleanField(
                        default=False, help_text="The bucket stands in the path, not in front of the host's name."
                    ),
                ),
                (
                    "prefix",
                    models.CharField(
                        blank=True,
                        help_text="Folders before that of the name, slashes between them.",
                        max_length=200,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A(?!\\.+(?:/|\\Z))[A-Za-z0-9._-]+(?:/(?!\\.+(?:/|\\Z))[A-Za-z0-9._-]+)*\\Z",
                                "Letters, digits, dots, dashes and underscores, slashes between.",
                            )
                        ],
                    ),
                ),
                ("sealed", models.TextField(blank=True, editable=False)),
                ("hint", models.CharField(blank=True, editable=False, max_length=8)),
                ("active", models.BooleanField(db_default=True, default=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "organization",
                    models.ForeignKey(
                        blank=True,
                        help_text="Of this one alone, without what providers take. Empty: of all, with everything.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.organization",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="StoredExport",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("start", models.DateField()),
                (
                    "state",
                    models.CharField(
                        choices=[("waiting", "Waiting"), ("stored", "Stored")], default="waiting", max_length=8
                    ),
                ),
                ("tries", models.PositiveIntegerField(default=0)),
                ("next_try_at", models.DateTimeField()),
                ("last_error", models.TextField(blank=True)),
                ("upload", models.TextField(blank=True)),
                ("name", models.TextField(blank=True)),
                ("ledger", models.BigIntegerField(null=True)),
                ("rows", models.BigIntegerField(null=True)),
                ("late", models.BigIntegerField(null=True)),
                ("bytes", models.BigIntegerField(null=True)),
                ("sha256", models.CharField(blank=True, max_length=64)),
                ("stored_at", models.DateTimeField(null=True)),
                (
                    "schedule",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="periods", to="billing.exportschedule"
                    ),
                ),
            ],
            options={
                "verbose_name": "scheduled export",
                "constraints": [models.UniqueConstraint(fields=("schedule", "start"), name="one_export_a_period")],
            },
        ),
        migrations.CreateModel(
            name="DroppedMonth",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("table", models.CharField(choices=[("usage", "Generations"), ("attempt", "Attempts")], max_length=8)),
                ("month", models.DateField()),
                ("rows", models.BigIntegerField()),
                ("charge", models.DecimalField(decimal_places=12, max_digits=36, null=True)),
                ("provider_cost", models.DecimalField(decimal_places=12, max_digits=36, null=True)),
                ("dropped_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("table", "month"), name="one_dropped_month")],
            },
        ),
        migrations.CreateModel(
            name="Retention",
            fields=[
                (
                    "table",
                    models.CharField(
                        choices=[("usage", "Generations"), ("attempt", "Attempts")],
                        editable=False,
                        max_length=8,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "months",
                    models.PositiveSmallIntegerField(
                        blank=True,
                        help_text="3 at least, beside the running one; older ones that are closed are dropped. Empty: all stay.",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(3)],
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "retention",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("months__isnull", True), ("months__gte", 3), _connector="OR"),
                        name="kept_long_enough",
                    )
                ],
            },
        ),
        migrations.RunSQL(SEED, migrations.RunSQL.noop),
        *[
            migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
            for name in ("retention.sql", "settlement.sql")
        ],
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
