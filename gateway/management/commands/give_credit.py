"""`manage.py give_credit`: an organization's prepaid balance is moved, once for a reference."""

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.by import add_by
from accounts.models import Organization
from billing.credit.credits import GIVABLE
from billing.credit.prepaid import balance, grant
from billing.models import CreditKind


class Command(BaseCommand):
    help = "Gives an organization credit, or takes some (an adjustment below 0). A reference counts once, so try again."

    def add_arguments(self, parser: CommandParser) -> None:
        """Whom, what, how much, for what reason, and who gives it."""
        parser.add_argument("organization", metavar="SLUG")
        parser.add_argument("kind", choices=[kind.value for kind in GIVABLE])
        parser.add_argument("amount", metavar="DOLLARS", help="Below 0: write it after --.")
        parser.add_argument("--reference", required=True, help="Of the payment or the reason.")
        parser.add_argument("--expires", metavar="MOMENT", help="UTC, as 2027-01-01 or 2027-01-01T12:00. Else never.")
        parser.add_argument("--note", default="")
        parser.add_argument("--prepaid", action="store_true", help="Makes a postpaid organization prepaid.")
        add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Gives it. Raises CommandError where it may not be, and then nothing has moved."""
        organization = Organization.objects.filter(slug=options["organization"]).first()
        if organization is None:
            raise CommandError(f"There is no organization {options['organization']}.")
        try:
            expires = datetime.fromisoformat(options["expires"]) if options["expires"] else None
            grant(
                organization,
                CreditKind(options["kind"]),
                Decimal(options["amount"]),
                options["reference"],
                options["by"],
                expires_at=expires.replace(tzinfo=expires.tzinfo or UTC) if expires else None,
                note=options["note"],
                begin=options["prepaid"],
            )
        except InvalidOperation:
            raise CommandError(f"{options['amount']!r} is no amount.") from None
        except ValueError:
            raise CommandError(f"{options['expires']!r} is no moment. Write it as 2027-01-01.") from None
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        now = balance(organization.pk)
        self.stdout.write(f"{organization.slug} has ${now.left.normalize():f} left." if now else "")
