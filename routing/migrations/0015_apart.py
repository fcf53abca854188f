"""Step: tighten. Providers, their secrets and policies are nothing that members of organizations see in the console."""

from django.db import migrations

from accounts.access.policies import hold_apart
from accounts.watching import logged

TABLES = ("provider", "credential", "offer", "policy", "replay", "ejection")


class Migration(migrations.Migration):
    atomic = False  # each table is locked for itself, and for a moment
    dependencies = [("routing", "0014_embeddings"), ("accounts", "0013_log")]
    operations = [
        *(hold_apart(f"routing_{table}") for table in TABLES),
        *(logged(f"routing_{table}") for table in ("provider", "model", "offer", "policy", "choiceweight")),
        logged("routing_credential", secret="sealed"),
    ]
