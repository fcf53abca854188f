"""The statements by which gateway processes share what rests, in `routing_ejection`. Times go in as seconds from now,
since the processes' clocks and the database's need not agree. An end that is further ahead than any rest is long was
written before the database's clock was set back, and says nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from routing.health.breaker import LONGEST_REST, PROBE_SECONDS, Subject
from routing.health.faults import Fault
from routing.health.rests import CLOCKS, REMEMBERED, Heard

TABLE = "routing_ejection"
_CAUSES = {fault.value: fault for fault in Fault}

# Narrowed by appending `and`.
QUERY = f"""
select e.offer_id, e.credential_id, e.cause,
       least(extract(epoch from e.until - clock_timestamp()), {LONGEST_REST})::float8,
       least(coalesce(extract(epoch from e.probed_until - clock_timestamp()), 0), {PROBE_SECONDS})::float8, e.count,
       e.closed_at is not null, e.organization_id
  from routing_ejection e
 where (e.closed_at is null or not exists (
         select 1 from routing_ejection o where o.offer_id is not distinct from e.offer_id
            and o.credential_id is not distinct from e.credential_id and o.closed_at is null))
"""  # noqa: S608 - constants of ours

# Parameters: id, offer, credential, organization, cause, seconds, count. What another process opened meanwhile is one
# with this; if it did so for another organization it is for all from now on, and counts from here, unless that was long
# ago.
_WIDENED = "(e.organization_id is not null and excluded.organization_id is distinct from e.organization_id)"
_SET_BACK = f"e.until > clock_timestamp() + make_interval(secs => {LONGEST_REST})"
OPEN = f"""
insert into routing_ejection as e (
       id, offer_id, credential_id, organization_id, cause, opened_at, until, count, closed_by)
values (%s, %s, %s, %s, %s, clock_timestamp(), clock_timestamp() + make_interval(secs => %s), %s, '')
on conflict (offer_id, credential_id) where closed_at is null do update
   set cause = case when {_WIDENED} or excluded.until > e.until then excluded.cause else e.cause end,
       until = case when {_WIDENED} or {_SET_BACK} then excluded.until else greatest(e.until, excluded.until) end,
       count = case when {_WIDENED} then excluded.count else greatest(e.count, excluded.count) end,
       organization_id = case
           when e.organization_id = excluded.organization_id then e.organization_id
           when e.organization_id is not null and e.until < clock_timestamp() - make_interval(secs => {REMEMBERED})
           then excluded.organization_id end,
       probed_until = null, probed_by = null
returning 1
"""  # noqa: S608 - constants of ours

# Parameters: offer, credential.
CLOSE = """
update routing_ejection set closed_at = clock_timestamp(), closed_by = 'process', probed_until = null
 where offer_id is not distinct from %s and credential_id is not distinct from %s and closed_at is null
returning 1
"""

# Parameters: offer, credential, process.
RELEASE = """
update routing_ejection set probed_until = null
 where offer_id is not distinct from %s and credential_id is not distinct from %s and closed_at is null
   and probed_by = %s
returning 1
"""

# Parameters: offer, credential, process, seconds. Of several processes the row's lock lets one through; the others
# then see its probe. A process that asks again, not having heard the answer, gets the same one. To the one that decided
# the rest it ends a little before it does by the row, which was written later.
CLAIM = f"""
with wanted as (select %s::bigint as offer, %s::uuid as credential, %s::uuid as process, %s::float8 as seconds),
     claimed as (
    update routing_ejection e
       set probed_until = clock_timestamp() + make_interval(secs => w.seconds), probed_by = w.process
      from wanted w
     where e.offer_id is not distinct from w.offer and e.credential_id is not distinct from w.credential
       and e.closed_at is null and (e.until <= clock_timestamp() + make_interval(secs => {CLOCKS}) or {_SET_BACK})
       and (e.probed_until is null or e.probed_by = w.process or e.probed_until <= clock_timestamp()
            or e.probed_until > clock_timestamp() + make_interval(secs => w.seconds))
    returning 1)
select exists (select 1 from claimed),
       exists (select 1 from routing_ejection e, wanted w
                where e.offer_id is not distinct from w.offer and e.credential_id is not distinct from w.credential
                  and e.closed_at is null)
"""  # noqa: S608 - constants of ours


def from_rows(rows: Iterable[Sequence[Any]]) -> list[Heard]:
    """What rows of `QUERY` tell. A cause that this version does not know is an offer's fault like any other."""
    return [
        Heard(
            Subject(offer, credential),
            _CAUSES.get(cause, Fault.SERVER_ERROR),
            seconds,
            max(probed, 0.0),
            count,
            closed,
            organization,
        )
        for offer, credential, cause, seconds, probed, count, closed, organization in rows
    ]
