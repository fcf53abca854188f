"""Step 1 of 1: how often passwords were tried. Old code does not know the table."""

from django.db import migrations, models

GRANTS = """
revoke all on accounts_loginattempts from meterline_app;
grant select, insert, update, delete on accounts_loginattempts to meterline_console;
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0006_on_leave")]
    operations = [
        migrations.CreateModel(
            name="LoginAttempts",
            fields=[
                ("place", models.CharField(max_length=96, primary_key=True, serialize=False)),
                ("begun", models.DateTimeField()),
                ("failures", models.IntegerField()),
                ("succeeded_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
