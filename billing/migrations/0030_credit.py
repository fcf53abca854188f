"""Step: add. Prepaid balances: credits, what is left of each, and what expired; a hold is taken of them as of a budget."""

from decimal import Decimal
from pathlib import Path

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

import billing.credit.credits

SQL = Path(__file__).resolve().parent.parent / "sql"

# Only the functions write, for the console who grants and for the worker what expires. The console says when to tell.
GRANTS = """
revoke insert, update, delete on billing_credit, billing_lot, billing_prepaid from meterline_console;
grant update (alerts) on billing_prepaid to meterline_console;
revoke execute on function billing_grant_credit(uuid, text, numeric, timestamptz, text, text, text, boolean),
                           billing_expire_credit(uuid) from public;
grant execute on function billing_grant_credit(uuid, text, numeric, timestamptz, text, text, text, boolean)
   to meterline_console;
grant execute on function billing_expire_credit(uuid) to meterline_app;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0010_time_zone"),
        ("billing", "0029_tariffs"),
    ]

    operations = [
        migrations.CreateModel(
            name="Credit",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("top_up", "Top-up"),
                            ("bonus", "Bonus"),
                            ("gift", "Gift"),
                            ("referral", "Referral"),
                            ("compensation", "Compensation"),
                            ("adjustment", "Adjustment"),
                            ("expired", "Expired"),
                        ],
                        max_length=12,
                    ),
                ),
                ("amount", models.DecimalField(decimal_places=12, max_digits=24)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("reference", models.CharField(max_length=200)),
                ("note", models.CharField(blank=True, max_length=200)),
                ("granted_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField()),
                ("used_before", models.DecimalField(decimal_places=12, max_digits=24)),
                (
                    "of",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.credit"
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.organization"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Prepaid",
            fields=[
                (
                    "organization",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="accounts.organization",
                    ),
                ),
                ("since", models.DateTimeField()),
                ("granted", models.DecimalField(decimal_places=12, max_digits=24)),
                ("granted_at", models.DateTimeField()),
                ("used", models.DecimalField(decimal_places=12, max_digits=24)),
                (
                    "alerts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.DecimalField(
                            decimal_places=2,
                            max_digits=12,
                            validators=[django.core.validators.MinValueValidator(0)],
                        ),
                        blank=True,
                        db_default=[Decimal("3")],
                        default=billing.credit.credits.low,
                        help_text="Dollars: when less is left the organization's recipients are told, once after each credit; 0: when nothing is left.",
                        size=10,
                    ),
                ),
            ],
            options={
                "verbose_name": "balance",
            },
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
                    ("prepaid", "A balance and its credits"),
                    ("sealing", "Entries are not sealed"),
                ],
                max_length=16,
            ),
        ),
        migrations.CreateModel(
            name="Lot",
            fields=[
                (
                    "credit",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="billing.credit",
                    ),
                ),
                ("organization", models.UUIDField()),
                ("remaining", models.DecimalField(decimal_places=12, max_digits=24)),
            ],
            options={
                "indexes": [models.Index(fields=["organization"], name="lot_by_organization")],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("remaining__gte", 0)), name="remaining_not_negative")
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="credit",
            constraint=models.UniqueConstraint(fields=("organization", "reference"), name="one_credit_a_reference"),
        ),
        migrations.AddConstraint(
            model_name="credit",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ("adjustment", "expired")), ("amount__gt", 0), _connector="OR"),
                name="credit_gives",
            ),
        ),
        migrations.AddConstraint(
            model_name="credit",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount", 0), _negated=True), name="credit_moves_something"
            ),
        ),
        migrations.AddConstraint(
            model_name="credit",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("expires_at", None),
                    models.Q(("amount__gt", 0), models.Q(("kind", "expired"), _negated=True)),
                    _connector="OR",
                ),
                name="what_expires_was_given",
            ),
        ),
        migrations.AddConstraint(
            model_name="credit",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "expired"), ("of__isnull", False)),
                    models.Q(models.Q(("kind", "expired"), _negated=True), ("of", None)),
                    _connector="OR",
                ),
                name="expired_is_of_a_credit",
            ),
        ),
        *(
            migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
            for name in ("credit.sql", "admission.sql", "settlement.sql")
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
