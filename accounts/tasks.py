"""Celery tasks of the accounts."""

from celery import shared_task

from accounts.log import seal_log


@shared_task(name="accounts.seal_log")  # type: ignore[untyped-decorator]  # Celery ships no types
def seal_events() -> None:
    """Seals the audit log's new events."""
    seal_log()
