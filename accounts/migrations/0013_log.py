"""Step: add. The audit log, written by triggers, and its hash chain."""

from pathlib import Path

from django.db import migrations, models

from accounts.access.policies import hold_apart
from accounts.watching import logged

SQL = Path(__file__).resolve().parent.parent / "sql"
GRANTS = """
revoke all on accounts_auditevent, accounts_auditblock from meterline_app;
revoke insert, update, delete on accounts_auditevent, accounts_auditblock from meterline_console;
grant select on accounts_auditblock to meterline_app;
revoke execute on function accounts_log(text, text, text, uuid, text),
    accounts_wrong_log_blocks(bigint, bigint), accounts_seal_log(integer, integer) from public;
grant execute on function accounts_log(text, text, text, uuid, text) to meterline_console;
grant execute on function accounts_wrong_log_blocks(bigint, bigint), accounts_seal_log(integer, integer)
    to meterline_app;
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0012_access")]
    operations = [
        migrations.CreateModel(
            name="AuditEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("actor", models.BigIntegerField(null=True)),
                ("actor_name", models.TextField()),
                ("address", models.TextField(blank=True)),
                (
                    "action",
                    models.CharField(
                        choices=[
                            ("add", "Added"),
                            ("change", "Changed"),
                            ("delete", "Deleted"),
                            ("reveal", "Secret shown"),
                            ("export", "File left"),
                        ],
                        max_length=8,
                    ),
                ),
                ("table", models.TextField()),
                ("row", models.TextField()),
                ("organization", models.UUIDField(null=True)),
                ("before", models.JSONField(null=True)),
                ("after", models.JSONField(null=True)),
                ("note", models.TextField(blank=True)),
            ],
            options={
                "verbose_name": "event",
                "verbose_name_plural": "audit log",
                "indexes": [
                    models.Index(fields=["organization", "-id"], name="events_of_an_organization"),
                    models.Index(fields=["table", "row", "-id"], name="events_of_a_row"),
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditBlock",
            fields=[
                ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ("last_id", models.BigIntegerField()),
                ("events", models.IntegerField()),
                ("previous", models.TextField(blank=True)),
                ("digest", models.TextField()),
                ("sealed_at", models.DateTimeField()),
            ],
        ),
        migrations.RunSQL((SQL / "log.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
        hold_apart("accounts_auditevent", "organization = {}"),
        logged("accounts_user", secret="password", ignored="last_login"),
        logged("accounts_user_groups"),
        logged("accounts_organization", "id"),
        logged("accounts_project", "organization_id"),
        logged("accounts_membership", "organization_id"),
        logged("accounts_apikey", "project_id", secret="digest"),
    ]
