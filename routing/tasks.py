"""Celery tasks: statistics of offers, replays, bills, price lists. Routing goes on without them, with what it knows."""

from celery import shared_task

from routing.bills.fetching import run as fetch_bill_of
from routing.outside import outside
from routing.replay.replaying import run
from routing.starter.wanted import ask_if_due
from routing.statistics.rollups import prune, roll_up


@shared_task(name="routing.roll_up")  # type: ignore[untyped-decorator]  # Celery ships no types
def roll_up_attempts() -> None:
    """Brings the statistics of offers up to the present and publishes them."""
    roll_up()


@shared_task(name="routing.prune")  # type: ignore[untyped-decorator]  # Celery ships no types
def prune_rollups() -> None:
    """Forgets what the windows no longer reach."""
    prune()


@shared_task(name="routing.replay")  # type: ignore[untyped-decorator]  # Celery ships no types
def replay(id: int) -> None:
    """Replays traffic against a policy, as somebody asked in the console."""
    run(id)


@shared_task(name="routing.fetch_price_list")  # type: ignore[untyped-decorator]  # Celery ships no types
def fetch_price_list(id: int | None = None) -> None:
    """Fetches a price list that somebody asked for in the console; without an id, the one that is due."""
    due = ask_if_due() if id is None else None
    wanted = due.pk if due else id
    if wanted is not None:
        from routing.starter.fetching import fetch  # what reads a list takes a second to import

        fetch(wanted, outside())


@shared_task(name="routing.fetch_bill")  # type: ignore[untyped-decorator]
def fetch_bill(id: int) -> None:
    """Fetches a provider's bill, as somebody asked in the console, and compares it with the books."""
    fetch_bill_of(id, outside())
