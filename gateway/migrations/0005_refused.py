"""Step: add. Requests that were refused before anything was held for them: the gateway notes them, nobody edits them."""

from django.db import migrations, models

RIGHTS = """
grant insert, update, delete on gateway_refused, gateway_refusedcount to meterline_app;
revoke insert, update, delete on gateway_refused, gateway_refusedcount from meterline_console;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('gateway', '0004_least_rights'),
    ]

    operations = [
        migrations.CreateModel(
            name='Refused',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(verbose_name='time')),
                ('organization', models.UUIDField(null=True)),
                ('project', models.UUIDField(null=True)),
                ('key', models.UUIDField(null=True)),
                ('organization_slug', models.TextField(blank=True)),
                ('project_slug', models.TextField(blank=True)),
                ('key_name', models.TextField(blank=True)),
                ('status', models.SmallIntegerField()),
                ('code', models.TextField(blank=True, verbose_name='reason')),
                ('message', models.TextField(blank=True)),
                ('method', models.TextField(blank=True)),
                ('path', models.TextField(blank=True)),
                ('model', models.TextField(blank=True)),
                ('address', models.TextField(blank=True)),
            ],
            options={
                'verbose_name': 'refused request',
                'indexes': [models.Index(fields=['organization', 'id'], name='refused_of_an_organization'), models.Index(fields=['key', 'id'], name='refused_of_a_key')],
            },
        ),
        migrations.CreateModel(
            name='RefusedCount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('minute', models.DateTimeField()),
                ('organization', models.UUIDField(null=True)),
                ('project', models.UUIDField(null=True)),
                ('key', models.UUIDField(null=True)),
                ('organization_slug', models.TextField(blank=True)),
                ('project_slug', models.TextField(blank=True)),
                ('key_name', models.TextField(blank=True)),
                ('status', models.SmallIntegerField()),
                ('code', models.TextField(blank=True, verbose_name='reason')),
                ('requests', models.BigIntegerField()),
            ],
            options={
                'verbose_name': 'refused requests of a minute',
                'verbose_name_plural': 'refused requests by minute',
                'indexes': [models.Index(fields=['organization', 'minute'], name='refused_minutes'), models.Index(fields=['key', 'minute'], name='refused_minutes_of_a_key')],
                'constraints': [models.UniqueConstraint(fields=('minute', 'key', 'status', 'code'), name='refused_once_a_minute', nulls_distinct=False)],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
