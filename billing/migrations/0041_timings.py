"""Step: add. When a request came, under which id, and how long each dial waited to begin and for its connection.

Nothing of it is known of the rows there are: NULL, so that no row is written anew.
"""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0040_spend_by_value")]
    operations = [
        migrations.AddField("usage", "request_id", models.UUIDField(null=True)),
        migrations.AddField("usage", "queue_ms", models.IntegerField(null=True)),
        migrations.AddField("attempt", "offset_ms", models.IntegerField(null=True)),
        migrations.AddField("attempt", "connect_ms", models.IntegerField(null=True)),
        migrations.RunSQL((SQL / "settlement.sql").read_text(), migrations.RunSQL.noop),
    ]
