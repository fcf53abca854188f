"""Step: add. Whether a budget is of the contract, which an organization's owners may not change: all of before are."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0036_judgements_and_ends_of_balances"), ("accounts", "0012_access")]
    operations = [
        # The view and what it reads, in the order in which a hold locks them: else each would wait for the other.
        migrations.RunSQL("lock table billing_rule in access exclusive mode", migrations.RunSQL.noop),
        migrations.AddField(
            "budget",
            "contract",
            models.BooleanField(
                db_default=True,
                default=True,
                help_text="On: agreed with the organization, whose owners may neither change nor exceed it.",
            ),
        ),
    ]
