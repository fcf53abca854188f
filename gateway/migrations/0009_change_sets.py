"""Step: add. Changes that are drafted in the console, approved, and applied together."""

import django.db.models.deletion
from django.db import migrations, models

from accounts.access.policies import hold_apart
from accounts.watching import logged

STATES = [
    ("draft", "Draft"),
    ("approved", "Approved"),
    ("applied", "Applied"),
    ("rolled", "Rolled back"),
    ("given_up", "Given up"),
]


class Migration(migrations.Migration):
    dependencies = [("gateway", "0008_payloads"), ("accounts", "0013_log")]
    operations = [
        migrations.CreateModel(
            name="ChangeSet",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("title", models.CharField(max_length=200)),
                (
                    "second_person",
                    models.BooleanField(
                        default=False,
                        help_text="Somebody else than who drafted it has to approve it. The setting SECOND_PERSON has it so for kinds.",
                        verbose_name="needs a second person",
                    ),
                ),
                ("state", models.CharField(choices=STATES, default="draft", max_length=8)),
                ("drafted_by", models.CharField(max_length=150)),
                ("drafted_at", models.DateTimeField(auto_now_add=True)),
                ("approved_by", models.CharField(blank=True, max_length=150)),
                ("approved_at", models.DateTimeField(null=True)),
                ("applied_by", models.CharField(blank=True, max_length=150)),
                ("applied_at", models.DateTimeField(null=True)),
                (
                    "takes_back",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="taken_back_by",
                        to="gateway.changeset",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["drafted_by", "state"], name="drafts_of_somebody")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "given_up"), _negated=True),
                        fields=("takes_back",),
                        name="taken_back_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Change",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("price", "Price"), ("budget", "Budget"), ("limit", "Limit"), ("policy", "Policy")],
                        max_length=8,
                    ),
                ),
                (
                    "verb",
                    models.CharField(
                        choices=[("add", "Add"), ("change", "Change"), ("delete", "Delete")], max_length=8
                    ),
                ),
                ("row", models.CharField(blank=True, max_length=64)),
                ("subject", models.CharField(max_length=300)),
                ("before", models.JSONField(null=True)),
                ("after", models.JSONField(null=True)),
                (
                    "set",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="changes",
                        to="gateway.changeset",
                    ),
                ),
            ],
        ),
        hold_apart("gateway_changeset"),
        hold_apart("gateway_change"),
        logged("gateway_changeset"),
        logged("gateway_change"),
    ]
