"""A bill that somebody asked for, fetched by a worker: page by page, each kept as it comes, and then compared.

Whatever goes wrong is written down in the fetch's row; what comes of the comparison is written once, when all of the
bill has been read. A worker that dies leaves its pages, and another goes on after them.
"""

import time
from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q, Sum
from django.db.models.functions import Length, Now
from django.utils import timezone

from accounts.sealing import CannotOpen
from billing.bills.files import MOST_BYTES, BadBill, Form
from billing.bills.reconciling import compared, keep
from billing.bills.sources import BillFetch, BillPage, file_of
from routing.base_url import BadUrl
from routing.bills.credentials import billed_as, told_apart
from routing.bills.vendors import BUCKETS, VENDORS, BadPage, Part, next_page
from routing.outside import ForbiddenAddress, NoAnswer, Outside

SECONDS = 60.0  # of an exchange
MOST_SECONDS = 1200.0  # of a worker, which does other things besides; then it may go on
MOST_PAGES = 200  # of a part
KEPT = timedelta(days=90)  # with its pages
LOST = timedelta(minutes=5)  # without a new page: its worker has died
PARTS = (Part.USAGE, Part.COST)

State = BillFetch.State


class Refused(Exception):
    """It does not go on. The message says why."""


class Stopped(Exception):
    """Somebody has stopped it, or another worker has it."""


def go_on(id: int) -> bool:
    """Has it wait for a worker, where it was stopped, has failed or lost its worker. False: it has not."""
    rests = Q(state__in=(State.STOPPED, State.FAILED)) | Q(state=State.RUNNING, moved_at__lt=Now() - LOST)
    found = BillFetch.objects.filter(rests, pk=id)
    return bool(found.update(state=State.WAITING, stop=False, error=""))


def stop(id: int) -> None:
    """Has it stop before its next page; one that waits, at once."""
    BillFetch.objects.filter(pk=id, state=State.WAITING).update(state=State.STOPPED)
    BillFetch.objects.filter(pk=id, state=State.RUNNING).update(stop=True)


def expected_pages(fetch: BillFetch) -> int:
    """How many pages there are, if the vendor gives as many buckets a page as were asked for."""
    return len(PARTS) * -(-((fetch.last - fetch.first).days + 1) // BUCKETS)


def run(id: int, client: Outside) -> None:
    """Fetches and compares the bill `id`, unless a worker has it or it is over."""
    BillFetch.objects.filter(asked_at__lt=timezone.now() - KEPT).delete()
    waiting = BillFetch.objects.filter(pk=id, state=State.WAITING)
    if not waiting.update(state=State.RUNNING, stop=False, error="", run=F("run") + 1, moved_at=Now()):
        return
    fetch = BillFetch.objects.select_related("source").get(pk=id)
    mine = BillFetch.objects.filter(pk=id, run=fetch.run)
    if not fetch.pages.exists():  # what has begun goes on as it was grouped
        fetch.by_key = bool(VENDORS[fetch.source.form].key) and told_apart(fetch.source.provider)
        mine.update(by_key=fetch.by_key)
    try:
        until = time.monotonic() + MOST_SECONDS
        for part in PARTS:
            _fetch(fetch, part, client, until)
        _compare(fetch)
    except Stopped:
        mine.filter(state=State.RUNNING).update(state=State.STOPPED)
    except (Refused, BadPage, BadBill, NoAnswer) as error:
        mine.update(state=State.FAILED, error=str(error)[:300])
    except BaseException:
        mine.update(state=State.FAILED, error="it failed here: the worker's log has more")
        raise


def _fetch(fetch: BillFetch, part: Part, client: Outside, until: float) -> None:
    """Keeps the pages of a part that are not kept yet."""
    pages = fetch.pages.filter(part=part).order_by("number")
    before = list(pages.values_list("next", flat=True))
    if before and not before[-1]:
        return
    size = pages.aggregate(bytes=Sum(Length("content")))["bytes"] or 0
    while not before or before[-1]:
        if len(before) == MOST_PAGES:
            raise Refused(f"its {part} has more than {MOST_PAGES} pages")
        if time.monotonic() > until:
            raise Refused("it takes long: go on, and it does after the pages that it has")
        left = MOST_BYTES - size - 2 * MOST_PAGES  # with what stands between pages a file of them may be read
        content = page_of(fetch, part, before[-1] if before else "", client, left)
        cursor = next_page(content, before)
        _keep(fetch, BillPage(fetch=fetch, part=part, number=len(before), content=content, next=cursor))
        before.append(cursor)
        size += len(content)


def page_of(fetch: BillFetch, part: Part, cursor: str, client: Outside, most_bytes: int) -> bytes:
    """Asks the vendor for a page of at most so many bytes. Raises Refused, NoAnswer."""
    source = fetch.source
    vendor = VENDORS[source.form]
    path, _ = vendor.paths[part]
    try:
        secret = source.secret()
    except CannotOpen:
        raise Refused("its secret cannot be opened: type it again") from None
    try:
        answer = client.ask(
            "GET",
            f"{source.endpoint.rstrip('/')}/{path}",
            query=vendor.query(part, fetch.first, fetch.last, cursor, by_key=fetch.by_key),
            headers=vendor.headers(secret),
            seconds=SECONDS,
            most_bytes=max(most_bytes, 0),
        )
    except BadUrl as error:
        raise Refused(f"its address is none: {error}") from None
    except ForbiddenAddress as error:
        raise Refused(f"its address may not be dialled: {error}") from None
    if answer.status != 200:
        raise Refused(f"{part}: status {answer.status}")  # what it says besides may hold what it was sent
    return answer.body


def _keep(fetch: BillFetch, page: BillPage) -> None:
    """Keeps a page, unless it is to stop. Raises Stopped."""
    with transaction.atomic():
        row = BillFetch.objects.select_for_update().get(pk=fetch.pk)  # against `go_on`, which gives it to another
        if row.run != fetch.run or row.state != State.RUNNING:
            raise Stopped
        page.save(force_insert=True)
        row.moved_at = timezone.now()
        row.save(update_fields=["moved_at"])
        stopped = row.stop
    if stopped:
        raise Stopped


def _compare(fetch: BillFetch) -> None:
    """Reads its files as if they had been uploaded, and writes down what comes of them. Raises BadBill, Stopped."""
    provider, form = fetch.source.provider, Form(fetch.source.form)
    files = [file_of(fetch, part) for part in PARTS]
    credentials = billed_as(provider) if fetch.by_key else {}
    # Nothing is locked meanwhile: it takes its time.
    found = compared(provider, form, files, credentials, fetch.asked_by, (fetch.first, fetch.last))
    with transaction.atomic():
        row = BillFetch.objects.select_for_update().get(pk=fetch.pk)
        if row.run != fetch.run or row.state != State.RUNNING or row.stop:
            raise Stopped
        row.made = keep(found)
        row.state = State.DONE
        row.save(update_fields=["made", "state"])
