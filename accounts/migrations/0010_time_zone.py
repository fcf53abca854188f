"""Step: add. The time zone that an organization's budgets go by; a default of the database, for code from before."""

from django.db import migrations, models

import accounts.models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0009_on_leave_kept")]
    operations = [
        migrations.AddField(
            "organization",
            "time_zone",
            models.CharField(
                max_length=64,
                default="UTC",
                db_default="UTC",
                validators=[accounts.models.check_time_zone],
                help_text="Days, weeks and months of its budgets begin by it, as in Europe/Berlin. The books are in UTC.",
            ),
        ),
    ]
