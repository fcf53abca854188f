"""Step: add. The audit log is searched by a row's id and by a person's name.

Each index is made beside those who write; a migration that was stopped goes on where it was.
"""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

FORMS = {"events_by_row": '"row", id desc', "events_by_actor": "actor_name, id desc"}


def make(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Makes them, one by one; one that was left half made is made anew."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("show lock_timeout")
        (patience,) = cursor.fetchone()
        cursor.execute("set lock_timeout = 0")  # nobody waits behind what follows
        for name, form in FORMS.items():
            cursor.execute(f"drop index concurrently if exists {name}")
            cursor.execute(f"create index concurrently {name} on accounts_auditevent ({form})")
        cursor.execute("select set_config('lock_timeout', %s, false)", [patience])


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("accounts", "0014_sign_in")]
    operations = [
        migrations.SeparateDatabaseAndState(
            [migrations.RunPython(make, migrations.RunPython.noop)],
            [
                migrations.AddIndex("auditevent", models.Index(fields=["row", "-id"], name="events_by_row")),
                migrations.AddIndex("auditevent", models.Index(fields=["actor_name", "-id"], name="events_by_actor")),
            ],
        )
    ]
