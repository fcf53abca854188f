"""`manage.py audit`: whether the ledger is still what was sealed."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.models import LedgerBlock
from billing.sealing import WrongBlock, verify
from routing.starter.progress import Progress


class Command(BaseCommand):
    help = (
        "Verifies the ledger's hash chain, and prints its head: note it where nobody can change it, and give it back "
        "with --head another time. May be stopped, and says how to go on."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Where to begin, and what was noted."""
        parser.add_argument("--from", type=int, default=1, metavar="NUMBER", dest="first", help="Begin at this block.")
        parser.add_argument("--head", metavar="NUMBER:DIGEST", help="A head from before, which must still be there.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Verifies and prints. Raises CommandError when a block does not hold."""
        head = LedgerBlock.objects.order_by("-number").first()
        if noted := options["head"]:
            self._expect(noted)
        if head is None:
            self.stdout.write("Nothing is sealed yet.")
            return
        first = max(1, options["first"])
        progress = Progress("Verifying", head.number - first + 1, sys.stderr)
        try:
            verify(first, head, progress.step)
        except WrongBlock as error:
            raise CommandError(f"Block {error.number} does not hold: it or an entry in it was changed.") from None
        except KeyboardInterrupt:
            raise CommandError(f"Stopped. Go on with --from {first + progress.done}.") from None
        self.stdout.write(f"The chain holds. Its head is {head}, sealed {head.sealed_at:%Y-%m-%d %H:%M:%S} UTC.")

    def _expect(self, noted: str) -> None:
        number, _, digest = noted.partition(":")
        if not number.isdecimal() or not LedgerBlock.objects.filter(number=int(number), digest=digest).exists():
            raise CommandError(f"The head {noted} is not in the chain: its blocks were made anew.")
