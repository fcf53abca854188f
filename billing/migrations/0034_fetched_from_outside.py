"""Step: add. What is fetched from outside: price lists, looked at before they count, and providers' bills."""

import uuid

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

# A worker makes a price list that is due and says what it would change; it keeps a bill's pages, says how far it is, and
# writes down what came of the comparison. Old ones of both are forgotten.
GRANTS = """
grant insert, update, delete on billing_pricelist to meterline_app;
grant update, delete on billing_billfetch to meterline_app;
grant insert, delete on billing_billpage to meterline_app;
revoke insert, update on billing_billpage from meterline_console;
grant insert on billing_reconciliation, billing_reconciliationline to meterline_app;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0033_report_tags'),
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
                ('began_at', models.DateTimeField(null=True)),
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
        migrations.CreateModel(
            name='BillSource',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('provider', models.CharField(max_length=64, unique=True)),
                ('form', models.CharField(choices=[('openai', 'OpenAI: usage and costs'), ('anthropic', 'Anthropic: usage and cost report')], default='openai', max_length=16)),
                ('endpoint', models.CharField(help_text='Such as https://api.openai.com/v1.', max_length=300)),
                ('sealed', models.TextField(blank=True, editable=False)),
                ('hint', models.CharField(blank=True, editable=False, max_length=8)),
            ],
        ),
        migrations.CreateModel(
            name='BillFetch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('first', models.DateField(verbose_name='from')),
                ('last', models.DateField(verbose_name='to')),
                ('asked_by', models.CharField(editable=False, max_length=150)),
                ('asked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('state', models.CharField(choices=[('waiting', 'Waiting for a worker'), ('running', 'Running'), ('stopped', 'Stopped'), ('failed', 'Failed'), ('done', 'Compared')], default='waiting', editable=False, max_length=8)),
                ('stop', models.BooleanField(default=False, editable=False)),
                ('run', models.IntegerField(default=0, editable=False)),
                ('moved_at', models.DateTimeField(editable=False, null=True)),
                ('error', models.CharField(blank=True, editable=False, max_length=300)),
                ('made', models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='billing.reconciliation')),
                ('source', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='fetches', to='billing.billsource')),
            ],
            options={
                'verbose_name_plural': 'bill fetches',
            },
        ),
        migrations.CreateModel(
            name='BillPage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('part', models.CharField(choices=[('usage', 'Usage'), ('cost', 'Cost')], max_length=8)),
                ('number', models.IntegerField()),
                ('content', models.BinaryField()),
                ('next', models.TextField(blank=True)),
                ('fetch', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pages', to='billing.billfetch')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('fetch', 'part', 'number'), name='one_page_a_number')],
            },
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
