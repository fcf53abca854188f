-- How a counter's row is found and kept. Every write leaves a dead version of it behind, and while an old transaction is
-- open (a dump, an analyst) none of them can be cleared away. So `version` grows every 32 writes and is the last column of
-- both indexes: who takes the newest version first passes 32 dead ones at most, however many there are. In between, the
-- writes change no index.

-- Locks counters in the order of ids. Returns each as the last holder of its lock has left it, with the place of its row,
-- by which the transaction that holds the lock finds it again.
create or replace function billing_lock_counters(p_ids bigint[])
returns table (
    id bigint, subject uuid, measure text, period text, used numeric, held numeric, place tid
)
language plpgsql as $$
begin
    return query
    select c.id, c.subject, c.measure::text, c.period::text, c.used, c.held, c.place
      from (select i from unnest(p_ids) i order by i) q
     cross join lateral (
           select n.id, n.subject, n.measure, n.period, n.used, n.held, n.ctid as place
             from billing_counter n where n.id = q.i
            order by n.version desc limit 1 for no key update) c;
end
$$;

-- Makes the caller the only one to begin windows of these subjects until its transaction ends: the index that tells the
-- windows apart knows two rows of one from each other only while the first is new.
create or replace function billing_begin_windows(p_subjects uuid[])
returns void
language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtextextended(q.subject::text, 0))
       from (select distinct s as subject from unnest(p_subjects) s order by s) q;
end
$$;
