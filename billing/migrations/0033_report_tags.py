"""Step: add. What end users and values of tags spent by day; further counts of what was spent.

The worker's next run makes days from before again, of all usage that is there; processes from before write the new
counts as 0, which the same run does not leave so.
"""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

USED = ("video_input_tokens", "image_output_tokens", "images", "seconds")
SPENT = (
    *("cached_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens", "audio_input_tokens", "image_input_tokens"),
    *("reasoning_tokens", "audio_output_tokens", "web_searches", *USED),
)
GRANTS = """
revoke insert, update, delete on billing_tagrollup from meterline_console;
grant insert, update, delete on billing_tagrollup to meterline_app;
grant update (rolled_up) on billing_reporttags to meterline_app;
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0010_time_zone"), ("billing", "0032_stored_exports")]

    operations = [
        *(
            migrations.AddField(model, name, models.BigIntegerField(db_default=0, default=0))
            for model, names in (("usagerollup", USED), ("spendrollup", SPENT))
            for name in names
        ),
        migrations.CreateModel(
            name="ReportTags",
            fields=[
                (
                    "organization",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="accounts.organization",
                    ),
                ),
                (
                    "names",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=64),
                        help_text="Keys of metadata, 5 at most. The values of each are told apart on Spend and in reports, from the month before this one on.",
                        size=5,
                        verbose_name="tags",
                    ),
                ),
                ("rolled_up", models.BooleanField(db_default=False, default=False, editable=False)),
            ],
            options={
                "verbose_name": "tags of reports",
                "verbose_name_plural": "tags of reports",
            },
        ),
        migrations.CreateModel(
            name="TagRollup",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "span",
                    models.CharField(
                        choices=[("minute", "A minute"), ("hour", "An hour"), ("day", "A day")], max_length=8
                    ),
                ),
                ("starts_at", models.DateTimeField()),
                ("organization", models.UUIDField()),
                ("project", models.UUIDField()),
                ("key", models.UUIDField()),
                ("model", models.TextField()),
                ("provider", models.TextField()),
                ("requests", models.BigIntegerField()),
                ("prompt_tokens", models.BigIntegerField()),
                ("completion_tokens", models.BigIntegerField()),
                ("cached_tokens", models.BigIntegerField(db_default=0, default=0)),
                ("cache_write_5m_tokens", models.BigIntegerField(db_default=0, default=0)),
                ("cache_write_1h_tokens", models.BigIntegerField(db_default=0, default=0)),
                ("audio_input_tokens", models.BigIntegerField(db_default=0, default=0)),
                ("image_input_tokens", models.BigIntegerField(db_default=0, default=0)),
                ("reasoning_tokens", models.BigIntegerField(db_default=0, default=0)),
                ("audio_output_tokens", models.BigIntegerField(db_default=0, default=0)),
                ("web_searches", models.BigIntegerField(db_default=0, default=0)),
                ("video_input_tokens", models.BigIntegerField(db_default=0, default=0)),
                ("image_output_tokens", models.BigIntegerField(db_default=0, default=0)),
                ("images", models.BigIntegerField(db_default=0, default=0)),
                ("seconds", models.BigIntegerField(db_default=0, default=0)),
                ("charge", models.DecimalField(decimal_places=12, max_digits=30)),
                ("provider_cost", models.DecimalField(decimal_places=12, max_digits=30)),
                ("unpriced", models.BigIntegerField()),
                ("uncosted", models.BigIntegerField()),
                ("tag", models.TextField()),
                ("value", models.TextField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["organization", "tag", "span", "starts_at"], name="spend_by_tag"),
                    models.Index(fields=["span", "starts_at"], name="spend_by_tag_made_again"),
                ],
            },
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
