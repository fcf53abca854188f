"""`python -m deploy.prepare`: what a database needs before the demo can serve. Safe to repeat.

Migrations, the demo's configuration, and an operator who can sign in to the console. An operator who is there
already keeps the password they have.
"""

import os

import django

from deploy.environment import DEMO, OPERATOR


def main() -> None:
    """Prepare the database that the environment names, as its owner."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    os.environ["DATABASE_ROLE"] = "owner"
    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    call_command("migrate", interactive=False)
    call_command("config", "apply", str(DEMO))
    users = get_user_model()
    if not users.objects.filter(username=OPERATOR).exists():
        users.objects.create_superuser(OPERATOR, password=os.environ["METERLINE_OPERATOR_PASSWORD"])


if __name__ == "__main__":
    main()
