"""Step: add. For how many days a project has prompts and answers kept: none has until somebody says so."""

from pathlib import Path

import django.core.validators
from django.db import migrations, models

import accounts.models

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("accounts", "0015_log_search")]
    operations = [
        # The view and what it reads, in the order in which a hold locks them: else each would wait for the other.
        migrations.RunSQL("lock table accounts_alive_key in access exclusive mode", migrations.RunSQL.noop),
        migrations.AddField(
            "project",
            "payload_days",
            models.PositiveSmallIntegerField(
                "keep payloads",
                db_default=0,
                default=0,
                help_text="Days that prompts and answers of its requests are kept, encrypted. An owner or the operator "
                "reads one by giving a reason, which the audit log has. 0: nothing is kept, and what was kept is deleted.",
                validators=[django.core.validators.MaxValueValidator(accounts.models.most_payload_days)],
            ),
        ),
        migrations.RunSQL((SQL / "log.sql").read_text(), migrations.RunSQL.noop),
    ]
