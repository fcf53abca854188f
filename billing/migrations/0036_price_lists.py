"""Step: add. Price lists that are fetched from an address, and looked at before they count."""

import django.db.models.functions.datetime
from django.db import migrations, models

# A worker makes one that is due, says what it would change, and forgets old ones.
GRANTS = "grant insert, update, delete on billing_pricelist to meterline_app;"


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0032_stored_exports'),
    ]

    operations = [
        migrations.CreateModel(
            name='PriceList',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('url', models.CharField(max_length=300)),
                ('vendors', models.TextField(blank=True)),
                ('asked_by', models.CharField(blank=True, max_length=150)),
                ('asked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('state', models.CharField(choices=[('waiting', 'Waiting for a worker'), ('fetching', 'Being fetched'), ('fetched', 'To be looked at'), ('same', 'No difference'), ('failed', 'Failed: nothing was changed'), ('imported', 'Imported'), ('declined', 'Declined: nothing was changed')], default='waiting', max_length=8)),
                ('error', models.CharField(blank=True, max_length=300)),
                ('fetched_at', models.DateTimeField(null=True)),
                ('sha256', models.CharField(blank=True, max_length=64)),
                ('bytes', models.BigIntegerField(null=True)),
                ('content', models.BinaryField(null=True)),
                ('lines', models.JSONField(default=list)),
                ('held', models.IntegerField(default=0)),
                ('decided_by', models.CharField(blank=True, max_length=150)),
                ('decided_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
