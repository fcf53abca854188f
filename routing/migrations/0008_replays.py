"""Replays that are asked for in the console and done by a worker."""

from django.db import migrations, models

# A worker says how far it is, and forgets old ones.
GRANTS = "grant update, delete on routing_replay to meterline_app;"


class Migration(migrations.Migration):
    dependencies = [("routing", "0007_statistics")]

    operations = [
        migrations.CreateModel(
            name="Replay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("asked_by", models.CharField(max_length=150)),
                ("subject", models.CharField(max_length=300)),
                ("policy", models.JSONField()),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("organization", models.UUIDField(null=True)),
                ("project", models.UUIDField(null=True)),
                ("model", models.CharField(blank=True, max_length=200)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting for a worker"),
                            ("running", "Running"),
                            ("done", "Done"),
                            ("stopped", "Stopped"),
                            ("failed", "Failed"),
                        ],
                        default="waiting",
                        max_length=8,
                    ),
                ),
                ("stop", models.BooleanField(default=False)),
                ("total", models.BigIntegerField(default=0)),
                ("done", models.BigIntegerField(default=0)),
                ("result", models.JSONField(null=True)),
            ],
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
