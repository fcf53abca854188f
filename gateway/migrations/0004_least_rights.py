"""The API reads nothing of the console's framework, and the console's log is only added to."""

from django.db import migrations

RIGHTS = """
revoke all on django_session, django_admin_log, django_content_type, auth_permission, auth_group,
    auth_group_permissions, accounts_user_groups, accounts_user_user_permissions, accounts_membership
    from meterline_app;
revoke update, delete on django_admin_log from meterline_console;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("gateway", "0003_files_written"),
        ("accounts", "0008_search_path"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("sessions", "0001_initial"),
    ]
    operations = [migrations.RunSQL(RIGHTS, migrations.RunSQL.noop)]
