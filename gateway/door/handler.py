"""The server's entry: a lean handler for the API, Django's stock one for the console.

The stock handler reads the whole body to disk before anything else runs, starts a thread a request and costs several
times what relaying does. The lean one runs no middleware and no thread: it checks the key and the size *before* the
body is read, and owns what the stock one does besides, which is the client's disconnect, the response's end, and HEAD.
Of Django it uses `ASGIRequest` and the resolver.
"""

import asyncio
import gc
import io
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import aclosing
from functools import lru_cache
from typing import Any, NamedTuple

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
os.environ.setdefault("DATABASE_ROLE", "console")

import django

django.setup()

from asgiref.sync import markcoroutinefunction
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.http.request import split_domain_port, validate_host
from django.urls import Resolver404, get_resolver

from accounts.callers import Caller
from billing.backbone.connections import Asker, Busy, Turns
from gateway.door.answers import Answer, Streamed
from gateway.door.authentication import authenticate, client_address
from gateway.door.exchange import WHOLE_BODY
from gateway.door.session import has_session
from gateway.door.unknown import UNVERSIONED, no_such_endpoint
from gateway.door.view import (
    DEFAULT_DIALECT,
    ApiView,
    answered,
    body_too_large,
    failure,
    fields_of,
    new_request_id,
    origin,
)
from gateway.process import access_log, process
from gateway.process.arrivals import Arrival
from gateway.process.deadline import Deadline
from gateway.process.memory import FREE_BYTES, NOBODY, Share
from gateway.protocols import CHAT
from gateway.wire.dialects import named
from gateway.wire.errors import GatewayError, InvalidRequest, NotFound, Unavailable

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Whole = Callable[[], bytes | None]  # the body, if all of it is here

