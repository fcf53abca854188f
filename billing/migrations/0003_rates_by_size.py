"""Step 3: from which size of prompt on a rate holds. A default of the database, so that the code from before still adds
rates.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_partitions_and_functions")]
    operations = [
        migrations.AddField(
            "rate",
            "above",
            models.PositiveIntegerField(
                "prompts above",
                default=0,
                db_default=0,
                help_text="Tokens of the whole prompt, exclusive. 0: of any size.",
            ),
        ),
        migrations.AddConstraint(
            "rate",
            models.UniqueConstraint(fields=["version", "item", "above"], name="one_rate_an_item_and_size"),
        ),
        migrations.RemoveConstraint("rate", "one_rate_an_item"),
    ]
