"""Whether a project's unknown parameters are sent on under a hard budget. A default of the database, for older code."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0004_dialects")]
    operations = [
        migrations.AddField(
            "project",
            "sends_unknown_params",
            models.BooleanField(
                default=False,
                db_default=False,
                help_text="On: a parameter that nobody knows is sent on under a hard budget as well. "
                "Off: there it is left out and named, since it might cost what nobody held.",
            ),
        ),
    ]
