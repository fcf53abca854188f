"""Step: expand. What becomes of an answer whose client leaves; a default of the database, for code from before."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0005_unknown_params")]
    operations = [
        migrations.AddField(
            "apikey",
            "on_leave",
            models.CharField(
                max_length=8,
                choices=[
                    ("stop", "Stop: leave the provider at once, and estimate"),
                    ("drain", "Drain: read the provider on for its usage, for a while"),
                    ("finish", "Finish: read the provider to its end"),
                ],
                default="drain",
                db_default="drain",
                help_text="What becomes of an answer whose client leaves before its end. "
                "Either way the tenant pays for it.",
            ),
        ),
    ]
