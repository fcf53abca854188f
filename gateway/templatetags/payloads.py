"""For a generation's page: whether what was said is kept, for whom that is to know."""

from django import template
from django.http import HttpRequest

from accounts.access.access import access_of
from billing.models import Usage
from gateway.models import Payload
from gateway.process.payloads import SIDES

register = template.Library()


@register.simple_tag
def payload_of(usage: Usage, request: HttpRequest) -> Payload | None:
    """The kept payload of a generation, without what is in it; None: there is none, or not for this person."""
    return access_of(request).rows(Payload.objects.defer(*SIDES)).filter(pk=usage.pk).first()
