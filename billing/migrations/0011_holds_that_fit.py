"""Holds look at each offer's own price, and at what a limit of tokens can ever let through. Items of the code from
before, which knows one price for all offers, are still taken.
"""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0010_fewer_steps")]
    operations = [migrations.RunSQL((SQL / "admission.sql").read_text(), migrations.RunSQL.noop)]
