"""Step: add. Budgets of a week, and days, weeks and months by the organization's clock."""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0022_price_proposals"), ("accounts", "0010_time_zone")]
    operations = [
        migrations.AlterField(
            "budget",
            "period",
            models.CharField(
                max_length=8,
                choices=[("day", "A day"), ("week", "A week"), ("month", "A month"), ("total", "In total")],
            ),
        ),
        migrations.AddField(
            "budget", "time_zone", models.CharField(max_length=64, default="UTC", db_default="UTC", editable=False)
        ),
        *(
            migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
            for name in ("zones.sql", "admission.sql", "settlement.sql")
        ),
    ]
