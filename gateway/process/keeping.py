"""An answer on its way to a client that sent an Idempotency-Key, kept as it goes out: for the same request again.

It is packed in blocks: streams repeat themselves, and a long one takes a tenth of its bytes. What comes in one long
part is kept as it is, since packing it would hold up the loop. It counts in the process's memory, and past its bounds
it is let go: the claim then says so. Sealed for its claim and its generation, a copied row does not open.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from accounts.sealing import open_bytes, seal_bytes
from billing.backbone.claims import Claim
from billing.backbone.settlement import Kept
from gateway.process.memory import FREE_BYTES, NoRoom, Share
from gateway.wire.errors import GatewayError

MOST_BYTES = 8 << 20  # of an answer
MOST_PACKED = 2 << 20  # and of what is kept of it: it is a line of the spool, and of a batch of settlements
BLOCK = 64 * 1024
_HEAD = struct.Struct(">?I")  # of a block: whether it is packed, and its bytes


class Told(Protocol):
    """An answer as it goes out: `gateway.door.answers.Answer`."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Replayed(msgspec.Struct, frozen=True):
    """An answer as it was told."""

    status: int
    headers: dict[str, str]
    body: bytes


class Keeping:
    """What is kept for one `claim`, until its settlement.

    - `head`: the status and headers that an answer has which goes well
    - `tell`: makes what the client is told of an error before its answer has begun
    - `held`: the request is held for, so whoever settles it ends the claim as well
    """

    def __init__(
        self,
        claim: Claim,
        head: Callable[[], tuple[int, Mapping[bytes, bytes]]],
        tell: Callable[[GatewayError], Told],
    ) -> None:
        self.claim = claim
        self.held = False
        self._head: Callable[[], tuple[int, Mapping[bytes, bytes]]] | None = head
        self._tell: Callable[[GatewayError], Told] | None = tell
        self._memory = Share(claim.organization, claim.key)
        self._fresh: list[bytes] = []
        self._fresh_bytes = 0
        self._packed: list[bytes] = []
        self._packed_bytes = 0
        self._bytes = 0
        self._lost = False

    def take(self, part: bytes) -> None:
        """A part of the answer that is about to go out."""
        if self._lost:
            return
        self._bytes += len(part)
        if self._bytes > MOST_BYTES or self._packed_bytes > MOST_PACKED:
            self.drop()
            return
        if len(part) > BLOCK:
            self._pack()
            self._put(part, packed=False)
        else:
            self._fresh.append(part)
            self._fresh_bytes += len(part)
            if self._fresh_bytes > BLOCK:
                self._pack()
        kept = self._packed_bytes + self._fresh_bytes
        if kept > max(FREE_BYTES, self._memory.held):
            try:
                self._memory.take(max(BLOCK, kept - self._memory.held))
            except NoRoom:
                self.drop()

    def answered(self, last: bytes) -> Kept:
        """What is to be kept, `last` being the last part."""
        self.take(last)
        return self._kept(*self._head()) if self._head is not None else Kept(self.claim.id, None)

    def refused(self, error: GatewayError) -> Kept:
        """What is to be kept of an answer that never began."""
        assert self._tell is not None
        told = self._tell(error)
        self.take(told.body)
        return self._kept(told.status, told.headers)

    def drop(self) -> None:
        """Nothing is kept, or no more."""
        self._lost = True
        self._head = self._tell = None  # whoever made them has this: the way back would close a circle
        self._fresh.clear()
        self._packed.clear()
        self._memory.free()

    def _kept(self, status: int, headers: Mapping[bytes, bytes]) -> Kept:
        self._pack()
        if self._packed_bytes > MOST_PACKED:
            self.drop()
        if self._lost:
            return Kept(self.claim.id, None)
        names = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        head = msgspec.json.encode((status, names)) + b"\n"
        content = b"".join((head, *self._packed))
        self.drop()
        return Kept(self.claim.id, seal_bytes(content, place(self.claim.id.hex, self.claim.generation)))

    def _pack(self) -> None:
        fresh = b"".join(self._fresh)
        self._fresh.clear()
        self._fresh_bytes = 0
        if fresh:
            self._put(zlib.compress(fresh, 1), packed=True)

    def _put(self, block: bytes, *, packed: bool) -> None:
        self._packed += (_HEAD.pack(packed, len(block)), block)
        self._packed_bytes += _HEAD.size + len(block)


def place(claim: str, generation: str) -> str:
    """What an answer is sealed for; both are 32 hex digits."""
    return f"answer {claim} of {generation}"


def opened(sealed: bytes, claim: str, generation: str) -> Replayed:
    """The answer that was kept. Raises `accounts.sealing.CannotOpen`."""
    content = open_bytes(sealed, place(claim, generation))
    at = content.index(b"\n") + 1
    status, headers = msgspec.json.decode(content[:at], type=tuple[int, dict[str, str]])
    parts = []
    while at < len(content):
        packed, length = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        block = content[at : at + length]
        parts.append(zlib.decompress(block) if packed else block)
        at += length
    return Replayed(status, headers, b"".join(parts))
