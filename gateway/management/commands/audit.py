"""`manage.py audit`: whether the ledger and the audit log are still what was sealed."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.log import AuditBlock
from accounts.log import wrong_blocks as wrong_log_blocks
from billing.models import LedgerBlock
from billing.sealing import VERIFIED_AT_ONCE, WrongBlock, verify
from routing.starter.progress import Progress


class Command(BaseCommand):
    help = (
        "Verifies the hash chains of the audit log and of the ledger, and prints their heads: note the ledger's where "
        "nobody can change it, and give it back "
        "with --head another time. May be stopped, and says how to go on."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Where to begin, and what was noted."""
        parser.add_argument("--from", type=int, default=1, metavar="NUMBER", dest="first", help="Begin at this block.")
        parser.add_argument("--head", metavar="NUMBER:DIGEST", help="A head from before, which must still be there.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Verifies and prints. Raises CommandError when a block does not hold."""
        self._verify_log()
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

    def _verify_log(self) -> None:
        last = AuditBlock.objects.order_by("-number").first()
        for first in range(1, last.number + 1 if last else 1, VERIFIED_AT_ONCE):
            for number in wrong_log_blocks(first, first + VERIFIED_AT_ONCE - 1):
                raise CommandError(f"Block {number} of the audit log does not hold: it or an event in it was changed.")
        if last:
            self.stdout.write(f"The audit log's chain holds. Its head is {last}.")

    def _expect(self, noted: str) -> None:
        number, _, digest = noted.partition(":")
        if not number.isdecimal() or not LedgerBlock.objects.filter(number=int(number), digest=digest).exists():
            raise CommandError(f"The head {noted} is not in the chain: its blocks were made anew.")
