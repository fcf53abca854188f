"""Uploaded files: the table, the function that fills it, and who may do what with it."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"

GRANTS = """
-- Sealed content does not compress. Kept out of line and as it is, a piece of it is read without the rest.
alter table gateway_storedfile alter column content set storage external;
grant insert, delete on gateway_storedfile to meterline_app;
-- The console lists and deletes; what is inside is none of its business.
revoke all on gateway_storedfile from meterline_console;
grant select (id, project_id, key, filename, purpose, media_type, bytes, created_at, expires_at), delete
    on gateway_storedfile to meterline_console;
revoke execute on function gateway_store_file(
    uuid, uuid, uuid, text, text, text, bigint, bytea, bigint, bigint, bigint) from public;
grant execute on function gateway_store_file(
    uuid, uuid, uuid, text, text, text, bigint, bytea, bigint, bigint, bigint) to meterline_app;
"""


class Migration(migrations.Migration):
    initial = True
    dependencies = [("accounts", "0003_alive_and_changes")]
    operations = [
        migrations.CreateModel(
            name="StoredFile",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("key", models.UUIDField()),
                ("filename", models.CharField(max_length=255)),
                ("purpose", models.CharField(max_length=32)),
                ("media_type", models.CharField(max_length=127)),
                ("bytes", models.PositiveBigIntegerField(help_text="Of the content as it was uploaded.")),
                ("content", models.BinaryField()),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(null=True)),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="files",
                        to="accounts.project",
                    ),
                ),
            ],
            options={
                "verbose_name": "file",
                "indexes": [
                    models.Index(fields=["project", "id"], name="files_of_a_project"),
                    models.Index(fields=["expires_at"], name="files_by_their_end"),
                ],
            },
        ),
        migrations.RunSQL(
            (SQL / "files.sql").read_text(),
            "drop function gateway_store_file(uuid, uuid, uuid, text, text, text, bigint, bytea, bigint, bigint, bigint);",
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
