"""Step: add. Open requests can be cut off from the console, and an organization's people see their own."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).resolve().parent.parent / "sql" / "cuts.sql").read_text()
# One statement, so that no hold goes unseen by anybody between two.
SEEN = (
    "alter policy sees on billing_hold"
    " using ((select accounts_sees_all()) or organization = any ((select accounts_seen())::uuid[]))"
)
UNSEEN = "alter policy sees on billing_hold using ((select accounts_sees_all()))"


class Migration(migrations.Migration):
    atomic = False  # the table is locked for itself, and for a moment
    dependencies = [("gateway", "0006_apart"), ("billing", "0038_apart"), ("accounts", "0014_sign_in")]
    operations = [
        migrations.RunSQL(SQL, "drop function if exists gateway_cut(uuid);"),
        migrations.RunSQL(SEEN, UNSEEN),
    ]
