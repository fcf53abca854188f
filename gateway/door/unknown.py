"""What the API does not serve, told so that whoever asked knows what to use instead."""

from contextlib import suppress

from django.core.handlers.asgi import ASGIRequest

from gateway.door.answers import Answer
from gateway.door.authentication import authenticate
from gateway.door.view import ApiView, origin
from gateway.process import process
from gateway.wire.dialects import named
from gateway.wire.errors import GatewayError, NotFound

MOST_SHOWN = 200  # characters of a path
CHAT = "POST /v1/chat/completions"
# The first words of paths that are served without /v1 too, or refused as what they are: a base URL may lack it.
UNVERSIONED = ("chat", "models", "route", "files", "responses", "completions", "messages", "embeddings", "moderations")
# What SDKs call that is not served here, by the path's end.
INSTEAD = {
    "moderations": "Moderations are not served.",
    "batches": "Batches are not served.",
}


def no_such_endpoint(method: str, path: str) -> NotFound:
    """The refusal of a path: it names the path, and what to use."""
    shown = "".join(c if c.isprintable() else "?" for c in path[:MOST_SHOWN])
    instead = INSTEAD.get(path.rstrip("/").rpartition("/")[2], f"Chat completions are {CHAT}, models GET /v1/models.")
    method = "GET" if method == "HEAD" else method  # the length that HEAD is told is that of GET's answer
    return NotFound(f"There is no endpoint {method} {shown}. {instead}")


def is_lax(path: str) -> bool:
    """Whether a path is served for those alone whose base URL or SDK has more or less before it than it needs."""
    return path.startswith(("/v1/v1/", "/v1beta1/", *(f"/{name}" for name in UNVERSIONED))) or any(
        part in path for part in ("/publishers/", "/vertex-ai/v1/", "/vertex-ai/v1beta1/", "/v1/models/{name}:")
    )


class UnknownPath(ApiView):
    """Whatever the API does not serve."""

    public = True

    async def get(self, request: ASGIRequest, *path: str) -> Answer:
        """404 in the envelope, in the dialect of the key when a good one came along."""
        here, caller = process.current(), None
        if request.method in ("GET", "HEAD"):  # as the models' lists there are read, which all have one envelope
            self.protocol = ApiView.protocol
        with suppress(GatewayError):
            caller = await authenticate(here.snapshots, *origin(request.scope))
        if caller is not None:
            self.dialect = named(caller.dialect)
            here.arrivals.enter(caller, here.snapshots.current).ended(ours=False)
        raise no_such_endpoint(request.method or "", request.path)

    post = put = patch = delete = get
