"""The playground's keys: each for one person in one project, for an hour, and for so many dollars a day.

Nobody is shown the secret: the page's script has it in its memory, and a later one replaces it. So a person has one
such key in a project however often the page is opened, and what it may spend in a day is bounded by its budget,
whatever happens to it. Everything it is used for is on the books under its name as with any other key.
"""

from datetime import timedelta
from uuid import UUID, uuid5

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from accounts.access.access import access_of
from accounts.access.table import Verb
from accounts.keys import digest, display_prefix, new_secret
from accounts.log import Action, log
from accounts.models import ApiKey, OnLeave, Project, Scope
from billing.models import Budget, Period

LASTS = timedelta(hours=1)
ENDPOINT = "chat/completions"  # nothing else is asked with such a key
MOST_REVOKED = 20  # a key that was revoked stays so; who has had so many of a project revoked gets no more there
KEYS = UUID("5b0a4f1e-6d0e-4a43-9f7c-6f8f3d2a9c11")


def projects(request: HttpRequest) -> QuerySet[Project]:
    """Those in which the person may make keys."""
    alive = Project.objects.filter(active=True, organization__active=True)
    return access_of(request).offered(alive, ApiKey, (Verb.ADD,)).select_related("organization")


@require_POST
def mint(request: HttpRequest) -> HttpResponse:
    """POST `project`, an id: {"key", "expires_at"}, the person's key there with a new secret, for `LASTS` from now.

    Whatever still runs with the secret before is cut. 404 for a project in which the person may make no keys, 409 when
    too many of theirs were revoked.
    """
    if not access_of(request).may(ApiKey, Verb.ADD):
        raise PermissionDenied
    try:
        project = projects(request).filter(pk=UUID(request.POST.get("project", ""))).first()
    except ValueError:
        project = None
    if project is None:
        return JsonResponse({"error": _("There is no such project.")}, status=404)
    secret = new_secret()
    with transaction.atomic():
        key = _key(project, int(request.user.pk or 0), secret)
        if key is None:
            words = _("Too many of your playground's keys of this project were revoked. Use a key of your own.")
            return JsonResponse({"error": words}, status=409)
        log(Action.REVEAL, key, project.organization_id, "playground")
    headers = {"Cache-Control": "no-store, private", "Referrer-Policy": "no-referrer"}
    assert key.expires_at is not None
    return JsonResponse({"key": secret, "expires_at": key.expires_at.isoformat()}, headers=headers)


def _key(project: Project, person: int, secret: str) -> ApiKey | None:
    """The person's key in a project, which opens with `secret` from now on. None: all they may have are revoked."""
    fresh = {
        "digest": digest(secret, settings.KEY_PEPPERS[0]),
        "prefix": display_prefix(secret),
        "expires_at": timezone.now() + LASTS,
    }
    for number in range(MOST_REVOKED):
        pk = uuid5(KEYS, f"{project.pk} {person} {number}")
        made = ApiKey(
            pk=pk,
            project=project,
            owner_id=person,
            name="playground",
            scopes=[Scope.INFERENCE],
            allowed_endpoints=[ENDPOINT],
            on_leave=OnLeave.STOP,
            **fresh,
        )
        # Two windows of one person make it at the same time: whoever comes second changes what the first has made.
        ApiKey.objects.bulk_create([made], ignore_conflicts=True)
        # Ids can be reckoned: one that somebody else has taken is theirs.
        key = ApiKey.objects.select_for_update().filter(pk=pk, project=project, owner_id=person).first()
        if key is None or key.revoked_at is not None:
            continue
        for name, value in fresh.items():
            setattr(key, name, value)
        # What an owner has narrowed since stays narrow.
        key.save(update_fields=list(fresh))
        _bound(key, project)
        return key
    return None


def _bound(key: ApiKey, project: Project) -> None:
    """Sees to it that the key has a budget for a day; one that an owner has changed stays as it is."""
    whose = {"organization": project.organization, "key": key, "period": Period.DAY, "model": "", "end_user": ""}
    if not Budget.objects.filter(**whose).exists():
        Budget(**whose, amount=settings.PLAYGROUND_DOLLARS, hard=True, contract=False, alerts=[]).save()
