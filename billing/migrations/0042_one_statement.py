"""Step: add. Usage rows and their closing transactions are written in one statement."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0041_timings")]
    operations = [
        migrations.RunSQL((SQL / "settlement.sql").read_text(), migrations.RunSQL.noop),
        # Of the functions alone, which have their own now (billing_postings).
        migrations.RunSQL("drop function if exists billing_costs(billing_usage)", migrations.RunSQL.noop),
    ]
