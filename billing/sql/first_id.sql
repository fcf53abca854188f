-- The least UUIDv7 of a moment: a range of time is a range of ids.
create or replace function billing_first_id(p_moment timestamptz)
returns uuid
language sql immutable as $$
    select (lpad(to_hex(floor(extract(epoch from p_moment) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid;
$$;
