"""An upstream's answer, read as it comes: its body decoded, its connection given back, its faults in our words."""

import asyncio
import re
from collections.abc import Mapping

from aiohttp import ClientError
from aiohttp.client_exceptions import ClientConnectorError
from aiohttp.hdrs import CONTENT_ENCODING
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from gateway.upstream.connection import READ_BUFFER, Line
from gateway.upstream.content_coding import Inflater, Undecodable
from gateway.upstream.veil import Veil, Veiled
from gateway.wire.errors import UpstreamFault, let_go
from routing.egress import ForbiddenAddress
from routing.health.faults import Fault

MAX_BODY = 32 * 1024 * 1024
MOST_SAID = 500  # characters of an exception that are kept
RELEASE_SECONDS = 0.25  # How long a connection is worth waiting for when only its last bytes are missing.
_QUOTE = re.compile(r"(?<!\w)b?['\"].*", re.DOTALL)  # to the end of what is said; not the apostrophe of a word


class Reply:
    """An upstream's answer: its headers are in, its body is still to be read; what is read of it lies under the `veil`.

    Whoever holds a Reply reads it to the end, releases it or aborts it.
    """

    __slots__ = (
        *("_body", "_coding", "_ended", "_headers", "_inflater"),
        *("_failure", "_line", "_message", "_parts", "_size", "_veiled", "opened_in", "status"),
    )

    def __init__(self, line: Line, message: RawResponseMessage, body: StreamReader, veil: Veil | None = None) -> None:
        self.status: int = message.code
        self.opened_in = line.opened_in  # seconds that its connection took; 0: there was one
        self._message = message
        self._headers: Mapping[str, str] | None = None
        self._line: Line | None = line
        self._body = body
        self._ended = False  # read to its end
        if body is EMPTY_PAYLOAD:  # which has no buffer to look into
            self._give_back(line)
        coding = ", ".join(message.headers.getall(CONTENT_ENCODING, ())).strip().lower()
        self._coding = "" if coding == "identity" else coding
        self._inflater: Inflater | None = None
        self._veiled = Veiled(veil) if veil is not None else None
        self._failure: UpstreamFault | None = None  # waits for what came before it
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case names; a repeated header is joined with ", ".

        They are the upstream's: what of them a client sees is chosen elsewhere, and never content-encoding or
        content-length, for the body is given decoded.
        """
        if self._headers is None:
            self._headers = _headers(self._message)
        return self._headers

    def take(self) -> bytes | None:
        """What has come of the decoded body and was not taken; b"" at its end; None: it must be waited for.

        Raises `UpstreamFault`: TRUNCATED when the answer broke off (what had arrived is handed out first),
        INVALID_RESPONSE when it is not HTTP or cannot be decoded. The connection is then closed.
        """
        veiled = self._veiled
        if veiled is None:
            return self._decoded() if self._coding else self._receive()
        if self._failure is not None:
            raise self._failure
        while True:
            try:
                data = self._decoded() if self._coding else self._receive()
            except UpstreamFault as fault:
                if not (held := veiled.end()):
                    raise
                self._failure = fault
                return held
            if not data:
                return data if data is None else veiled.end()
            if data := veiled.feed(data):
                return data

    def _decoded(self) -> bytes | None:
        try:
            if self._inflater is None:
                self._inflater = Inflater(self._coding)
            while not (piece := self._inflater.pull()):
                data = self._receive()
                if data is None:
                    return None
                if not data:
                    self._inflater.finish()
                    return b""
                self._inflater.push(data)
            return piece
        except Undecodable as exc:
            self.abort()
            raise self._invalid(str(exc)) from exc

    async def coming(self) -> bytes:
        """What `take` will give, for one that it gave None. Raises what it raises.

        May be cancelled while it waits: no byte is lost.
        """
        while True:
            try:  # noqa: SIM105 (`suppress` is three calls more for every event)
                await self._body._wait("coming")
            except (ClientError, HttpProcessingError):
                pass  # `take` tells it, after what had come before
            if (data := self.take()) is not None:
                return data

    async def read(self) -> bytes:
        """What is there to `take`, or `coming`; may be cancelled and called again."""
        data = self.take()
        return await self.coming() if data is None else data

    async def read_all(self, limit: int = MAX_BODY) -> bytes:
        """The whole decoded body, at most `limit` bytes; may be cancelled and called again, as `read`.

        Raises what `read` raises, and INVALID_RESPONSE for a body past the limit, of which no more is read.
        """
        declared = self.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            self._size = limit + 1
        while self._size <= limit:
            piece = await self.read()
            if not piece:
                return b"".join(self._parts)
            self._parts.append(piece)
            self._size += len(piece)
        self.abort()
        self._parts.clear()
        raise self._invalid(f"the body is longer than {limit} bytes")

    def abort(self) -> None:
        """Close the connection now, whatever is unsent or unread. Safe to call at any time, also twice."""
        line, self._line = self._line, None
        if line is not None:
            line.drop()

    async def release(self) -> None:
        """Give the connection back when the body is at its end, or within a moment of it; else close it.

        For a caller that has what it wanted (`[DONE]`) before the last chunk was in; the rest is thrown away.
        """
        if self._line is None:
            return  # given back when its last byte was read
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                left = READ_BUFFER
                while self._line is not None and left > 0:
                    data = self._receive()
                    if data is None:
                        await self._body._wait("release")
                    else:
                        left -= len(data)
        except (TimeoutError, ClientError, HttpProcessingError, UpstreamFault):
            pass
        finally:
            self.abort()

    def _receive(self) -> bytes | None:
        """What has come and was not taken, coded as it came; b"" at the end; None: nothing yet."""
        if self._line is None:
            if self._ended:
                return b""
            raise UpstreamFault(Fault.TRUNCATED, "the reply was aborted", upstream_status=self.status)
        body = self._body
        failure = body.exception()
        # What came before a break is the caller's; aiohttp's public methods would withhold it.
        if body._buffer:
            data = body._read_nowait(-1)
            if failure is None and body.at_eof():
                self._give_back(self._line)
            return data
        if failure is not None:
            self.abort()
            let_go(failure)  # which the body keeps
            raise fault_of(failure, begun=True, status=self.status)
        if body.is_eof():
            self._give_back(self._line)
            return b""
        return None

    def _give_back(self, line: Line) -> None:
        self._line, self._ended = None, True
        line.lines.keep(line)

    def _invalid(self, detail: str) -> UpstreamFault:
        return UpstreamFault(Fault.INVALID_RESPONSE, detail, upstream_status=self.status)


def _headers(message: RawResponseMessage) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in message.raw_headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def fault_of(exc: BaseException, *, begun: bool = False, status: int | None = None) -> UpstreamFault:
    """aiohttp's exception as ours. `begun`: a byte of the answer had come; `status`: the answer's, if known."""
    cause = exc.os_error if isinstance(exc, ClientConnectorError) else exc
    if isinstance(cause, ForbiddenAddress):
        kind = Fault.FORBIDDEN_ADDRESS
    elif isinstance(cause, HttpProcessingError):
        kind = Fault.INVALID_RESPONSE
    else:
        kind = Fault.TRUNCATED if begun else Fault.UNREACHABLE
    # A body that stops being HTTP is one that nobody can read.
    unreadable = kind is Fault.INVALID_RESPONSE and status is not None
    said = str(cause)
    if not isinstance(cause, OSError):
        # The library quotes what it could not read. That may be an answer, or a part of our secret that no veil knows.
        said = _QUOTE.sub("…", said)
    detail = f"{type(cause).__name__}: {said[:MOST_SAID]}"
    return UpstreamFault(kind, detail, upstream_status=status, unreadable=unreadable)
