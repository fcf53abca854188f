"""A replay that was asked for in the console, done by a worker: it says how far it is and stops when told to."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from routing.models import Replay
from routing.replay.comparison import Comparison
from routing.replay.foresight import foresee
from routing.replay.replay import Traffic, replayed, routes
from routing.statistics.rollups import roll_up

KEPT = timedelta(days=30)


def run(id: int) -> None:
    """Does the replay `id`, unless somebody has it in hand or it is over."""
    Replay.objects.filter(created_at__lt=timezone.now() - KEPT).delete()
    # One worker takes it, however often the task is delivered.
    if not Replay.objects.filter(pk=id, state=Replay.State.WAITING).update(state=Replay.State.RUNNING):
        return
    try:
        _run(Replay.objects.get(pk=id))
    except BaseException:
        Replay.objects.filter(pk=id).update(state=Replay.State.FAILED)
        raise


def _run(replay: Replay) -> None:
    traffic = Traffic(replay.start, replay.end, replay.organization, replay.project, replay.model)
    mine = Replay.objects.filter(pk=replay.pk)
    mine.update(total=traffic.rows().count())
    roll_up()
    comparison, stopped = Comparison(), False
    for comparison in replayed(traffic, routes(_row(replay.policy)), foresee(replay.start, replay.end, timezone.now())):
        stopped = mine.filter(stop=True).exists()
        mine.update(done=comparison.looked_at, result=comparison.as_json())
        if stopped:
            break
    state = Replay.State.STOPPED if stopped else Replay.State.DONE
    mine.update(state=state, done=comparison.looked_at, result=comparison.as_json())


def _row(policy: list[Any]) -> tuple[Any, ...]:
    level, key, project, *rest = policy
    return (level, key and UUID(key), project and UUID(project), *rest)
