"""Celery tasks: the statistics of offers, and replays. Routing goes on without them, with what it knows."""

from celery import shared_task

from routing.replay.replaying import run
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
