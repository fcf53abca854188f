"""The Celery application: housekeeping and statistics. Money never waits for it."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
os.environ.setdefault("DATABASE_ROLE", "app")

from celery import Celery

app = Celery("meterline")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["billing", "routing", "gateway"])
app.conf.beat_schedule = {
    "partitions": {"task": "billing.make_partitions", "schedule": 24 * 3600.0},
    # As often as it must say that it lives.
    "resolve": {"task": "billing.resolve_dead_holds", "schedule": 4.0, "options": {"expires": 4}},
    "prune": {"task": "billing.prune", "schedule": 600.0},
    # A run that could not begin before the next one is due is left out.
    "statistics": {"task": "routing.roll_up", "schedule": 10.0, "options": {"expires": 10}},
    "old statistics": {"task": "routing.prune", "schedule": 3600.0},
    "usage": {"task": "billing.roll_up_usage", "schedule": 120.0, "options": {"expires": 120}},
    "files": {"task": "gateway.prune_files", "schedule": 600.0},
}
