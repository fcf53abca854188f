"""Makes the functions that hold and settle anew, from the files, where they are older."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0009_what_unknown_means")]
    operations = [
        migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
        for name in ("admission.sql", "settlement.sql")
    ]
