"""Step: tighten. The console's role sees the rows of organizations whose members it speaks for, and of no others.

A console of before says nobody's name, and sees nothing until it is started anew; the API is not concerned.
"""

from pathlib import Path

from django.db import migrations

from accounts.access.policies import hold_apart

SQL = Path(__file__).resolve().parent.parent / "sql"
GRANTS = """
revoke execute on function accounts_enter(bigint, text) from public;
grant execute on function accounts_enter(bigint, text) to meterline_console;
revoke select on accounts_alive_key from meterline_console;
"""
OF_PROJECT = "project_id in (select p.id from accounts_project p where p.organization_id = {})"


class Migration(migrations.Migration):
    atomic = False  # each table is locked for itself, and for a moment
    dependencies = [("accounts", "0011_offices")]
    operations = [
        migrations.RunSQL((SQL / "access.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
        hold_apart("accounts_organization", "id = {}"),
        hold_apart("accounts_project", "organization_id = {}", writes="organization_id = {}"),
        hold_apart("accounts_membership", "organization_id = {}", writes="organization_id = {}"),
        hold_apart("accounts_apikey", OF_PROJECT, writes=OF_PROJECT),
    ]
