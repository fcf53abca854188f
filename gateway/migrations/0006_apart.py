"""Step: tighten. Files are seen in the console by their organization's members, its log of changes by who made them."""

from django.db import migrations

from accounts.access.policies import hold_apart

OF_PROJECT = "project_id in (select p.id from accounts_project p where p.organization_id = {})"
OWN = "user_id = (select accounts_actor())"


class Migration(migrations.Migration):
    atomic = False  # each table is locked for itself, and for a moment
    dependencies = [
        ("gateway", "0005_refused"), ("accounts", "0012_access"), ("admin", "0003_logentry_add_action_flag_choices")
    ]
    operations = [
        hold_apart("gateway_storedfile", OF_PROJECT, writes=OF_PROJECT),
        hold_apart("gateway_refused", "organization = {}"),
        hold_apart("gateway_refusedcount", "organization = {}"),
        hold_apart("django_admin_log", OWN, writes=OWN),
    ]
