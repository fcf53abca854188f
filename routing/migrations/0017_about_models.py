"""Step: add. Who made a model, and what it is good for."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("routing", "0016_billed_as")]
    operations = [
        migrations.AddField(
            "model",
            "author",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Who made it, as people call them. Empty: the first half of the slug.",
                max_length=100,
            ),
        ),
        migrations.AddField(
            "model",
            "description",
            models.TextField(
                blank=True,
                db_default="",
                default="",
                help_text="What it is good for, to who chooses a model.",
                max_length=4000,
            ),
        ),
    ]
