"""Ids that sort by time: UUIDv7 (RFC 9562, 5.7), made by the process so that a batch can be sent twice safely."""

import os
import time
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# How far the clock of an id's maker and the database's may be apart: past it a process takes no work.
CLOCKS_APART = timedelta(minutes=1)

_FREE = 0xFFFFFFFFFFFF_0FFF_3FFFFFFFFFFFFFFF  # the bits that are not those of version and variant
_FIXED = 0x7 << 76 | 0b10 << 62
# Unique is all an id must be; who may see what it names is checked. One draw from the system a process is enough.
_noise = Random(os.urandom(32))  # noqa: S311 - see above


def new_hex() -> str:
    """A fresh UUIDv7 as 32 hex digits, as a request's ids are written everywhere but in the database.

    48 bits of Unix milliseconds, then 74 random bits. Text is made, compared and hashed for less than `UUID`.
    """
    return f"{(time.time_ns() // 1_000_000 << 80 | _noise.getrandbits(80)) & _FREE | _FIXED:032x}"


def new_id() -> UUID:
    """A fresh UUIDv7."""
    return UUID(new_hex())


def first_id(moment: datetime) -> UUID:
    """The least UUIDv7 of `moment` (aware), so that a range of time is a range of ids."""
    milliseconds = (moment - EPOCH) // timedelta(milliseconds=1)
    return UUID(int=milliseconds << 80 | 0x7 << 76 | 0b10 << 62)
