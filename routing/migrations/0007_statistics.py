"""Statistics of offers: sketches, rollups, and the windows that gateways read."""

from pathlib import Path

from django.db import migrations, models

SKETCHES = Path(__file__).resolve().parent.parent / "sql" / "sketches.sql"

GRANTS = """
revoke insert, update, delete on routing_offerrollup, routing_offerstatistics from meterline_console;
grant insert, update, delete on routing_offerrollup, routing_offerstatistics to meterline_app;
-- Made anew every few seconds.
alter table routing_offerrollup set (autovacuum_vacuum_scale_factor = 0.05);
alter table routing_offerstatistics set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
"""


class Migration(migrations.Migration):

    dependencies = [
        ('routing', '0006_ejections'),
        ('billing', '0007_usage_rollups'),
    ]

    operations = [
        migrations.RunSQL(SKETCHES.read_text(), migrations.RunSQL.noop),
        migrations.CreateModel(
            name='OfferRollup',
            fields=[
                ('model', models.TextField()),
                ('provider', models.TextField()),
                ('upstream_model', models.TextField()),
                ('size_class', models.SmallIntegerField()),
                ('attempts', models.BigIntegerField()),
                ('completed', models.BigIntegerField()),
                ('cancelled', models.BigIntegerField()),
                ('offer_faults', models.BigIntegerField()),
                ('client_faults', models.BigIntegerField()),
                ('faults', models.JSONField()),
                ('ttft', models.JSONField()),
                ('token_time', models.JSONField()),
                ('prompt_tokens', models.BigIntegerField()),
                ('completion_tokens', models.BigIntegerField()),
                ('cached_tokens', models.BigIntegerField()),
                ('output_tokens', models.BigIntegerField()),
                ('output_ms', models.BigIntegerField()),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('span', models.CharField(choices=[('minute', 'A minute'), ('hour', 'An hour'), ('day', 'A day')], max_length=8)),
                ('starts_at', models.DateTimeField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('span', 'starts_at', 'model', 'provider', 'upstream_model', 'size_class'), name='one_offer_rollup_a_time')],
            },
        ),
        migrations.CreateModel(
            name='OfferStatistics',
            fields=[
                ('model', models.TextField()),
                ('provider', models.TextField()),
                ('upstream_model', models.TextField()),
                ('size_class', models.SmallIntegerField()),
                ('attempts', models.BigIntegerField()),
                ('completed', models.BigIntegerField()),
                ('cancelled', models.BigIntegerField()),
                ('offer_faults', models.BigIntegerField()),
                ('client_faults', models.BigIntegerField()),
                ('faults', models.JSONField()),
                ('ttft', models.JSONField()),
                ('token_time', models.JSONField()),
                ('prompt_tokens', models.BigIntegerField()),
                ('completion_tokens', models.BigIntegerField()),
                ('cached_tokens', models.BigIntegerField()),
                ('output_tokens', models.BigIntegerField()),
                ('output_ms', models.BigIntegerField()),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('window', models.CharField(choices=[('5m', '5 minutes'), ('1h', 'an hour'), ('1d', 'a day'), ('30d', '30 days')], max_length=4)),
                ('published_at', models.DateTimeField()),
                ('ttft_p50', models.FloatField(null=True)),
                ('token_p50', models.FloatField(null=True)),
            ],
            options={
                'verbose_name_plural': 'offer statistics',
                'constraints': [models.UniqueConstraint(fields=('window', 'model', 'provider', 'upstream_model', 'size_class'), name='one_statistic_a_window')],
            },
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
