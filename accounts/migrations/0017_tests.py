"""Step: add. The audit log may say that a credential was tried."""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("accounts", "0016_payload_days")]
    operations = [
        migrations.AlterField(
            model_name="auditevent",
            name="action",
            field=models.CharField(
                choices=[
                    ("add", "Added"),
                    ("change", "Changed"),
                    ("delete", "Deleted"),
                    ("reveal", "Secret shown"),
                    ("export", "File left"),
                    ("test", "Tried out"),
                ],
                max_length=8,
            ),
        ),
        migrations.RunSQL((SQL / "log.sql").read_text(), migrations.RunSQL.noop),
    ]
