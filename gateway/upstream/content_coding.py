"""Undoing a Content-Encoding a piece at a time, under a cap. No I/O.

The gateway asks upstreams for the plain body (`Accept-Encoding: identity`); some compress all the same.
gzip and deflate are undone, since every Python can; br and zstd need libraries that are not installed, so a
body in them is a fault of the upstream, which was not asked for it.

A small body can hold a very large one, so nothing is inflated before it is asked for: `pull` makes at most
`PIECE` bytes, and what would blow up past `MAX_RATIO` is refused.
"""

import zlib

PIECE = 64 * 1024
# Deflate can reach 1032:1. Server-sent events, mostly boilerplate, stay below 100:1; the ratio is looked at
# only once `FREE` bytes have come out, since a short body of spaces is no attack.
MAX_RATIO = 200
FREE = 1024 * 1024
MAX_MEMBERS = 64  # gzip members in one body (RFC 1952, 2.2); each costs a copy of what follows it


class Undecodable(ValueError):
    """Not this coding, cut short, blown up past the ratio, or a coding we do not have."""


class Inflater:
    """Bytes of one encoded body in, its plain bytes out."""

    def __init__(self, coding: str) -> None:
        """`coding` is the Content-Encoding header's value; raises `Undecodable` for one that is not here."""
        self._gzip = coding in ("gzip", "x-gzip")  # RFC 9110, 8.4.1.3: the two are the same
        if not self._gzip and coding != "deflate":
            raise Undecodable("the body is in a content coding that was not asked for")
        self._inflate: zlib._Decompress | None = None
        self._pending = b""
        self._taken = 0
        self._made = 0
        self._members = 0

    def push(self, data: bytes) -> None:
        """Take the next bytes of the encoded body; nothing is inflated yet."""
        self._pending += data
        self._taken += len(data)

    def pull(self) -> bytes:
        """Up to `PIECE` plain bytes; empty when more has to be pushed. Raises `Undecodable`."""
        while self._pending or (self._inflate is not None and not self._inflate.eof):
            if self._inflate is None or self._inflate.eof:
                self._start()
            assert self._inflate is not None
            before = len(self._pending)
            try:
                piece = self._inflate.decompress(self._pending, PIECE)
            except zlib.error as exc:
                raise Undecodable("the compressed body is corrupt") from exc
            self._pending = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if piece:
                self._count(len(piece))
                return piece
            if len(self._pending) == before and not self._inflate.eof:
                break
        return b""

    def finish(self) -> None:
        """The encoded body has ended and `pull` is empty. Raises `Undecodable` when that is too early."""
        if self._taken and (self._inflate is None or not self._inflate.eof):
            raise Undecodable("the compressed body is cut short")

    def _start(self) -> None:
        """Open the first member, or a further one of gzip."""
        self._members += 1
        if self._members > (MAX_MEMBERS if self._gzip else 1):
            raise Undecodable("bytes follow the compressed body")
        if self._gzip:
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        else:
            # "deflate" is the zlib format (RFC 9110, 8.4.1.2), but some servers send it bare. A zlib
            # header's first byte names method 8; a bare stream begins so only if its first block is stored
            # with padding bits set, which no encoder does.
            zlib_header = self._pending[0] & 0x0F == 8
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS)

    def _count(self, made: int) -> None:
        self._made += made
        if self._made > FREE and self._made > MAX_RATIO * (self._taken - len(self._pending)):
            raise Undecodable("the compressed body blows up")
