"""Step: add. An organization may pay other prices than the tariffs'."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

from accounts.watching import watch

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0020_closed_months"), ("accounts", "0003_alive_and_changes")]
    operations = [
        migrations.CreateModel(
            name="Terms",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("effective_from", models.DateTimeField()),
                (
                    "markup",
                    models.DecimalField(
                        "mark-up",
                        blank=True,
                        decimal_places=2,
                        help_text="Per cent on the provider's cost; each rate is rounded to six decimals.",
                        max_digits=6,
                        null=True,
                    ),
                ),
                ("note", models.CharField(blank=True, max_length=200)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.organization"
                    ),
                ),
                (
                    "price_list",
                    models.ForeignKey(
                        blank=True,
                        help_text="The tariff whose charges it pays; the cost stays the offer's. Neither: as the tariff says.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="billing.tariff",
                    ),
                ),
                (
                    "tariff",
                    models.ForeignKey(
                        blank=True,
                        help_text="Of the offers that this is for. Empty: of all.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="billing.tariff",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "terms",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("organization", "tariff", "effective_from"), name="terms_date", nulls_distinct=False
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("markup__isnull", True), ("price_list__isnull", True), _connector="OR"),
                        name="markup_or_price_list",
                        violation_error_message="Either a mark-up or a price list.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("markup__isnull", True), ("markup__gte", -100), _connector="OR"),
                        name="markup_not_below_nothing",
                    ),
                ],
            },
        ),
        watch("billing_terms", "id"),
        migrations.RunSQL((SQL / "terms.sql").read_text(), "drop function billing_keep_terms() cascade"),
    ]
