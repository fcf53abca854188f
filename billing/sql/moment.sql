-- When a UUIDv7 was made, by the clock of its maker, to the millisecond.
create or replace function billing_moment(p_id uuid)
returns timestamptz
language sql immutable parallel safe as $$
    select to_timestamp(('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0);
$$;
