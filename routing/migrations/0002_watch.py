"""Step 2: changes of the catalog reach the gateways' snapshots."""

from django.db import migrations

from accounts.watching import watch


class Migration(migrations.Migration):
    dependencies = [("routing", "0001_catalog"), ("accounts", "0003_alive_and_changes")]
    operations = [
        watch("routing_provider", "id"),
        watch("routing_credential", "id"),
        watch("routing_model", "id"),
        watch("routing_offer", "id"),
    ]
