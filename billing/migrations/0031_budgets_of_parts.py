"""Step: add. Budgets of a model, of an end user, and of each end user. Their counters' subjects are hashes."""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0030_credit")]
    operations = [
        # The view and what it reads, in the order in which a hold locks them: else each would wait for the other.
        migrations.RunSQL("lock table billing_rule in access exclusive mode", migrations.RunSQL.noop),
        migrations.AddField(
            "budget",
            "model",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="A slug: counts its calls alone. Empty: all.",
                max_length=200,
            ),
        ),
        migrations.AddField(
            "budget",
            "end_user",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="As requests name it in user or safety_identifier: counts its calls alone. "
                "*: each end user has the amount to itself, and those without a name have it together. Empty: all.",
                max_length=512,
            ),
        ),
        migrations.RemoveConstraint("budget", "one_budget_a_period"),
        migrations.AddConstraint(
            "budget",
            models.UniqueConstraint(fields=["subject", "period", "model", "end_user"], name="one_budget_a_part"),
        ),
        migrations.AddField("counter", "owner", models.UUIDField(null=True)),
        migrations.AddField("counter", "model", models.CharField(db_default="", default="", max_length=200)),
        migrations.AddField("counter", "end_user", models.CharField(max_length=512, null=True)),
        migrations.AddIndex(
            "counter",
            models.Index(
                condition=models.Q(("end_user__isnull", False)),
                fields=["owner", "period", "period_start"],
                name="counter_of_end_users",
            ),
        ),
        migrations.AddField("crossing", "model", models.CharField(db_default="", default="", max_length=200)),
        migrations.AddField("crossing", "end_user", models.CharField(max_length=512, null=True)),
        *(
            migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
            for name in ("scopes.sql", "admission.sql", "settlement.sql")
        ),
    ]
