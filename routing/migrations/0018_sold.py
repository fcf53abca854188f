"""Step: add. What is on offer, as members of organizations may read it in the console."""

from pathlib import Path

from django.db import migrations

SOLD = Path(__file__).resolve().parent.parent / "sql" / "sold.sql"
GRANTS = """
revoke execute on function routing_sold(uuid, text[]) from public;
grant execute on function routing_sold(uuid, text[]) to meterline_console;
"""


class Migration(migrations.Migration):
    dependencies = [("routing", "0017_about_models"), ("billing", "0038_apart"), ("accounts", "0014_sign_in")]
    operations = [
        migrations.RunSQL(SOLD.read_text(), "drop function routing_sold(uuid, text[]);"),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
