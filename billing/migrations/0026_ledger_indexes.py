"""Step: add. The ledger's lists by tenant and date; its balances by day.

Each index is made beside those who write; a migration that was stopped goes on where it was.
"""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

FORMS = {
    "ledger_by_date": "billing_ledgerentry (created_at, id)",
    "ledger_by_organization": "billing_ledgerentry (organization, created_at, id)",
    "account_days_by_day": "billing_accountday (day)",
}


def make(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Makes them, one by one; one that was left half made is made anew."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("show lock_timeout")
        (patience,) = cursor.fetchone()
        cursor.execute("set lock_timeout = 0")  # nobody waits behind what follows
        for name, form in FORMS.items():
            cursor.execute(f"drop index concurrently if exists {name}")
            cursor.execute(f"create index concurrently {name} on {form}")
        cursor.execute("select set_config('lock_timeout', %s, false)", [patience])


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("billing", "0025_spend")]
    operations = [
        migrations.SeparateDatabaseAndState(
            [migrations.RunPython(make, migrations.RunPython.noop)],
            [
                migrations.AddIndex(
                    "ledgerentry", models.Index(fields=["created_at", "id"], name="ledger_by_date")
                ),
                migrations.AddIndex(
                    "ledgerentry",
                    models.Index(fields=["organization", "created_at", "id"], name="ledger_by_organization"),
                ),
                migrations.AddIndex("accountday", models.Index(fields=["day"], name="account_days_by_day")),
            ],
        )
    ]
