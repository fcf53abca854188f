"""`python -m gateway.door.server`: the web server, with what its HTTP parser leaves open closed.

httptools has no cap on headers and no timeout for a request that never becomes whole, so a client could hold sockets
for ever, or grow memory before any key is checked. And a socket that is closed while a request still arrives on it is
reset by the kernel, which can destroy the answer before the client has read it. The guard sits where the bytes come in
and where the connection ends.
"""

import argparse
import asyncio
import gc
import re
import secrets
import socket
import sys
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from typing import Any, cast
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.door.exchange import FIELDS, WHOLE_BODY, Exchange, Flow
from gateway.door.serving import CUT_SECONDS, Server, bind
from gateway.door.workers import Supervisor
from gateway.process import telemetry
from gateway.wire import strict_json
from gateway.wire.errors import GatewayError, HeadersTooLarge, InvalidRequest
from gateway.wire.header_fields import Fields, by_name

HEADER_BYTES = 64 * 1024
HEADER_FIELDS = 256
HEADER_SECONDS = 10.0
# Longer than clients and proxies keep an idle connection, so that it is they who end it and no request meets its end.
IDLE_SECONDS = 75
# What a client may still send once it has been refused, so that it can read why.
PARTING_SECONDS = 10.0
PARTING_BYTES = 128 * 1024 * 1024
STALL_SECONDS = 60.0  # a client that takes nothing of its answer for so long is gone
# Of what is read the parser is given so much at a time, and no more once a request waits for the answer before it: so
# many small requests can wait on a connection, and an attacker's megabyte of them costs a megabyte.
PIECE_BYTES = 1024
KNOWN_BYTES = 256  # a target up to here is remembered: most requests have the same few
HOST = re.compile(rb"[A-Za-z0-9._:\[\]-]*")  # RFC 9110, 7.2, without what no host name of ours has


