-- The only writers of kept answers and their shares.
--
-- Lock order: kept answers by id, then shares by organization, then what settlement.sql locks.

-- Claims what a client's idempotency key stands for, for the generations that are about to answer.
-- p_items: [{id, fingerprint, organization, key, generation}], under the lease of the process that will answer.
-- p_most: bytes that an organization may have kept in 24 hours; 0: any number.
-- Returns a row an item. verdict: claimed | running (a twin is) | done | lost (it is not kept) | other (another body) |
-- key (it may not be used any more) | full; answered: the generation that has the claim.
-- A claim is taken over after 24 hours, and when its process is dead: without a lease, or silent and its hold ended by
-- others. Until then its settlement may still come, from a spool perhaps.
-- Sent again after a lost connection, it returns what was recorded.
create or replace function billing_claim(p_lease uuid, p_items jsonb, p_most bigint)
returns table (generation uuid, verdict text, answered uuid)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
    v_item record;
    v_row billing_keptanswer;
    v_full boolean;
begin
    if not exists (
        select 1 from billing_lease l
         where l.id = p_lease
           and l.heartbeat_at between v_now - interval '15 seconds' and v_now + interval '15 seconds'
    ) then
        raise exception 'stale lease' using errcode = 'ML001';
    end if;

    -- In the order of ids: batches of several processes wait for each other's rows, and never in a circle.
    for v_item in
        select r.* from jsonb_to_recordset(p_items) as r(
               id uuid, fingerprint uuid, organization uuid, key uuid, generation uuid)
         order by r.id, r.generation
    loop
        generation := v_item.generation; answered := v_item.generation;
        if (select a.id from accounts_alive_key a where a.id = v_item.key) is null then
            verdict := 'key';
            return next;
            continue;
        end if;
        v_full := p_most > 0 and (
            select coalesce(sum(s.bytes), 0) >= p_most from billing_keptshare s
             where s.organization = v_item.organization and s.hour > v_now - interval '25 hours');
        verdict := null;
        while verdict is null loop
            insert into billing_keptanswer (id, fingerprint, organization, key, generation, lease, state, created_at)
            select v_item.id, v_item.fingerprint, v_item.organization, v_item.key, v_item.generation, p_lease,
                   'running', v_now
             where not v_full
                on conflict (id) do nothing;
            if found then
                verdict := 'claimed';
                exit;
            end if;
            select * into v_row from billing_keptanswer a where a.id = v_item.id for update;
            if not found then
                -- There is no room, or it was given back between the two statements.
                verdict := case when v_full then 'full' end;
                continue;
            end if;
            answered := v_row.generation;
            verdict := case
                when v_row.generation = v_item.generation then 'claimed'
                when v_row.created_at <= v_now - interval '24 hours' then 'free'
                when v_row.fingerprint <> v_item.fingerprint then 'other'
                when v_row.state <> 'running' then v_row.state
                when not exists (select 1 from billing_lease l where l.id = v_row.lease)
                     or not exists (select 1 from billing_hold h where h.id = v_row.generation)
                        and (select l.heartbeat_at not between v_now - interval '20 seconds'
                                                           and v_now + interval '20 seconds'
                               from billing_lease l where l.id = v_row.lease)
                    then 'free'
                else 'running'
                end;
            if verdict = 'free' then
                verdict := case when v_full then 'full' else 'claimed' end;
                answered := v_item.generation;
                update billing_keptanswer a
                   set fingerprint = v_item.fingerprint, generation = v_item.generation, lease = p_lease,
                       state = 'running', content = null, created_at = v_now
                 where a.id = v_item.id and not v_full;
            end if;
        end loop;
        return next;
    end loop;
end
$$;

-- Gives back claims that nothing was told under: refused before their hold, or cut off.
create or replace function billing_unclaim(p_ids uuid[], p_generations uuid[])
returns void
language plpgsql as $$
begin
    perform 1 from billing_keptanswer a where a.id = any(p_ids) order by a.id for update;
    delete from billing_keptanswer a
     using unnest(p_ids, p_generations) as r(id, generation)
     where a.id = r.id and a.generation = r.generation and a.state = 'running';
end
$$;

-- Settles a batch as billing_conclude does, and with it keeps the answers that its items have:
--   kept  {id: of the claim, content: sealed, in base64; null: too much to keep}
-- An answer is there for a twin if and only if it is charged. One whose claim was taken over is not kept.
create or replace function billing_conclude_kept(p_items jsonb)
returns table (id uuid, outcome text, overrun numeric)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
begin
    perform 1 from billing_keptanswer a
      where a.id in (select (e#>>'{kept,id}')::uuid from jsonb_array_elements(p_items) e)
      order by a.id for update;
    with told as (
        update billing_keptanswer a
           set state = case when k.content is null then 'lost' else 'done' end, content = k.content
          from (select (e#>>'{kept,id}')::uuid as id, (e->>'id')::uuid as generation,
                       decode(e#>>'{kept,content}', 'base64') as content
                  from jsonb_array_elements(p_items) e where e ? 'kept') k
         where a.id = k.id and a.generation = k.generation and a.state = 'running'
        returning a.organization, octet_length(a.content) as bytes
    )
    insert into billing_keptshare as s (organization, hour, bytes)
    select t.organization, date_trunc('hour', v_now, 'UTC'), sum(500 + coalesce(t.bytes, 0))  -- a row's own, about
      from told t group by t.organization order by t.organization
        on conflict (organization, hour) do update set bytes = s.bytes + excluded.bytes;
    return query
    select c.id, c.outcome, c.overrun
      from billing_conclude((
               select coalesce(jsonb_agg(e - 'kept' order by o), '[]')
                 from jsonb_array_elements(p_items) with ordinality as a(e, o))) c;
end
$$;

-- Deletes up to p_limit answers that are older than 24 hours, and as many whose key is gone; a key may be gone with its
-- organization. Returns how many of the old.
create or replace function billing_prune_answers(p_limit integer)
returns integer
language plpgsql as $$
declare
    v_now timestamptz := clock_timestamp();
    v_count integer;
begin
    with old as (
        select a.id from billing_keptanswer a
         where a.created_at <= v_now - interval '24 hours'
         limit p_limit for update skip locked
    )
    delete from billing_keptanswer a using old where a.id = old.id;
    get diagnostics v_count = row_count;
    with gone as (
        select a.id from billing_keptanswer a
         where not exists (select 1 from accounts_apikey k where k.id = a.key)
         limit p_limit for update skip locked
    )
    delete from billing_keptanswer a using gone where a.id = gone.id;
    delete from billing_keptshare s where s.hour <= v_now - interval '25 hours';
    return v_count;
end
$$;
