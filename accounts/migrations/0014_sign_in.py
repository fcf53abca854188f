"""Step 1 of 1: second factors, passkeys, single sign-on, invitations, and who is signed in. Old code knows none of it."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from accounts.access.policies import hold_apart
from accounts.watching import logged


# The API has no business with how people sign in. A session's row here goes with the session, whoever ends that: code
# from before knows of no such row.
RIGHTS = """
revoke all on accounts_totp, accounts_recoverycode, accounts_passkey, accounts_identity, accounts_invitation,
       accounts_signedin from meterline_app;
alter table accounts_signedin add constraint accounts_signedin_session
      foreign key (session_key) references django_session on delete cascade;
"""


class Migration(migrations.Migration):

    dependencies = [
        ("accounts", "0013_log"),
        ("sessions", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name='Passkey',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('credential_id', models.BinaryField(max_length=1023, unique=True)),
                ('credential', models.BinaryField(max_length=4096)),
                ('sign_count', models.BigIntegerField(default=0)),
                ('name', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('last_used_at', models.DateTimeField(null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='passkeys', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='SignedIn',
            fields=[
                ('session_key', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('address', models.CharField(max_length=45)),
                ('device', models.CharField(max_length=200)),
                ('begun_at', models.DateTimeField()),
                ('last_seen_at', models.DateTimeField()),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='signed_in', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Totp',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('sealed', models.TextField(editable=False)),
                ('last_step', models.BigIntegerField(default=0)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='totp', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Identity',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('issuer', models.CharField(max_length=255)),
                ('subject', models.CharField(max_length=255)),
                ('granted', models.JSONField(default=dict)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('last_used_at', models.DateTimeField(null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='identities', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('issuer', 'subject'), name='identity_once')],
            },
        ),
        migrations.CreateModel(
            name='Invitation',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('email', models.EmailField(max_length=254)),
                ('role', models.CharField(choices=[('owner', 'Owner'), ('developer', 'Developer'), ('auditor', 'Auditor')], max_length=16)),
                ('digest', models.BinaryField(max_length=32, unique=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('mailed', models.BooleanField(default=False)),
                ('expires_at', models.DateTimeField()),
                ('accepted_at', models.DateTimeField(null=True)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('accepted_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('invited_by', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='accounts.organization')),
            ],
            options={
                'indexes': [models.Index(fields=['organization', '-created_at'], name='invitation_by_organization')],
            },
        ),
        migrations.CreateModel(
            name='RecoveryCode',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.BinaryField(max_length=32)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='recovery_codes', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('user', 'digest'), name='recovery_code_once')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
        hold_apart("accounts_invitation", "organization_id = {}", writes="organization_id = {}"),
        logged("accounts_totp", secret="sealed", ignored="last_step"),
        logged("accounts_passkey", secret="credential credential_id", ignored="sign_count last_used_at"),
        logged("accounts_recoverycode", secret="digest"),
        logged("accounts_identity", ignored="last_used_at"),
        logged("accounts_invitation", "organization_id", secret="digest"),
    ]
