"""Where clients reach the API, as the console's pages tell it."""

from django.conf import settings
from django.http import HttpRequest

UNKNOWN = "https://GATEWAY"  # a console by itself that nobody has told


def api_origin(request: HttpRequest) -> str:
    """Scheme, host and port of the API: `PUBLIC_URL`, else where this page is from, if that serves the API, too."""
    if settings.PUBLIC_URL:
        return str(settings.PUBLIC_URL)
    return f"{request.scheme}://{request.get_host()}" if settings.SERVE == "all" else UNKNOWN


def api_base(request: HttpRequest) -> str:
    """The base URL that OpenAI's SDKs are told."""
    return f"{api_origin(request)}/v1"
