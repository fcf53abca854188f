"""Step: add. What one end user, or one value of a tag, spent is found at once.

The index is made beside those who write; a migration that was stopped goes on where it was.
"""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def make(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Makes it; one that was left half made is made anew."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("show lock_timeout")
        (patience,) = cursor.fetchone()
        cursor.execute("set lock_timeout = 0")  # nobody waits behind what follows
        cursor.execute("drop index concurrently if exists spend_by_value")
        cursor.execute(
            "create index concurrently spend_by_value on billing_tagrollup (organization, tag, value, span, starts_at)"
        )
        cursor.execute("select set_config('lock_timeout', %s, false)", [patience])


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("billing", "0039_bills_by_key")]
    operations = [
        migrations.SeparateDatabaseAndState(
            [migrations.RunPython(make, migrations.RunPython.noop)],
            [
                migrations.AddIndex(
                    "tagrollup",
                    models.Index(fields=["organization", "tag", "value", "span", "starts_at"], name="spend_by_value"),
                )
            ],
        )
    ]