class Connection:
    """A transport as uvicorn uses it, with two ways to end it that uvicorn does not know.

    After `part` our side is closed and the client's is not: what it still sends is counted and thrown away, until it
    ends, or sends too much, or takes too long.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._left = PARTING_BYTES
        # What of it is used elsewhere. A `__getattr__` would be in the way of every other name's look-up, too.
        self.write, self.writelines, self.abort = transport.write, transport.writelines, transport.abort
        self.get_extra_info, self.get_write_buffer_size = transport.get_extra_info, transport.get_write_buffer_size
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.unread = False  # more of the request is to come: `close` is `part` then
        self.parted = False

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self.parted or self._transport.is_closing()

    def close(self) -> None:
        """Ends the connection once what was written is out."""
        if self.unread:
            self.part()
        elif not self.is_closing():
            left = self._transport.get_write_buffer_size()
            self._transport.close()
            if left:
                self._timer = self._loop.call_later(STALL_SECONDS, self._stalled, left)

    def part(self) -> None:
        """Closes our side once what was written is out."""
        if not self.is_closing():
            self.parted = True
            self._transport.write_eof()
            if not self._transport.is_reading():
                self._transport.resume_reading()
            self._timer = self._loop.call_later(PARTING_SECONDS, self._transport.abort)

    def discard(self, size: int) -> None:
        """Counts bytes that nobody wants."""
        self._left -= size
        if self._left < 0:
            self._transport.abort()

    def lost(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()

    def _stalled(self, before: int) -> None:
        left = self._transport.get_write_buffer_size()
        if left >= before:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(STALL_SECONDS, self._stalled, left)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol with bounds on a request's head, and refusals that can be read."""

    flow: Flow
    _line: Connection
    _turn: Exchange | None = None  # whose answer it is; `cycle` is the last one whose head has come
    _unparsed: bytes | memoryview = b""  # what came behind the request that waits
    _came = 0  # of the body
    _clock: asyncio.TimerHandle | None = None
    _idle_since: float | None = None  # since when nothing has been asked
    _idle: asyncio.TimerHandle | None = None  # its timer, set anew when it fires early, and not for each answer
    _stall: asyncio.TimerHandle | None = None  # runs while the client has more to take than the connection keeps
    _in_head = False
    _in_trailer = False  # or between a chunk's size and its bytes
    _deaf = False  # what comes is not HTTP any more
    _head_bytes = 0
    _fault: GatewayError | None = None

    def connection_made(self, transport: Any) -> None:
        """Starts the clock of the first request."""
        self._line = Connection(transport, self.loop)
        super().connection_made(cast(asyncio.Transport, self._line))
        self.flow = Flow(cast(asyncio.Transport, self._line))
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clocks, and lets go of everything: what waits is never begun."""
        self._stop_clock()
        self._stop_stall()
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._line.lost()
        super().connection_lost(exc)
        if self._turn is not None:
            self._turn.disconnected = True
            self._turn.message_event.set()
        # The exchange that is answered finds the way here, for its end; the way back would close a circle.
        self.cycle = self._turn = None  # type: ignore[assignment]
        self._forget()

    def pause_writing(self) -> None:
        """No answer is written on until the client has taken what there is, or takes too long and is gone."""
        super().pause_writing()
        self._stop_stall()
        self._stall = self.loop.call_later(STALL_SECONDS, self._line.abort)

    def resume_writing(self) -> None:
        """The client has taken it."""
        self._stop_stall()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parses, unless nothing more is wanted."""
        if self._line.parted or self._deaf:
            self._line.discard(len(data))
            return
        self._idle_since = None
        self._take(data)

    def _take(self, data: bytes | memoryview) -> None:
        """Parses what came, up to the first request that has to wait; the rest waits with it, and nothing is read."""
        while data:
            if self.pipeline:
                self._unparsed = data
                return
            piece, data = data, b""
            if len(piece) > PIECE_BYTES:
                whole = memoryview(piece)
                end = max(PIECE_BYTES, self._body_left())
                piece, data = whole[:end], whole[end:]
            try:
                self._parse(piece)
            except httptools.HttpParserError:
                self._refuse(self._fault or _malformed())
            if self._line.is_closing() or self._deaf:
                return
            if self._in_head or self._in_trailer:
                self._head_bytes += len(piece)
                if self._head_bytes > HEADER_BYTES:
                    self._refuse(_headers_too_large())
                    return
        # Line ends between requests begin none, but they have stopped the clock of the idle connection.
        if self._in_head or (self._idle_since is None and not self._answering()):
            self._start_clock()

    def _body_left(self) -> int:
        """How much of what comes is the body of the present request for sure."""
        if not self._line.unread:
            return 0
        return next((int(value) for name, value in self.scope["headers"] if name == b"content-length"), 0) - self._came

    def on_message_begin(self) -> None:
        """A request begins: its head must be whole in time, and in bounds."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a field of the head."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole: its exchange begins, behind the one before. The body has a deadline of its own."""
        self._in_head = False
        self._stop_clock()
        parser, scope = self.parser, self.scope
        method, version = parser.get_method(), parser.get_http_version()
        fields = by_name(self.headers)
        self._fault = _fault_in_head(method, self.url, version, self.headers, fields)
        if self._fault is not None:
            raise self._fault  # the parser stops
        if parser.should_upgrade():
            return
        where = _known_target if len(self.url) <= KNOWN_BYTES else _target
        scope["method"], scope["http_version"] = method.decode("ascii"), version
        scope["path"], scope["raw_path"], scope["query_string"] = where(self.url)
        self._line.unread, self._came = True, 0
        busy = self._answering()
        self.cycle = Exchange(
            scope,
            self.transport,
            self.flow,
            self.logger,
            self.access_logger,
            False,
            self.server_state.default_headers,
            asyncio.Event(),
            b"100-continue" in fields.get(b"expect", b"").lower(),
            version == "1.1" and parser.should_keep_alive(),
            self.on_response_complete,
        )
        cast("dict[str, Any]", scope)[FIELDS] = fields
        if busy:
            self.flow.hold()
            self.pipeline.appendleft((self.cycle, self.app))
        else:
            self._begin(self.cycle)
        # Trailers (RFC 9110, 6.5) come as headers do, but after the key has been checked: they are not taken.
        self.headers = []

    def on_chunk_header(self) -> None:
        """A chunk's bytes come next or, after the last one's size, trailers, which are counted as a head is."""
        self._in_trailer, self._head_bytes = True, 0

    def on_body(self, body: bytes) -> None:
        """Takes a part of the body, unless the answer is out already."""
        self._in_trailer = False
        self._came += len(body)
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._in_trailer = False
        if not self.parser.should_upgrade():
            self._line.unread = False
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        """An answer is out: the next request's turn, and once none waits, what came behind them."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._forget()
            return
        if self.pipeline:
            self._begin(self.pipeline.pop()[0])
        if not self.pipeline:
            self.flow.release()
            if unparsed := self._unparsed:
                self._unparsed = b""
                self._take(unparsed)
        if not self._answering():
            self._idle_since = self.loop.time()
            if self._idle is None:
                self._idle = self.loop.call_later(self.timeout_keep_alive, self._look_whether_idle)

    def shutdown(self) -> None:
        """The server stops: a refused client has had its time."""
        if self._line.parted:
            self._line.abort()
        else:
            super().shutdown()

    def _parse(self, data: bytes | memoryview) -> None:
        """Feeds the parser. Who offers HTTP/2, as Java's client does at first, is answered in HTTP/1.1 (RFC 9110, 7.8).

        The parser stops at such a head, as if the body were another protocol's, so it is given the head anew, without
        the offer.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = bytes(data[upgrade.args[0] :])
            lines = [self.parser.get_method() + b" " + self.url + b" HTTP/1.1"]
            lines += [name + b": " + value for name, value in self.headers if name not in (b"connection", b"upgrade")]
            data = b"\r\n".join([*lines, b"", rest])
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own

    def _look_whether_idle(self) -> None:
        self._idle = None
        if self._idle_since is None:
            return  # the end of the answer that is awaited sets the timer
        over = self._idle_since + self.timeout_keep_alive
        if self.loop.time() < over:
            self._idle = self.loop.call_at(over, self._look_whether_idle)
        else:
            self.timeout_keep_alive_handler()

    def _begin(self, exchange: RequestResponseCycle) -> None:
        self._turn = cast(Exchange, exchange)
        # Not before: one that never begins would keep the circle that the application opens.
        cast("dict[str, Any]", exchange.scope)[WHOLE_BODY] = self._turn.whole_body
        self._start_asgi_task(exchange, self.app)

    def _answering(self) -> bool:
        return self._turn is not None and not self._turn.response_complete

    def _forget(self) -> None:
        """What waits is never begun."""
        self.pipeline.clear()
        self._unparsed = b""

    def _refuse(self, error: GatewayError) -> None:
        """Answers, and ends the connection. In the place of another request's answer nothing is said."""
        self._stop_clock()
        turn = self._turn
        if turn is not None and not turn.response_complete:
            if self.pipeline or not turn.more_body:  # what came belongs to another request: this one is still answered
                self._forget()
                turn.keep_alive = False
                self._deaf = self._line.unread = True
                return
            if turn.response_started:
                self._line.abort()
                return
            # It waits for a body that will not come.
            turn.disconnected = True
            turn.message_event.set()
        body = strict_json.dumps(error.body())
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
            f"x-request-id: {secrets.token_hex(16)}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._line.write(head.encode() + body)
        self._line.part()
        telemetry.answers.count(error.status)

    def _start_clock(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(HEADER_SECONDS, self._too_slow)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _stop_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _too_slow(self) -> None:
        self._clock = None
        if self._answering():
            self._start_clock()  # the next request of a client that waits for its answer to this one
        else:
            self._line.unread = False
            self._line.close()


def _target(url: bytes) -> tuple[str, bytes, bytes]:
    """The path of a request's target, also as it came, and its query."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


_known_target = lru_cache(maxsize=1024)(_target)


def _fault_in_head(
    method: bytes, url: bytes, version: str, headers: list[tuple[bytes, bytes]], fields: Fields
) -> GatewayError | None:
    """What the parser lets through, and a proxy in front might read otherwise (RFC 9112, 2.3, 3.2 and 6.1).

    Of a name that is there twice the `fields` have a list, with a comma that neither of these two may have.
    """
    size = len(url) + 4 * len(headers) + sum(map(len, chain.from_iterable(headers)))
    if size > HEADER_BYTES or len(headers) > HEADER_FIELDS:
        return _headers_too_large()
    host, coding = fields.get(b"host"), fields.get(b"transfer-encoding")
    if version == "1.1":
        valid = host is not None and (coding is None or coding.strip().lower() == b"chunked")
    else:
        valid = version == "1.0" and coding is None
    if method == b"CONNECT":  # we are no proxy
        valid = False
    return None if valid and (host is None or HOST.fullmatch(host)) else _malformed()


def _malformed() -> GatewayError:
    return InvalidRequest("The request is not valid HTTP/1.1.", code="malformed_http")


def _headers_too_large() -> GatewayError:
    return HeadersTooLarge(f"The headers are larger than {HEADER_BYTES} bytes, or more than {HEADER_FIELDS}.")


def main() -> int:
    """Serves until SIGTERM or SIGINT; how it ends is `serving`'s matter. Gives the exit status."""
    parser = argparse.ArgumentParser(prog="gateway.door.server", description="The web server of gateway and console.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--notice", type=float, default=0, help="seconds after SIGTERM until no request is taken")
    parser.add_argument("--drain", type=float, default=30, help="seconds open requests may take from then on")
    parser.add_argument("--share-port", action="store_true", help="a successor may take the port before we end")
    parser.add_argument("--listener", type=int, help=argparse.SUPPRESS)  # what a worker is given
    parser.add_argument("--supervisor", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.listener is not None:
        listener = socket.socket(fileno=options.listener)
    else:
        try:
            listener = bind(options.host, options.port, shared=options.share_port)
        except OSError as error:
            parser.exit(1, f"{options.host} port {options.port} cannot be used: {error.strerror}\n")
    if options.workers > 1 and options.listener is None:
        command = [sys.executable, "-m", "gateway.door.server", *sys.argv[1:]]
        patience = options.notice + options.drain + 2 * CUT_SECONDS
        return Supervisor(command, listener, options.workers, patience).run()
    config = uvicorn.Config(
        "gateway.door.handler:application",
        loop="uvloop",
        http="gateway.door.server:GuardedProtocol",
        ws="none",
        access_log=False,
        server_header=False,
        # Which hop to believe is `authentication`'s business; here it costs and could be spoofed.
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        log_config=None,  # the lines are Django's settings' to shape
    )
    supervisor = None if options.supervisor is None else socket.socket(fileno=options.supervisor)
    gc.disable()  # until the application is up: nothing of it is garbage, and to look takes a fifth of the start
    server = Server(config, notice=options.notice, drain=options.drain, supervisor=supervisor)
    server.run([listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
