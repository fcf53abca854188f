"""A rest may be for one organization alone, and ends when what rests is changed."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

RESTS = Path(__file__).resolve().parent.parent / "sql" / "rests.sql"

# Which changes, by table.
CHANGED = {
    "routing_credential": "old.sealed <> new.sealed or new.active and not old.active",
    "routing_provider": (
        "old.base_url <> new.base_url or old.auth_style <> new.auth_style or old.protocol <> new.protocol"
        " or new.active and not old.active"
    ),
    "routing_offer": "old.upstream_model <> new.upstream_model or new.active and not old.active",
}


def ending(table: str) -> migrations.RunSQL:
    """A trigger that ends the rests of a row of `table`."""
    return migrations.RunSQL(
        f"create trigger end_rests after update on {table} for each row when ({CHANGED[table]})"
        " execute function routing_end_rests();",
        f"drop trigger end_rests on {table};",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_dialects"),
        ("routing", "0008_replays"),
    ]

    operations = [
        migrations.AddField(
            model_name="ejection",
            name="organization",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="accounts.organization",
            ),
        ),
        migrations.RunSQL(RESTS.read_text(), migrations.RunSQL.noop),
        *(ending(table) for table in CHANGED),
    ]
