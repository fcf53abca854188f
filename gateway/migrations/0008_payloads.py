"""Step: add. Prompts and answers, sealed, of the projects that have them kept. Old code knows none of it."""

from pathlib import Path

from django.db import migrations, models

from accounts.access.policies import hold_apart

SQL = Path(__file__).resolve().parent.parent / "sql"
RIGHTS = """
-- Sealed content does not compress.
alter table gateway_payload alter column prompt set storage external, alter column answer set storage external;
-- What is inside nobody reads but through gateway_reveal_payload, which logs it.
revoke all on gateway_payload, gateway_payloadday from meterline_app, meterline_console;
grant select (id, organization, project, key, created_at, prompt_bytes, answer_bytes), insert
    on gateway_payload to meterline_app;
grant select, insert, update on gateway_payloadday to meterline_app;
grant select (id, organization, project, key, created_at, prompt_bytes, answer_bytes), delete
    on gateway_payload to meterline_console;
revoke execute on function gateway_reveal_payload(uuid, text, integer),
    gateway_purge_payloads(integer, integer) from public;
grant execute on function gateway_reveal_payload(uuid, text, integer) to meterline_console;
grant execute on function gateway_purge_payloads(integer, integer) to meterline_app;
"""


class Migration(migrations.Migration):
    dependencies = [("gateway", "0007_cuts"), ("accounts", "0016_payload_days")]
    operations = [
        migrations.CreateModel(
            name="Payload",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                ("project", models.UUIDField()),
                ("key", models.UUIDField()),
                ("created_at", models.DateTimeField()),
                ("prompt_bytes", models.BigIntegerField("prompt", help_text="As it was sent, in bytes.")),
                ("answer_bytes", models.BigIntegerField("answer", help_text="As it went out, in bytes.")),
                ("prompt", models.BinaryField()),
                ("answer", models.BinaryField()),
            ],
            options={
                "verbose_name": "kept payload",
                "indexes": [
                    models.Index(fields=["project", "created_at"], name="payloads_of_a_project"),
                    models.Index(fields=["organization", "-id"], name="payloads_by_organization"),
                ],
            },
        ),
        migrations.CreateModel(
            name="PayloadDay",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "organization", "day", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("organization", models.UUIDField()),
                ("day", models.DateField()),
                ("bytes", models.BigIntegerField()),
            ],
        ),
        migrations.RunSQL((SQL / "payloads.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
        hold_apart("gateway_payload", "organization = {}", writes="organization = {}"),
    ]
