"""The function that notes changes, which runs as its owner, finds nothing in a caller's temporary schema."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("accounts", "0007_login_attempts")]
    operations = [migrations.RunSQL((SQL / "changes.sql").read_text(), migrations.RunSQL.noop)]
