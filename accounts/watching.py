"""For migrations: has changes of a table noted for the gateways' snapshots."""

from django.db import migrations


def watch(table: str, column: str) -> migrations.RunSQL:
    """A trigger that notes every changed row of `table` by its `column`."""
    return migrations.RunSQL(
        f"create trigger note_change after insert or update or delete on {table} "
        f"for each row execute function accounts_note_change('{column}');",
        f"drop trigger note_change on {table};",
    )


def logged(
    table: str, organization: str = "", *, secret: str = "", ignored: str = "", on: str = "update", key: str = "id"
) -> migrations.RunSQL:
    """A trigger that writes every changed row of `table` into the audit log.

    `organization`: the column that says whose it is, or `project_id`. `secret`, `ignored`: columns, by spaces; of the
    first is told only that they changed, the others are no change. `on`: which updates count.
    """
    arguments = ", ".join(f"'{one}'" for one in (organization, secret, ignored, key))
    return migrations.RunSQL(
        f"drop trigger if exists audit on {table};"
        f"create trigger audit after insert or {on} or delete on {table} "
        f"for each row execute function accounts_audit({arguments});",
        f"drop trigger audit on {table};",
    )
