"""Makes the view of rules and the functions that hold and settle anew, from the files, where they are older."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_app")]
    operations = [
        migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
        for name in ("subjects.sql", "admission.sql", "settlement.sql")
    ]
