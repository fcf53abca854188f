-- Sketches: how often a value fell into each of a fixed row of buckets, {bucket: count}. Buckets grow by a tenth, so a
-- bucket's middle is within 5 % of each of its values; two sketches are merged by adding. `routing/sketches.py` reads
-- them; both know the growth.

-- The bucket of a value; what is below 1 counts as 1.
create or replace function routing_bucket(p_value double precision)
returns integer
language sql immutable parallel safe as $$
    select ceil(ln(greatest(p_value, 1)) / ln(1.1::double precision))::integer;
$$;

-- How often each value is in an array: {value: count}.
create or replace function routing_tally(p_values anyarray)
returns jsonb
language sql immutable parallel safe as $$
    select coalesce(jsonb_object_agg(q.value, q.count), '{}')
      from (select v.value::text, count(*) from unnest(p_values) as v(value) group by v.value) q;
$$;

-- The sum of an array of such objects.
create or replace function routing_merge(p_tallies jsonb)
returns jsonb
language sql immutable parallel safe as $$
    select coalesce(jsonb_object_agg(q.key, q.count), '{}')
      from (select e.key, sum(e.value::bigint) as count
              from jsonb_array_elements(p_tallies) t cross join lateral jsonb_each_text(t) e group by e.key) q;
$$;

-- The value below which a share (0 to 1) of a sketch's values lies; NULL when it is empty.
create or replace function routing_quantile(p_sketch jsonb, p_share double precision)
returns double precision
language sql immutable parallel safe as $$
    select 2 * power(1.1::double precision, q.bucket) / 2.1
      from (select e.key::integer as bucket, sum(e.value::bigint) over (order by e.key::integer) as upto,
                   sum(e.value::bigint) over () as total
              from jsonb_each_text(p_sketch) e) q
     where q.upto >= greatest(1, ceil(p_share * q.total))
     order by q.bucket limit 1;
$$;
