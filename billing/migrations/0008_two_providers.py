from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    """The ledger of a generation that two providers answered: each is owed its own share."""

    dependencies = [
        ("billing", "0007_usage_rollups"),
    ]

    operations = [
        migrations.RunSQL((SQL / "settlement.sql").read_text(), migrations.RunSQL.noop),
    ]
