"""The button that tries a credential: one call at a time in the whole installation, a few a minute, all in the log."""

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import override
from django.views.decorators.http import require_POST

from accounts.access.access import access_of
from accounts.access.table import Verb
from accounts.log import Action, AuditEvent, log
from gateway.console.starting.trial import Outcome, Trial, tried
from routing.models import Credential

MOST_A_MINUTE = 5  # trials of one credential
MINUTE = timedelta(minutes=1)
# Held by the connection, not by a transaction: none is open while the provider is waited for. One trial at a time, so
# that no more than one of the console's few threads waits.
LOCK = "select pg_try_advisory_lock(hashtext('gateway_credential_trial'))"
UNLOCK = "select pg_advisory_unlock(hashtext('gateway_credential_trial'))"


@transaction.non_atomic_requests  # the provider is waited for
@require_POST
def test_credential(request: HttpRequest, credential: UUID) -> HttpResponse:
    """POST: tries a credential, logs what came of it, and tells it on its provider's page. For operators."""
    if not access_of(request).may(Credential, Verb.CHANGE):
        raise PermissionDenied
    found = Credential.objects.select_related("provider").filter(pk=credential).first()
    if found is None:
        raise Http404
    trial = _one_at_a_time(found)
    if trial is None:
        messages.warning(request, _("Another test is under way, or this credential had several just now. Wait a bit."))
    else:
        told = messages.success if trial.outcome is Outcome.WORKS else messages.error
        told(request, f"{found.name}: {trial}")
    return redirect("admin:routing_provider_change", found.provider_id)


def _one_at_a_time(credential: Credential) -> Trial | None:
    """The trial, logged; None: not now, and nothing was called."""
    with connection.cursor() as cursor:
        cursor.execute(LOCK)
        if cursor.fetchone() != (True,):
            return None
        try:
            if too_many(credential):
                return None
            with override("en"):  # its words stand in the log, for whoever reads that
                trial = tried(credential)
            log(Action.TEST, credential, None, f"{trial.outcome}: {trial.words}")
            return trial
        finally:
            cursor.execute(UNLOCK)


def trials(credential: Credential) -> list[AuditEvent]:
    """The last trials of a credential, newest first."""
    table = Credential._meta.db_table
    events = AuditEvent.objects.filter(table=table, row=str(credential.pk), action=Action.TEST)
    return list(events.order_by("-pk")[:MOST_A_MINUTE])


def last_trials(credentials: Iterable[Credential]) -> dict[str, AuditEvent]:
    """The last trial of each that had one, by its key as text."""
    table, rows = Credential._meta.db_table, [str(one.pk) for one in credentials]
    events = AuditEvent.objects.filter(table=table, row__in=rows, action=Action.TEST)
    return {one.row: one for one in events.order_by("row", "-pk").distinct("row")}


def too_many(credential: Credential) -> bool:
    """Whether it has had as many in the last minute as it may."""
    last = trials(credential)
    return len(last) == MOST_A_MINUTE and last[-1].at > timezone.now() - MINUTE
