"""Step 3: which keys are alive, as a view; and a note of every changed row that the gateways keep in memory."""

from pathlib import Path

from django.db import migrations

from accounts.watching import watch

SQL = Path(__file__).resolve().parent.parent / "sql"
WATCHED = {"accounts_organization": "id", "accounts_project": "id", "accounts_user": "id", "accounts_apikey": "id"}


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_tenancy")]
    operations = [
        migrations.RunSQL((SQL / "alive.sql").read_text(), "drop view accounts_alive_key;"),
        migrations.RunSQL((SQL / "changes.sql").read_text(), "drop function accounts_note_change();"),
        *[watch(table, column) for table, column in WATCHED.items()],
        # Nobody writes the notes but the triggers; the app prunes old ones. People are none of the API's business.
        migrations.RunSQL(
            """
            revoke insert, update, delete on accounts_change from meterline_console;
            grant delete on accounts_change to meterline_app;
            revoke select on accounts_user from meterline_app;
            grant select (id, is_active) on accounts_user to meterline_app;
            """,
            migrations.RunSQL.noop,
        ),
    ]
