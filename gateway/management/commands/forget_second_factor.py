"""`manage.py forget_second_factor NAME`: for whoever has lost theirs and every recovery code."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.by import add_by
from accounts.models import User
from accounts.sign_in import factors, sessions
from accounts.sign_in.noting import note


class Command(BaseCommand):
    help = (
        "Takes a person's authenticator app, passkeys and recovery codes away and signs them out everywhere. No page "
        "of the console can do so to somebody else. See who asks you to."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Whose, and who does it."""
        parser.add_argument("name", metavar="NAME", help="the person's name in the console")
        add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Raises CommandError where there is nobody of that name."""
        user = User.objects.filter(username=options["name"]).first()
        if user is None:
            raise CommandError(f"There is nobody called {options['name']}.")
        factors.remove_all(user)
        ended = sessions.end(user)
        note("forgot the second factor", user, "", by=options["by"])
        self.stdout.write(f"{user.get_username()} has no second factor; {ended} sessions ended.")
