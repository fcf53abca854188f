"""The API under Django's stock handler, middleware and all, for the comparison with the lean one; never for service."""

from gateway.door.handler import Application  # first: it sets Django up

from django.conf import settings  # isort: skip
from django.core.handlers.asgi import ASGIHandler  # isort: skip

lean = Application("gateway")
stock = ASGIHandler()
# Django's own limit on bodies, which the lean handler does not know, stands in for its count.
settings.DATA_UPLOAD_MAX_MEMORY_SIZE = settings.MAX_BODY_BYTES


async def application(scope, receive, send):  # type: ignore[no-untyped-def]
    """Starts and stops the process as the product does, and answers as Django does."""
    await (lean if scope["type"] == "lifespan" else stock)(scope, receive, send)
