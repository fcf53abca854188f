"""Step: add. Whether a bill is fetched for each key of the vendor's account."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0038_apart")]
    operations = [
        migrations.AddField("billfetch", "by_key", models.BooleanField(db_default=False, default=False, editable=False)),
    ]
