"""What is noted of signing in: a line of the log for each thing that happened. What changed is in the audit
log too, which the database writes.
"""

import logging

from accounts.models import User

logger = logging.getLogger(__name__)


def note(event: str, user: User | None, address: str, **facts: object) -> None:
    """Notes that `event`, in few words, happened to `user`, by somebody at `address`. Never a secret, nor a code.

    What others wrote is quoted: it is no line of its own.
    """
    who = repr(user.get_username()) if user else "somebody"
    where = f" from {address}" if address else ""
    logger.info("%s %s%s%s", who, event, where, "".join(f", {name} {value!r}" for name, value in facts.items()))
