"""Step: expand. Whose the failures of an offer were; a default of the database, for code from before."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("routing", "0010_size_of_a_piece")]
    operations = [
        migrations.AddField(
            name,
            "failing",
            models.JSONField(default=dict, db_default=models.Value({}, models.JSONField())),
        )
        for name in ("offerrollup", "offerstatistics")
    ]
