"""Reading the books: in turn with the other tenants, and so many times a minute, key and endpoint, counted in
PostgreSQL for all processes.

Windows are the minutes of the database's clock. A key has one row an endpoint, whatever the traffic; the table is
unlogged, so a crash of the server forgets a minute of counts and nothing else.
"""

from collections.abc import Sequence
from typing import Any

from django.conf import settings

from accounts.callers import Caller
from billing.backbone.connections import Asker, DatabaseAway
from gateway.process import process
from gateway.wire.errors import TooManyReads, Unavailable

# The row's lock orders what arrives at once. A call that waited for it may come from the minute before: it counts in
# the newer one, and does not wind the window back. One that begins later is of before the clock was set back.
_GOES_ON = "c.minute between excluded.minute and clock_timestamp() + interval '1 minute'"
COUNT = f"""
    insert into gateway_readcount as c (key, endpoint, minute, reads)
    values (%s, %s, date_trunc('minute', clock_timestamp(), 'UTC'), 1)
    on conflict (key, endpoint) do update
       set reads = case when {_GOES_ON} then c.reads + 1 else 1 end,
           minute = case when {_GOES_ON} then c.minute else excluded.minute end
    returning reads, ceil(extract(epoch from minute + interval '1 minute' - clock_timestamp()))::integer
"""  # noqa: S608 - constants of ours


async def read(caller: Caller, query: str, params: Sequence[object] | dict[str, object]) -> list[tuple[Any, ...]]:
    """The rows of a query on the books. Raises `Unavailable` while the database is away, or too many read them."""
    try:
        return await process.current().pools.reads.call(query, params, Asker(caller.organization, caller.key))
    except DatabaseAway as error:
        raise Unavailable("The books cannot be read just now.", retry_after=1) from error


async def count_read(caller: Caller, endpoint: str) -> None:
    """Counts one read of `endpoint` by the caller's key, refused ones too.

    Raises `TooManyReads` past the `MANAGEMENT_READS_A_MINUTE` setting (0: no limit), `Unavailable`.
    """
    most = settings.MANAGEMENT_READS_A_MINUTE
    if not most:
        return
    ((reads, left),) = await read(caller, COUNT, [caller.key, endpoint])
    if reads > most:
        raise TooManyReads(f"A key may read this {most} times a minute.", retry_after=max(left, 1))
