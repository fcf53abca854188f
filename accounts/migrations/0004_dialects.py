"""Step 4: whose errors, headers and limits a project's clients meet, or a key's. Defaults of the database, so that the
code from before still adds rows.
"""

from django.db import migrations, models

from accounts.models import dialect_choices


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_alive_and_changes")]
    operations = [
        migrations.AddField(
            "apikey",
            "dialect",
            models.CharField(
                max_length=32,
                choices=dialect_choices,
                default="",
                db_default="",
                blank=True,
                help_text="Empty: the project's.",
            ),
        ),
        migrations.AddField(
            "project",
            "dialect",
            models.CharField(
                max_length=32,
                choices=dialect_choices,
                default="standard",
                db_default="standard",
                help_text="Whose errors, headers and limits clients meet: a vendor's they were written for, or OpenAI's.",
            ),
        ),
        migrations.AddField(
            "project",
            "strict_params",
            models.BooleanField(
                default=False,
                db_default=False,
                help_text="On: a parameter that the model does not support, or nobody knows, is refused. "
                "Off: the first is left out and named in the answer's X-Gateway-Ignored-Params, the second is sent on.",
            ),
        ),
    ]
