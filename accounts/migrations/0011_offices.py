"""Step: add. The roles of the installation, as groups; of an organization's roles, finance is none."""

from django.db import migrations, models

OFFICES = ("operator", "finance", "auditor")


def make(apps, schema_editor):
    """Makes the groups that there are not."""
    groups = apps.get_model("auth", "Group").objects
    for name in OFFICES:
        groups.get_or_create(name=name)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0010_time_zone"), ("auth", "0012_alter_user_first_name_max_length")]
    operations = [
        migrations.RunPython(make, migrations.RunPython.noop),
        # No page gave roles until now; a member who looked after the money may look on.
        migrations.RunSQL(
            "update accounts_membership set role = 'auditor' where role = 'finance';", migrations.RunSQL.noop
        ),
        migrations.AlterField(
            "membership",
            "role",
            models.CharField(
                choices=[("owner", "Owner"), ("developer", "Developer"), ("auditor", "Auditor")], max_length=16
            ),
        ),
    ]
