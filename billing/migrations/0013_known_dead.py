"""Expand: holds of hard budgets end when their process is known to be dead, and attempts with their generation.

The functions keep their signatures, so that the release before works with them.
"""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0012_watch_limits")]
    operations = [
        migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
        for name in ("admission.sql", "settlement.sql")
    ]
