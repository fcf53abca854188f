"""Step: add. Prices that are held until a second person has looked at them."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0021_terms'),
    ]

    operations = [
        migrations.CreateModel(
            name='PriceProposal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('effective_from', models.DateTimeField(editable=False)),
                ('rates', models.JSONField(editable=False)),
                ('reason', models.TextField(editable=False)),
                ('note', models.CharField(blank=True, editable=False, max_length=200)),
                ('proposed_by', models.TextField(editable=False)),
                ('proposed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('decision', models.CharField(blank=True, choices=[('approved', 'Approved: the prices apply'), ('declined', 'Declined: nothing changes')], max_length=8)),
                ('decided_by', models.TextField(blank=True, editable=False)),
                ('decided_at', models.DateTimeField(editable=False, null=True)),
                ('tariff', models.ForeignKey(editable=False, on_delete=django.db.models.deletion.CASCADE, related_name='proposals', to='billing.tariff')),
            ],
        ),
    ]
