"""The Celery application: housekeeping and statistics. Money never waits for it."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
os.environ.setdefault("DATABASE_ROLE", "app")

from celery import Celery

app = Celery("meterline")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["billing", "gateway"])
app.conf.beat_schedule = {
    "partitions": {"task": "billing.make_partitions", "schedule": 24 * 3600.0},
    "resolve": {"task": "billing.resolve_dead_holds", "schedule": 30.0},
    "prune": {"task": "billing.prune", "schedule": 600.0},
    "files": {"task": "gateway.prune_files", "schedule": 600.0},
}
