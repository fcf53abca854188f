"""The Celery application: housekeeping and statistics. Money never waits for it."""

import os
import time
from datetime import UTC, datetime, timedelta

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
os.environ.setdefault("DATABASE_ROLE", "app")

from celery import Celery
from celery.schedules import schedstate, schedule

BEGAN = datetime.now(UTC), time.monotonic()


class Every(schedule):  # type: ignore[misc]
    """Every so many seconds, whatever the machine's clock is set to meanwhile.

    What last ran in a time to come, by what an earlier beat has written down, is due.
    """

    def now(self) -> datetime:
        """The time, as this process began with it."""
        at, since = BEGAN
        return at + timedelta(seconds=time.monotonic() - since)

    def is_due(self, last_run_at: datetime) -> schedstate:
        """Whether it is, and in how many seconds to look again."""
        if self.maybe_make_aware(last_run_at) > self.now():
            return schedstate(is_due=True, next=self.seconds)
        return super().is_due(last_run_at)


app = Celery("meterline")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["accounts", "billing", "routing", "gateway"])
app.conf.beat_schedule = {
    "partitions": {"task": "billing.make_partitions", "schedule": Every(24 * 3600.0)},
    "old months": {"task": "billing.drop_old_months", "schedule": Every(24 * 3600.0), "options": {"expires": 3600}},
    # As often as it must say that it lives.
    "resolve": {"task": "billing.resolve_dead_holds", "schedule": Every(4.0), "options": {"expires": 4}},
    "prune": {"task": "billing.prune", "schedule": Every(600.0)},
    # A run that could not begin before the next one is due is left out.
    "statistics": {"task": "routing.roll_up", "schedule": Every(10.0), "options": {"expires": 10}},
    "old statistics": {"task": "routing.prune", "schedule": Every(3600.0)},
    "usage": {"task": "billing.roll_up_usage", "schedule": Every(120.0), "options": {"expires": 120}},
    "seal": {"task": "billing.seal", "schedule": Every(60.0), "options": {"expires": 60}},
    "audit log": {"task": "accounts.seal_log", "schedule": Every(60.0), "options": {"expires": 60}},
    "credit": {"task": "billing.expire_credit", "schedule": Every(60.0), "options": {"expires": 60}},
    "audit": {"task": "billing.audit", "schedule": Every(60.0), "options": {"expires": 60}},
    "alerts": {"task": "gateway.alert", "schedule": Every(30.0), "options": {"expires": 30}},
    "exports": {"task": "gateway.store_exports", "schedule": Every(300.0), "options": {"expires": 300}},
    "payloads": {"task": "gateway.purge_payloads", "schedule": Every(60.0), "options": {"expires": 60}},
    "refused": {"task": "gateway.prune_refused", "schedule": Every(60.0), "options": {"expires": 60}},
    # Whether it is due says PRICES_HOURS.
    "price list": {"task": "routing.fetch_price_list", "schedule": Every(600.0), "options": {"expires": 600}},
    "files": {"task": "gateway.prune_files", "schedule": Every(600.0)},
}
