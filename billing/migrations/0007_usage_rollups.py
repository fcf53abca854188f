"""Usage by hour and day, and the notes that settlement leaves for it."""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"

GRANTS = """
revoke insert, update, delete on billing_usagerollup, billing_latehour, billing_mark from meterline_console;
grant insert, update, delete on billing_usagerollup, billing_latehour, billing_mark to meterline_app;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0006_attempts_and_plans'),
    ]

    operations = [
        migrations.CreateModel(
            name='LateHour',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('hour', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Mark',
            fields=[
                ('name', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('until', models.DateTimeField()),
                ('ran_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='UsageRollup',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('span', models.CharField(choices=[('minute', 'A minute'), ('hour', 'An hour'), ('day', 'A day')], max_length=8)),
                ('starts_at', models.DateTimeField()),
                ('organization', models.UUIDField()),
                ('model', models.TextField()),
                ('provider', models.TextField()),
                ('requests', models.BigIntegerField()),
                ('completed', models.BigIntegerField()),
                ('prompt_tokens', models.BigIntegerField()),
                ('completion_tokens', models.BigIntegerField()),
                ('cached_tokens', models.BigIntegerField()),
                ('cache_write_5m_tokens', models.BigIntegerField()),
                ('cache_write_1h_tokens', models.BigIntegerField()),
                ('audio_input_tokens', models.BigIntegerField()),
                ('image_input_tokens', models.BigIntegerField()),
                ('reasoning_tokens', models.BigIntegerField()),
                ('audio_output_tokens', models.BigIntegerField()),
                ('web_searches', models.BigIntegerField()),
                ('charge', models.DecimalField(decimal_places=12, max_digits=30)),
                ('unpriced', models.BigIntegerField()),
                ('ttft_count', models.BigIntegerField()),
                ('ttft_ms', models.BigIntegerField()),
                ('output_tokens', models.BigIntegerField()),
                ('output_ms', models.BigIntegerField()),
            ],
            options={
                'indexes': [models.Index(fields=['organization', 'span', 'starts_at'], name='usage_rollup_by_organization')],
                'constraints': [models.UniqueConstraint(fields=('span', 'starts_at', 'organization', 'model', 'provider'), name='one_usage_rollup_a_time')],
            },
        ),
        *[
            migrations.RunSQL((SQL / name).read_text(), migrations.RunSQL.noop)
            for name in ("moment.sql", "settlement.sql")
        ],
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
