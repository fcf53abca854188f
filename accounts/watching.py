"""For migrations: has changes of a table noted for the gateways' snapshots."""

from django.db import migrations


def watch(table: str, column: str) -> migrations.RunSQL:
    """A trigger that notes every changed row of `table` by its `column`."""
    return migrations.RunSQL(
        f"create trigger note_change after insert or update or delete on {table} "
        f"for each row execute function accounts_note_change('{column}');",
        f"drop trigger note_change on {table};",
    )
