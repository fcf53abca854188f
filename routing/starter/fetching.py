"""A price list is fetched, compared with the catalog, and imported when somebody has looked at the difference.

Whatever goes wrong is written down, and the catalog stays as it was. Prices that are hard to believe are proposals
for a second person, as those of the installed list are.
"""

import hashlib
from datetime import datetime, timedelta
from io import StringIO

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from billing.models import PriceList
from routing.base_url import BadUrl
from routing.outside import ForbiddenAddress, NoAnswer, Outside
from routing.starter.progress import Progress
from routing.starter.published import MOST_BYTES, BadList, read
from routing.starter.starter import PACKAGE, Starter, plan
from routing.starter.turn import take_turn
from routing.starter.vendors import VENDORS
from routing.starter.wanted import decided

SECONDS = 60.0  # of the exchange
LOST = timedelta(minutes=10)  # a worker that has had one so long has died

State = PriceList.State


class Changed(Exception):
    """The difference is not what it was; the list's row says what it is now."""


def get(client: Outside, url: str) -> bytes:
    """The list at `url`, as it is sent. Raises BadList."""
    try:
        answer = client.ask("GET", url, seconds=SECONDS, most_bytes=MOST_BYTES)
    except NoAnswer as error:
        raise BadList(str(error)) from None
    except BadUrl as error:
        raise BadList(f"its address is none: {error}") from None
    except ForbiddenAddress as error:
        raise BadList(f"its address may not be dialled: {error}") from None
    if answer.status != 200:
        raise BadList(f"status {answer.status}")
    return answer.body


def note_of(data: bytes, at: datetime) -> str:
    """What tariff versions say of where they are from. It begins as that of the installed list does."""
    return f"{PACKAGE} published {at:%Y-%m-%d}, SHA-256 {hashlib.sha256(data).hexdigest()[:16]}"


def fetch(id: int, client: Outside) -> None:
    """Fetches the list `id`, unless another worker has it or it is over, and notes what it would change."""
    mine = PriceList.objects.filter(pk=id)
    PriceList.objects.filter(state=State.FETCHING, began_at__lt=Now() - LOST).update(
        state=State.FAILED, error="its worker was lost"
    )
    if not mine.filter(state=State.WAITING).update(state=State.FETCHING, began_at=Now()):
        return
    try:
        row = mine.get()
        data = get(client, row.url)
        starter = planned(row, data, timezone.now(), row.asked_by)
        lines = starter.lines
        noted = mine.filter(state=State.FETCHING).update(
            state=State.FETCHED if lines else State.SAME,
            fetched_at=Now(),
            sha256=hashlib.sha256(data).hexdigest(),
            bytes=len(data),
            content=data if lines else None,
            lines=lines,
            held=len(starter.proposals),
        )
        # What was due is not looked at twice: the older ones of its kind give way.
        if noted and lines and not row.asked_by:
            older = Q(pk__lt=id, asked_by="", state=State.FETCHED)
            PriceList.objects.filter(older).update(
                state=State.DECLINED, content=None, decided_by="a newer list", decided_at=Now()
            )
    except BadList as error:
        mine.update(state=State.FAILED, error=str(error)[:300])
    except BaseException:
        mine.update(state=State.FAILED, error="it failed here: the worker's log has more")
        raise


def planned(row: PriceList, data: bytes, at: datetime, by: str) -> Starter:
    """What the list in `data` would do to the catalog as it is. Raises BadList."""
    slugs = row.vendors.split(",")
    vendors = [vendor for vendor in VENDORS if vendor.slug in slugs]
    return plan(vendors, read(data), at, by, note_of(data, row.asked_at))


def import_(row: PriceList, by: str) -> Starter | None:
    """Imports what the row's lines say, once; None: somebody has decided before.

    Raises Changed when the catalog has been changed meanwhile: then nothing but the lines is.
    """
    with transaction.atomic():
        take_turn()
        found = PriceList.objects.select_for_update().get(pk=row.pk)  # two may decide at once
        if found.state != State.FETCHED or found.content is None:
            return None
        starter = planned(found, bytes(found.content), timezone.now(), by)
        changed = starter.lines != found.lines
        if changed:
            found.lines, found.held = starter.lines, len(starter.proposals)
        else:
            starter.write(Progress("", 0, StringIO()))
            decided(found, State.IMPORTED, by)
        found.save()
    if changed:
        raise Changed
    return starter
