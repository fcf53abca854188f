"""Step: expand. A settlement may take what was held and what the budget still has, the ledger is dated as its
generation is, and usage says which class of service was served. Processes from before call `billing_settle`, which is kept.
"""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0013_known_dead")]
    operations = [
        migrations.AddField("usage", "service_tier", models.TextField(blank=True, null=True)),
        migrations.RunSQL((SQL / "settlement.sql").read_text(), migrations.RunSQL.noop),
        migrations.AlterField(
            model_name="usage",
            name="basis",
            field=models.TextField(
                choices=[
                    ("reported", "Usage reported by the provider"),
                    ("estimated", "Estimated from what was read and written"),
                    ("nothing", "Nothing was done"),
                    ("capped", "Capped at the hold and what the budget had left"),
                    ("unknown", "Unknown: nobody could count it"),
                ]
            ),
        ),
    ]
