"""Sending what waits to be told: each message at least once, under one id, and given up after `MOST_TRIES`.

A try is written down before it begins and is nobody else's for `LEASE`, so two workers never make the same one, and one
that dies in the middle costs a try, not the message. No transaction is open while anything is sent. An organization has
two tries under way at most, whatever waits of its own, so receivers that hang keep no other's waiting; and each ends
within `SECONDS`, however it is answered. Of an answer the status counts: nothing else of it is read or kept.
"""

import logging
import smtplib
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parseaddr
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import connection

from accounts.sealing import CannotOpen
from billing.models import Channel, Crossing, Delivery, DeliveryStatus, Recipient
from gateway.alerts.message import payload, subject, text
from gateway.alerts.signature import UnusableSecret, signed
from routing.base_url import BadUrl
from routing.egress import ForbiddenAddress
from routing.outside import NoAnswer, Outside

SECONDS = 10.0  # of one try
TOGETHER = 16  # tries at once
RUN_SECONDS = 10.0  # in which a run begins new ones
LEASE = timedelta(minutes=2)
# After how long the second try is made, and each after it: over a day together.
BACK_OFF = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 30, 120, 300, 600, 600))
MOST_TRIES = len(BACK_OFF) + 1
MOST_SAID = 300  # characters of an error
GONE = 410  # RFC 9110, 15.5.11: it will not come back

GIVE_UP = """
update billing_delivery
   set status = 'given_up', last_error = concat_ws('; ', nullif(last_error, ''), 'the worker ended')
 where status = 'waiting' and next_try_at <= now() and tries >= %(most_tries)s
"""
# In turn, organization by organization. Somebody else's locks are passed over, and what they took is not due any more.
CLAIM = """
with candidate as (
    select d.id, d.next_try_at, row_number() over (partition by d.organization order by d.next_try_at, d.id) as turn
      from billing_delivery d
     where d.status = 'waiting' and d.next_try_at <= now() and d.organization <> all(%(busy)s::uuid[])
), mine as materialized (
    select d.id from billing_delivery d
     where d.id in (select id from candidate where turn <= 2 order by turn, next_try_at, id limit %(most)s)
       and d.status = 'waiting' and d.next_try_at <= now()
       for update skip locked
)
update billing_delivery d set tries = d.tries + 1, next_try_at = now() + %(lease)s
  from mine where d.id = mine.id
returning d.id
"""
NOTE = """
update billing_delivery set status = %(status)s, last_error = %(error)s, sent_at = case when %(sent)s then now() end,
       next_try_at = now() + %(after)s
 where id = %(id)s and tries = %(tries)s and status = 'waiting'
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a try ended. `final`: another one would end the same."""

    error: str = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class Letter:
    """All that one try needs, so that it is made without the database."""

    message: UUID
    channel: str
    address: str
    secret: str
    crossing: Crossing


def deliver(client: Outside) -> int:
    """Sends what is due, webhooks by `client`: what can be begun within `RUN_SECONDS`. How many tries that was."""
    until = time.monotonic() + RUN_SECONDS
    running: dict[Future[Outcome], Delivery] = {}
    made = 0
    _execute(GIVE_UP, most_tries=MOST_TRIES)
    with ThreadPoolExecutor(TOGETHER, "alerts") as pool:
        while True:
            free = TOGETHER - len(running) if time.monotonic() < until else 0
            claimed = _claimed(free, {one.organization for one in running.values()}) if free else []
            made += len(claimed)
            for delivery, letter in claimed:
                if isinstance(letter, Outcome):
                    _note(delivery, letter)
                else:
                    running[pool.submit(send, client, letter)] = delivery
            if not running and not claimed:
                return made
            for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                _note(running.pop(future), _outcome(future))


def send(client: Outside, letter: Letter) -> Outcome:
    """Makes one try."""
    if letter.channel == Channel.MAIL:
        return _mailed(letter)
    body, seconds = payload(letter.crossing), int(time.time())
    try:
        headers = signed(letter.secret, f"msg_{letter.message.hex}", seconds, body)
        headers["content-type"] = "application/json"
        with client.stream("POST", letter.address, headers=headers, content=body, seconds=SECONDS) as response:
            status = response.status_code
    except (BadUrl, ForbiddenAddress) as error:
        return Outcome(f"not dialled: {error}")
    except UnusableSecret:
        return Outcome("the secret is none: type it again")
    except NoAnswer as error:
        return Outcome(str(error))
    return Outcome() if 200 <= status < 300 else Outcome(f"status {status}", final=status == GONE)


def _mailed(letter: Letter) -> Outcome:
    if not settings.EMAIL_HOST:
        return Outcome("no mail is sent: EMAIL_HOST is not set")
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    headers = {"Message-ID": f"<{letter.message.hex}@{domain}>", "Auto-Submitted": "auto-generated"}
    try:
        EmailMessage(subject(letter.crossing), text(letter.crossing), to=[letter.address], headers=headers).send()
    except (OSError, smtplib.SMTPException) as error:
        return Outcome(f"the mail server: {error or type(error).__name__}")
    return Outcome()


def _claimed(most: int, busy: Iterable[UUID]) -> list[tuple[Delivery, Letter | Outcome]]:
    """What is due and nobody else's, with what each try needs or why it cannot be made."""
    ids = [id for (id,) in _execute(CLAIM, most=most, busy=list(busy), lease=LEASE)]
    found = list(Delivery.objects.filter(pk__in=ids).select_related("crossing").order_by("pk"))
    recipients = Recipient.objects.in_bulk([one.recipient for one in found])
    return [(one, _letter(one, recipients.get(one.recipient))) for one in found]


def _letter(delivery: Delivery, recipient: Recipient | None) -> Letter | Outcome:
    if recipient is None or not recipient.active:
        return Outcome("the recipient is off or gone", final=True)
    try:
        secret = recipient.secret() if recipient.channel == Channel.WEBHOOK else ""
    except CannotOpen:
        return Outcome("the secret cannot be opened: type it again")
    return Letter(delivery.message, recipient.channel, recipient.address, secret, delivery.crossing)


def _outcome(future: "Future[Outcome]") -> Outcome:
    try:
        return future.result()
    except Exception as error:  # one that nobody thought of must not keep the others waiting
        logger.exception("an alert was not sent")
        return Outcome(type(error).__name__)


def _note(delivery: Delivery, outcome: Outcome) -> None:
    last = outcome.final or delivery.tries >= MOST_TRIES
    failed = DeliveryStatus.GIVEN_UP if last else DeliveryStatus.WAITING
    _execute(
        NOTE,
        id=delivery.pk,
        tries=delivery.tries,
        status=failed.value if outcome.error else DeliveryStatus.SENT.value,
        error="".join(char if char.isprintable() else " " for char in outcome.error)[:MOST_SAID],
        sent=not outcome.error,
        after=timedelta(0) if last or not outcome.error else BACK_OFF[delivery.tries - 1],
    )


def _execute(statement: str, **params: Any) -> Sequence[tuple[int]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []
