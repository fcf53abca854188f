"""Changed limits reach the gateways' snapshots."""

from django.db import migrations

from accounts.watching import watch


class Migration(migrations.Migration):
    dependencies = [("billing", "0011_holds_that_fit"), ("accounts", "0003_alive_and_changes")]
    operations = [watch("billing_limit", "subject")]