BODY_SECONDS = 30.0  # to receive a whole body
WATCH_AFTER_SECONDS = 0.25  # most answers are out before a watch for the client's leaving is worth a task
PIECE_BYTES = 256 * 1024  # of a long answer
CONSOLE_QUEUE = 100  # requests to the console that wait at once, by address
CONSOLE_BODY_BYTES = 8 * 1024 * 1024  # forms, and tables that are imported, of somebody who has logged in
LOGIN_BODY_BYTES = 64 * 1024  # of anybody
API_PATHS = (
    *("/v1", "/api", "/anthropic", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"),
    *(f"/{name}" for name in UNVERSIONED),
)


class ClientGone(Exception):
    """The client closed its connection."""


class Route(NamedTuple):
    """Where a path leads: a view, what `as_view` was given for it, and what the path itself says."""

    view: type[ApiView]
    options: dict[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class LeanRequest(ASGIRequest):
    """A request whose body is here already, in memory and counted.

    What else Django knows of a request, such as META, it works out once a view asks for it, and most never do.
    """

    def __init__(self, scope: Scope, body: bytes) -> None:
        self.scope = scope
        self.method = scope["method"]
        self._body = body

    def __getattr__(self, name: str) -> Any:
        if "META" in self.__dict__:  # Django's own `__init__` has run
            raise AttributeError(name)
        super().__init__(self.scope, io.BytesIO(self._body))
        return getattr(self, name)


class LeanHandler(ASGIHandler):
    """Serves the API's views."""

    def __init__(self) -> None:
        # The stock handler loads the middleware here; this one has none.
        self.resolver = get_resolver()
        self.stopping = False  # what is cancelled from now on is told so
        self._found: dict[str, Route] = {}
        self._most_bytes: int = settings.MAX_BODY_BYTES

    async def __call__(  # type: ignore[override]
        self, scope: Scope, receive: Receive, send: Send, whole: Whole | None = None
    ) -> None:
        """Answers one HTTP request."""
        task = asyncio.current_task()
        assert task is not None
        request_id, dialect, protocol = new_request_id(), DEFAULT_DIALECT, CHAT
        watch: _Watch | None = None
        arrival: Arrival | None = None
        ours = False
        share: Share | None = None
        caller: Caller | None = None
        view: ApiView | None = None
        status, since = 0, time.monotonic()  # 0: no answer has begun
        try:
            try:
                route = self._route(scope["method"], scope["path"])
                view = route.view(**route.options)
                protocol = view.protocol
                body = b""
                # A probe names whatever it reached us by.
                if view.for_pages and not _is_ours(fields_of(scope).get(b"host", b"")):
                    raise InvalidRequest("No host of this name is served here.", code="unknown_host")
                if not view.public and scope["method"] != "OPTIONS":  # a browser asks that before it sends a key
                    here = process.current()
                    caller = await authenticate(here.snapshots, *origin(scope))
                    dialect = named(caller.dialect)
                    view.arrival = arrival = here.arrivals.enter(caller, here.snapshots.current)
                    share = Share(caller.organization, caller.key)
                    here_already = None if whole is None else _taken(whole, self._most_bytes, share)
                    if here_already is None:
                        body = await _read_body(scope, receive, task, self._most_bytes, share)
                    else:
                        body = here_already
                    watch = _Watch(receive, task)
                    await here.rounds.turn(caller.organization)
                request = _request(scope, body)
                answer = await view.answer(request, request_id, *route.args, caller=caller, share=share, **route.kwargs)
            except ClientGone:
                return
            except Exception as error:
                answer = answered(failure(error, request_id, dialect, protocol), request_id, dialect, _page(scope))
            ours = answer.status in (500, 503)
            if watch is None and _announces_body(scope):
                answer.headers[b"connection"] = b"close"  # the body was not read, and is not worth it
            if share is not None and len(answer.body) > FREE_BYTES:
                share.keep(len(answer.body))
            status = answer.status
            if answer.error is not None and (arrival is None or not arrival.is_held):
                _note(answer.error, status, request_id, caller, view, scope)
            await _send(answer, scope, send)
        except TimeoutError:
            return
        except asyncio.CancelledError:
            if watch is not None and watch.gone:
                task.uncancel()
            elif self.stopping and not status:
                task.uncancel()
                answer = answered(failure(stopped(), request_id, dialect, protocol), request_id, dialect, _page(scope))
                await _send(answer, scope, send)
            else:
                raise
        finally:
            if watch is not None:
                watch.stop()
            if arrival is not None:
                arrival.ended(ours)
            if share is not None:
                share.free()
            if access_log.is_wanted(status):
                settled = None if view is None or view.call is None else view.call.settled
                access_log.write(request_id, scope["path"], caller, status, since, settled)

    def _route(self, method: str, path: str) -> Route:
        """Where `path` leads. Raises `NotFound`; the console's views are not served here, without middleware."""
        if (known := self._found.get(path)) is not None:
            return known
        try:
            match = self.resolver.resolve(path)
        except Resolver404 as error:
            raise no_such_endpoint(method, path) from error
        view = getattr(match.func, "view_class", None)
        if not isinstance(view, type) or not issubclass(view, ApiView):
            raise no_such_endpoint(method, path)
        route = Route(view, match.func.view_initkwargs, match.args, match.kwargs)  # type: ignore[attr-defined]
        if not match.args and not match.kwargs:  # so there are as many as fixed paths, whatever is asked for
            self._found[path] = route
        return route


def _request(scope: Scope, body: bytes) -> LeanRequest:
    query = scope["query_string"]
    try:
        query.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("The query string is not UTF-8.", code="invalid_query") from error
    if b"\0" in query or b"%00" in query:  # PostgreSQL takes none
        raise InvalidRequest("The query string has a NUL character.", code="invalid_query")
    return LeanRequest(scope, body)


def _note(
    error: GatewayError, status: int, request_id: str, caller: Caller | None, view: ApiView | None, scope: Scope
) -> None:
    """Has a refusal noted. What is open to everybody, such as a probe, is nobody's request."""
    if view is not None and view.public:
        return
    process.current().refused.note(
        error,
        status,
        request_id=request_id,
        caller=caller,
        method=scope["method"],
        path=scope["path"],
        model="" if view is None or view.call is None else view.call.asked.model,
        address=client_address(*origin(scope)),
    )


def _page(scope: Scope) -> bytes:
    return fields_of(scope).get(b"origin", b"")


@lru_cache(maxsize=1024)
def _is_ours(host: bytes) -> bool:
    """Whether `ALLOWED_HOSTS` has it. HTTP/1.0 may leave it out."""
    return not host or validate_host(split_domain_port(host.decode("latin-1"))[0], settings.ALLOWED_HOSTS)


def _announces_body(scope: Scope, *, more_than: int = 0) -> bool:
    """Whether a body of more bytes is to come, or one of unknown length."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and int(value) > more_than)
        for name, value in scope["headers"]
    )


def _goes_on(task: "asyncio.Task[Any]") -> bool:
    """Whether a task whose client has left has something to see to the end, as its call says."""
    return process.current().drains.left(task)


class _Watch:
    """Cancels the request's task when its client leaves, unless there is something to see to the end.

    The task it starts after a moment waits for the server's word of the disconnect; most requests end before that.
    """

    def __init__(self, receive: Receive, task: "asyncio.Task[Any]") -> None:
        self.gone = False
        self._receive = receive
        self._task = task
        self._waiting: asyncio.Task[None] | None = None
        self._timer = task.get_loop().call_later(WATCH_AFTER_SECONDS, self._start)

    def _start(self) -> None:
        self._waiting = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if not _goes_on(self._task):
            self._task.cancel()

    def stop(self) -> None:
        """Ends the watch."""
        self._timer.cancel()
        if self._waiting is not None:
            self._waiting.cancel()


def _taken(whole: Whole, limit: int, share: Share) -> bytes | None:
    """The body where all of it has come, as it mostly has: then there is nothing to wait for, by any deadline.

    Raises `BodyTooLarge`, `Unavailable`. None: it is to be read.
    """
    if (body := whole()) is not None:
        if (size := len(body)) > limit:
            raise body_too_large(limit)
        if size > FREE_BYTES:
            share.take(size)
    return body


async def _read_body(scope: Scope, receive: Receive, task: "asyncio.Task[Any]", limit: int, share: Share) -> bytes:
    """The body, in memory, of which `share` is taken.

    Raises `BodyTooLarge` as soon as it is known to be, `InvalidRequest` when it is too slow, `Unavailable`.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > limit:
            raise body_too_large(limit)
    deadline, due = Deadline(task), task.get_loop().time() + BODY_SECONDS
    parts: list[bytes] = []
    size = 0
    try:
        while True:
            message = await deadline.wait(receive(), due)
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise body_too_large(limit)
            if size > FREE_BYTES:
                share.take(size - share.held)
            parts.append(part)
            if not message.get("more_body", False):
                break
    except TimeoutError as error:
        raise InvalidRequest("The body took too long to arrive.", code="slow_body") from error
    finally:
        deadline.close()
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _send(answer: Answer, scope: Scope, send: Send) -> None:
    """Sends an answer, and ends it whatever happens: a generator that is left half-way would keep its upstream."""
    headers = answer.headers
    if isinstance(answer, Streamed):
        async with aclosing(answer.parts):
            await send({"type": "http.response.start", "status": answer.status, "headers": [*headers.items()]})
            await _send_parts(answer.body, answer.parts, send)
    else:
        headers[b"content-length"] = b"%d" % len(answer.body)
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.start", "status": answer.status, "headers": [*headers.items()]})
        if len(body) > PIECE_BYTES:
            await _send_parts(body[:PIECE_BYTES], _pieces(body, PIECE_BYTES), send)
        else:
            await send({"type": "http.response.body", "body": body, "more_body": False})


async def _pieces(body: bytes, beginning: int) -> AsyncGenerator[bytes]:
    """A long body in pieces, so that it waits here, counted, and not in the connection's buffer."""
    for at in range(beginning, len(body), PIECE_BYTES):
        yield body[at : at + PIECE_BYTES]


async def _send_parts(first: bytes, parts: AsyncGenerator[bytes], send: Send) -> None:
    """Sends the parts of an answer, `first` and the others. Each waits until the client has taken those before it."""
    part: bytes | None = first
    while part is not None:
        await send({"type": "http.response.body", "body": part, "more_body": True})
        part = await anext(parts, None)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def stopped() -> GatewayError:
    """What is told to whoever is still waiting when the time for a stop is over."""
    return Unavailable("The gateway was restarted before this was done.", code="gateway_stopped", retry_after=1)


async def _refuse(error: GatewayError, scope: Scope, send: Send) -> None:
    request_id = new_request_id()
    answer = answered(failure(error, request_id, DEFAULT_DIALECT), request_id, DEFAULT_DIALECT, None)
    answer.headers[b"connection"] = b"close"
    await _send(answer, scope, send)


class Application:
    """Sends each request to its handler, and starts and stops the process with the server."""

    def __init__(self, serve: str) -> None:
        if serve not in ("gateway", "console", "all"):
            raise ValueError(f"SERVE is {serve!r}; it must be gateway, console or all.")
        self.api = LeanHandler()
        self.serves_api = serve != "console"
        self.console = ASGIHandler() if serve != "gateway" else None
        # Each request has a thread and a connection to the database. Half of them at most for one address, so that who
        # floods the console, or takes an export byte by byte, leaves room for the others.
        most = settings.CONSOLE_REQUESTS
        self.console_turns = Turns(most, (most + 1) // 2, CONSOLE_QUEUE, settings.CONSOLE_SECONDS)
        self._here: process.Process | None = None

    def leave(self) -> None:
        """A stop has been asked for: `/readyz` says so."""
        if self._here is not None:
            self._here.leaving = True
            self._here.drains.give_up()  # what nobody waits for would keep us

    def cut(self, tasks: Iterable["asyncio.Task[Any]"]) -> None:
        """The time for a stop is over: ends what is open, `tasks` of requests, each in its own form."""
        self.api.stopping = True
        if self._here is not None:
            for call in list(self._here.open_calls):
                call.cut(stopped())
        for task in tasks:
            if not task.cancelling():
                task.cancel()

    @markcoroutinefunction
    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answers one connection of the server.

        It gives the handler's coroutine on: one of its own would be gone through whenever a request waits.
        """
        if scope["type"] == "lifespan":
            return self._live(receive, send)
        path: str = scope["path"]
        whole = scope.pop(WHOLE_BODY, None)  # it leads to what has the scope, and would close a circle
        if self.console is not None and not path.startswith(API_PATHS):
            return self._show_console(self.console, scope, receive, send)
        if self.serves_api or path == "/healthz":
            return self.api(scope, receive, send, whole)
        return _refuse(NotFound("The API is not served here."), scope, send)

    async def _show_console(self, console: ASGIHandler, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the stock handler on a body that is whole and not too long: it would write any length to the disk."""
        task = asyncio.current_task()
        assert task is not None
        with Share(NOBODY, NOBODY) as share:
            try:
                limit = LOGIN_BODY_BYTES
                if _announces_body(scope, more_than=limit) and await has_session(scope["headers"]):
                    limit = CONSOLE_BODY_BYTES
                parts = [await _read_body(scope, receive, task, limit, share)]
            except ClientGone:
                return
            except GatewayError as error:
                await _refuse(error, scope, send)
                return

            async def replayed() -> MutableMapping[str, Any]:
                if parts:
                    return {"type": "http.request", "body": parts.pop(), "more_body": False}
                return await receive()

            begun = False

            async def sent(message: MutableMapping[str, Any]) -> None:
                nonlocal begun
                begun = True
                await send(message)

            address = client_address(scope["headers"], (scope.get("client") or ("",))[0])
            asker = Asker(address, address)
            try:
                await self.console_turns.take(asker)
            except Busy:
                await _refuse(Unavailable("The console is busy. Try again shortly.", retry_after=2), scope, send)
                return
            try:
                await console(scope, replayed, sent)  # type: ignore[arg-type]
            except asyncio.CancelledError:
                if begun or not self.api.stopping:
                    raise
                task.uncancel()
                await _refuse(stopped(), scope, send)
            finally:
                self.console_turns.give(asker)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    if self.serves_api:
                        self._here = process.install()
                        await self._here.start()
                    _settle_memory()
                except Exception as error:
                    logger.exception("the gateway could not start")
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                if self._here is not None:
                    await self._here.stop()
                    process.uninstall()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _settle_memory() -> None:
    """What is loaded by now stays for good: the collector, a tenth of a request's cost otherwise, leaves it alone."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 50)
    gc.enable()


application = Application(settings.SERVE)
