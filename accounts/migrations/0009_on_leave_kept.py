"""Only words: what is finished is kept under its Idempotency-Key."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0008_search_path")]
    operations = [
        migrations.AlterField(
            "apikey",
            "on_leave",
            models.CharField(
                max_length=8,
                choices=[
                    ("stop", "Stop: leave the provider at once, and estimate"),
                    ("drain", "Drain: read the provider on for its usage, for a while"),
                    ("finish", "Finish: read the provider to its end, and keep the answer under its Idempotency-Key"),
                ],
                default="drain",
                db_default="drain",
                help_text="What becomes of an answer whose client leaves before its end. "
                "Either way the tenant pays for it. "
                "Drained or finished, one to a request with an Idempotency-Key is picked up by sending that again.",
            ),
        ),
    ]
