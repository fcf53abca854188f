"""Step 4: which application called. NULL for rows and holds from before, and from code that does not know it yet."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_rates_by_size")]
    operations = [migrations.AddField("usage", "app", models.TextField(null=True, blank=True))]
