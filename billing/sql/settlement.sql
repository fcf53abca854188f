-- Ends holds: by what the process knows (billing_settle) or, when the process died, without it (billing_resolve).

-- The postings of one closing transaction. There is always one to the tenant's account, be it of nothing. Mostly one
-- provider takes something; of a stream that one began and another continued, each line of the arithmetic names its own.
create or replace function billing_postings(
    p_organization uuid, p_provider text, p_charge numeric, p_cost numeric, p_overrun numeric, p_arithmetic jsonb
)
returns table (debit text, credit text, amount numeric)
language sql immutable as $$
    select 'tenant:' || p_organization, 'revenue', coalesce(p_charge, 0)
    union all
    select 'overrun', 'revenue', p_overrun where p_overrun > 0
    union all
    select 'cost', 'provider:' || p_provider, p_cost
     where p_cost > 0 and not coalesce(p_arithmetic->0 ? 'provider', false)
    union all
    select 'cost', 'provider:' || (l->>'provider'), sum((l->>'provider_cost')::numeric)
      from jsonb_array_elements(p_arithmetic) l
     where p_cost is not null and coalesce(p_arithmetic->0 ? 'provider', false)
     group by l->>'provider' having sum((l->>'provider_cost')::numeric) > 0
$$;

-- The closing transactions of usage rows that have none: `settle`, or `void` when nothing is owed. Most are written with
-- their usage rows (billing_conclude), in the same words. They are dated as the generation is, by its hold, so that usage, ledger and budget's window are of one month; when
-- that month is closed, by the first moment that is open, with a note of the day that they are late for. The same
-- statement looks which is open: it has its lock on the ledger before its snapshot, so whoever closes a month and then
-- waits for the writers (billing_await_writers) has waited for all that did not see it closed.
create or replace function billing_close(p_ids uuid[])
returns void
language plpgsql as $$
begin
    -- Sorted, so that the ends bound what is looked at to the months it is in.
    select array_agg(i order by i) into p_ids from unnest(p_ids) i;
    insert into billing_ledgerentry (transaction, kind, generation, organization, debit, credit, amount, currency,
                                     created_at, late_of)
    select t.transaction, case when u.charge > 0 or u.provider_cost > 0 or u.overrun > 0 then 'settle' else 'void' end,
           u.id, u.organization, l.debit, l.credit, l.amount, 'USD', greatest(u.created_at, o.opens),
           case when u.created_at < o.opens then (u.created_at at time zone 'UTC')::date end
      from (select (max(c.month) + interval '1 month') at time zone 'UTC' as opens from billing_closedmonth c) o
     cross join billing_usage u
     cross join lateral (select gen_random_uuid() as transaction, u.id) t
     cross join lateral billing_postings(u.organization, u.provider, u.charge, u.provider_cost, u.overrun,
                                         u.arithmetic) l
     where u.id = any(p_ids) and u.id between p_ids[1] and p_ids[cardinality(p_ids)];
end
$$;

-- Notes the hours of usage rows that came so late that their rollup may not look at them again. Every note is a row of
-- its own: one that another transaction has written could be taken away before this one's usage is to be seen.
create or replace function billing_note_late(p_ids uuid[])
returns void
language plpgsql as $$
declare
    v_old uuid := billing_first_id(clock_timestamp() - interval '30 minutes');
begin
    if v_old > any(p_ids) then
        insert into billing_latehour (hour)
        select distinct date_trunc('hour', u.created_at, 'UTC')
          from billing_usage u where u.id = any(p_ids) and u.id < v_old;
    end if;
end
$$;

-- What settlements may take of hard budgets: what was held for each, and what the budgets still have once the rest of
-- the batch is settled. Locks every counter of the batch. p_over are those that owe more than was held, p_ended those
-- that settle; p_holds and p_held the holds there are. Gives the items, the rest of their charges made `overrun`.
create or replace function billing_cap(
    p_items jsonb, p_over uuid[], p_ended uuid[], p_holds uuid[], p_held numeric[]
)
returns jsonb
language plpgsql as $$
#variable_conflict use_column
declare
    -- one entry a hard budget, and what it still has
    b_counter bigint[]; b_room numeric[];
    -- one entry of p_over
    o_charge numeric[]; o_held numeric[]; o_counters jsonb[];
    v_taken numeric[] := '{}';
    v_more numeric; v_room numeric;
    i integer; b integer;
begin
    with mine as materialized (
        select (e->>'id')::uuid as id, coalesce((e->>'charge')::numeric, 0) as charge, e->'counters' as counters,
               coalesce((select p_held[h] from generate_subscripts(p_holds, 1) h
                          where p_holds[h] = (e->>'id')::uuid), 0) as held
          from jsonb_array_elements(p_items) e
    ), locked as materialized (
        select c.*
          from billing_lock_counters(array(
                   select jsonb_array_elements_text(m.counters)::bigint from mine m
                   union
                   select jsonb_array_elements_text(h.counters)::bigint from billing_hold h
                    where h.id = any(p_holds))) c
    ), given_back as (
        select n.counter, sum(m.held - m.charge) as money
          from mine m cross join lateral (select jsonb_array_elements_text(m.counters)::bigint as counter) n
         where m.id = any(p_ended) and m.id <> all(p_over)
         group by n.counter
    ), rooms as (
        select l.id, b.amount - l.used - l.held + coalesce(g.money, 0) as room
          from locked l
         cross join lateral (
               select a.amount, a.hard from billing_budget_of(l.id) a
               union all
               select p.granted, true
                 from billing_prepaid p where p.organization_id = l.subject and l.period = 'balance') b
          left join given_back g on g.counter = l.id
         where l.measure = 'money' and b.hard
    ), owing as (
        select array_agg(m.charge order by m.id) as charge, array_agg(m.held order by m.id) as held,
               array_agg(m.counters order by m.id) as counters
          from mine m where m.id = any(p_over)
    )
    select (select array_agg(r.id) from rooms r), (select array_agg(r.room) from rooms r),
           o.charge, o.held, o.counters
      into b_counter, b_room, o_charge, o_held, o_counters
      from owing o;

    for i in 1 .. cardinality(p_over) loop
        v_more := o_charge[i] - o_held[i];
        for b in 1 .. coalesce(cardinality(b_counter), 0) loop
            if o_counters[i] @> to_jsonb(b_counter[b]) then
                v_more := least(v_more, greatest(b_room[b], 0));
            end if;
        end loop;
        for b in 1 .. coalesce(cardinality(b_counter), 0) loop
            if o_counters[i] @> to_jsonb(b_counter[b]) then
                b_room[b] := b_room[b] - v_more;
            end if;
        end loop;
        v_taken := v_taken || (o_held[i] + v_more);
    end loop;

    return (
        select jsonb_agg(
                   case when v_taken[q.at] < (e->>'charge')::numeric
                        then e || jsonb_build_object('charge', v_taken[q.at]::text, 'basis', 'capped',
                                      'overrun', ((e->>'charge')::numeric - v_taken[q.at])::text)
                        else e end order by o)
          from jsonb_array_elements(p_items) with ordinality as a(e, o)
         cross join lateral (select array_position(p_over, (e->>'id')::uuid) as at) q
    );
end
$$;

-- Settles a batch. p_items: usage rows as JSON, without what is as usual (v_usual), plus what is needed without the hold:
--   counters [ids], tries [rows of billing_attempt], hard: a hard budget binds what it may take, see billing_cap.
-- Idempotent by generation id. A hold that was resolved meanwhile (its process seemed dead) is settled anew: the usage
-- row is updated in place and the ledger reverses and closes again. Returns settled | late | repeated for each id, and
-- what of its charge nobody pays.
create or replace function billing_conclude(p_items jsonb)
returns table (id uuid, outcome text, overrun numeric)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
    -- What a row says where its settlement does not: of most there is little to say.
    v_usual billing_usage := jsonb_populate_record(null::billing_usage, '{
        "upstream_id": "", "error": "", "finish_reason": "", "native_finish_reason": "", "attempts": 0,
        "prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0, "cache_write_5m_tokens": 0,
        "cache_write_1h_tokens": 0, "audio_input_tokens": 0, "image_input_tokens": 0, "reasoning_tokens": 0,
        "audio_output_tokens": 0, "web_searches": 0, "video_input_tokens": 0, "image_output_tokens": 0, "images": 0,
        "seconds": 0, "suspect": false, "charge": 0, "provider_cost": 0, "overrun": 0, "arithmetic": []}');
    v_ids uuid[];
    v_count integer;
    v_fresh uuid[];
    v_late uuid[] := '{}';
    v_over uuid[];  -- those that owe more than was held for them, or come when their hold is gone: few
    v_rest uuid[];  -- those whose closing transaction is still to be written
    -- one entry a hold
    h_id uuid[]; h_counters jsonb[]; h_money numeric[]; h_tokens bigint[];
    -- one entry a counter: what is added to it and given back on it, by measure
    d_id bigint[]; d_charge numeric[]; d_tokens numeric[]; d_held_money numeric[]; d_held_tokens numeric[];
    d_open numeric[]; d_at tid[];
begin
    select array_agg(distinct (e->>'id')::uuid), count(*) into v_ids, v_count
      from jsonb_array_elements(p_items) e;
    if cardinality(v_ids) < v_count then
        -- A settlement that still waited for its commit came from the spool as well. The first one counts.
        select jsonb_agg(q.e) into p_items
          from (select distinct on ((e->>'id')::uuid) e
                  from jsonb_array_elements(p_items) with ordinality as a(e, o) order by (e->>'id')::uuid, o) q;
    end if;

    with locked as materialized (
        select h.id, h.counters, h.money, h.tokens
          from billing_hold h where h.id = any(v_ids) order by h.id for update
    )
    select array_agg(l.id), array_agg(l.counters), array_agg(coalesce(l.money, 0)), array_agg(l.tokens)
      into h_id, h_counters, h_money, h_tokens from locked l;

    select coalesce(array_agg(q.id order by q.id), '{}') into v_over
      from (select (e->>'id')::uuid as id, (e->>'charge')::numeric as charge
              from jsonb_array_elements(p_items) e where (e->>'hard')::boolean) q
     where q.charge > coalesce(h_money[array_position(h_id, q.id)], 0);

    -- Usage rows and their closing transactions, as billing_close has them, in one statement: to begin another one, and
    -- to read the rows again, costs as much as to write them.
    with inserted as (
        insert into billing_usage
        select r.* from jsonb_populate_recordset(v_usual, p_items) r order by r.id
            on conflict (id) do nothing
        returning id, organization, provider, charge, provider_cost, overrun, arithmetic, created_at
    ), closed as (
        insert into billing_ledgerentry (transaction, kind, generation, organization, debit, credit, amount, currency,
                                         created_at, late_of)
        select t.transaction, case when u.charge > 0 or u.provider_cost > 0 or u.overrun > 0 then 'settle' else 'void' end,
               u.id, u.organization, l.debit, l.credit, l.amount, 'USD', greatest(u.created_at, o.opens),
               case when u.created_at < o.opens then (u.created_at at time zone 'UTC')::date end
          from (select (max(c.month) + interval '1 month') at time zone 'UTC' as opens from billing_closedmonth c) o
         cross join inserted u
         cross join lateral (select gen_random_uuid() as transaction, u.id) t
         cross join lateral billing_postings(u.organization, u.provider, u.charge, u.provider_cost, u.overrun,
                                             u.arithmetic) l
         where u.id <> all(v_over)
    )
    select coalesce(array_agg(inserted.id), '{}') into v_fresh from inserted;

    if cardinality(v_fresh) < cardinality(v_ids) then
        -- What others ended without us: our knowledge wins, once.
        perform 1 from billing_usage u where u.id = any(v_ids) and u.id <> all(v_fresh) order by u.id for update;
        with updated as (
            update billing_usage u
               set status = r.status, error = r.error, finish_reason = r.finish_reason,
                   native_finish_reason = r.native_finish_reason, attempts = r.attempts, ttft_ms = r.ttft_ms,
                   duration_ms = r.duration_ms, prompt_tokens = r.prompt_tokens,
                   completion_tokens = r.completion_tokens, cached_tokens = r.cached_tokens,
                   cache_write_5m_tokens = r.cache_write_5m_tokens, cache_write_1h_tokens = r.cache_write_1h_tokens,
                   audio_input_tokens = r.audio_input_tokens, image_input_tokens = r.image_input_tokens,
                   reasoning_tokens = r.reasoning_tokens, audio_output_tokens = r.audio_output_tokens,
                   web_searches = r.web_searches, video_input_tokens = r.video_input_tokens,
                   image_output_tokens = r.image_output_tokens, images = r.images, seconds = r.seconds,
                   basis = r.basis, suspect = r.suspect, provider = r.provider,
                   upstream_model = r.upstream_model, upstream_id = r.upstream_id,
                   tariff_version = r.tariff_version, charge = r.charge, provider_cost = r.provider_cost,
                   overrun = r.overrun, arithmetic = r.arithmetic, settled_at = r.settled_at, plan = r.plan,
                   service_tier = r.service_tier, queue_ms = r.queue_ms
              from jsonb_populate_recordset(v_usual, p_items) r
             where u.id = r.id and u.id <> all(v_fresh)
               and (u.status = 'abandoned' or u.error = 'not_dialled')
            returning u.id
        )
        select coalesce(array_agg(updated.id), '{}') into v_late from updated;

        -- Their closing transaction is undone first, by entries the other way round.
        insert into billing_ledgerentry (transaction, kind, generation, organization, debit, credit, amount, currency,
                                         created_at, late_of)
        select gen_random_uuid(), 'reverse', l.generation, l.organization, l.credit, l.debit, l.amount, l.currency,
               greatest(l.created_at, o.opens),
               coalesce(l.late_of, case when l.created_at < o.opens then (l.created_at at time zone 'UTC')::date end)
          from (select (max(c.month) + interval '1 month') at time zone 'UTC' as opens from billing_closedmonth c) o
         cross join billing_ledgerentry l
         where l.generation = any(v_late) and l.kind = 'void';
    end if;

    v_over := array(select i from unnest(v_over) i where i = any(v_fresh || v_late) order by i);
    v_rest := array(select distinct i from unnest(v_late || v_over) i);
    if v_over <> '{}' then
        p_items := billing_cap(p_items, v_over, v_fresh || v_late, h_id, h_money);
        update billing_usage u set charge = r.charge, overrun = r.overrun, basis = r.basis
          from jsonb_populate_recordset(v_usual, p_items) r
         where u.id = r.id and u.id = any(v_over);
    end if;

    if v_rest <> '{}' then
        perform billing_close(v_rest);
    end if;
    -- Sorted: the first is the oldest.
    if v_ids[1] < billing_first_id(v_now - interval '30 minutes') then
        perform billing_note_late(v_fresh || v_late);
    end if;

    insert into billing_attempt as a (id, generation, number, provider, upstream_model, started_at, duration_ms,
                                      ttft_ms, status, fault, upstream_status, model, credential, prompt_tokens,
                                      completion_tokens, offset_ms, connect_ms)
    select r.id, r.generation, r.number, r.provider, r.upstream_model, r.started_at, r.duration_ms, r.ttft_ms,
           coalesce(r.status, 'dialling'), coalesce(r.fault, ''), r.upstream_status, coalesce(r.model, ''), r.credential,
           r.prompt_tokens, r.completion_tokens, r.offset_ms, r.connect_ms
      from jsonb_array_elements(p_items) e
     cross join lateral jsonb_populate_recordset(null::billing_attempt, e->'tries') r
     where (e->>'id')::uuid = any(v_fresh || v_late)
        on conflict (id) do update
       set duration_ms = excluded.duration_ms, ttft_ms = excluded.ttft_ms, status = excluded.status,
           fault = excluded.fault, upstream_status = excluded.upstream_status, model = excluded.model,
           credential = excluded.credential, prompt_tokens = excluded.prompt_tokens,
           completion_tokens = excluded.completion_tokens, offset_ms = excluded.offset_ms,
           connect_ms = excluded.connect_ms;

    delete from billing_hold h where h.id = any(v_ids);

    -- What is owed is added once; what is held is given back for every hold that is there, whoever ended it before.
    select array_agg(d.counter), array_agg(d.charge), array_agg(d.tokens), array_agg(d.held_money),
           array_agg(d.held_tokens), array_agg(d.open)
      into d_id, d_charge, d_tokens, d_held_money, d_held_tokens, d_open
      from (
          select n.counter, sum(q.charge) as charge, sum(q.tokens) as tokens, sum(q.held_money) as held_money,
                 sum(q.held_tokens) as held_tokens, sum(q.open) as open
            from (
                -- Most of a batch have the same counters, whose list is then taken apart once.
                select m.counters, sum(m.charge) as charge, sum(m.tokens) as tokens, sum(m.held_money) as held_money,
                       sum(m.held_tokens) as held_tokens, sum(m.open) as open
                  from (
                      select e->'counters' as counters, coalesce((e->>'charge')::numeric, 0) as charge,
                             coalesce((e->>'prompt_tokens')::bigint, 0)
                             + coalesce((e->>'completion_tokens')::bigint, 0) as tokens,
                             0 as held_money, 0 as held_tokens, 0 as open
                        from jsonb_array_elements(p_items) e where (e->>'id')::uuid = any(v_fresh || v_late)
                      union all
                      select h_counters[h], 0, 0, h_money[h], h_tokens[h], 1
                        from generate_series(1, cardinality(h_counters)) h
                  ) m
                 group by m.counters
            ) q
           cross join lateral (select jsonb_array_elements_text(q.counters)::bigint as counter) n
           group by n.counter
      ) d;

    -- The counters last: every hold waits for them, and they are locked until the commit is on the disk. Whoever takes
    -- them first and writes these usage rows then (billing_end_holds) has had to wait for the holds, so there is no circle.
    select array_agg(l.place) into d_at from billing_lock_counters(d_id) l;
    update billing_counter c
       set used = c.used + case c.measure when 'money' then d_charge[array_position(d_id, c.id)]
                                          when 'tokens' then d_tokens[array_position(d_id, c.id)] else 0 end,
           held = c.held - case c.measure when 'money' then d_held_money[array_position(d_id, c.id)]
                                          when 'tokens' then d_held_tokens[array_position(d_id, c.id)]
                                          when 'open' then d_open[array_position(d_id, c.id)] else 0 end,
           writes = c.writes + 1
     where c.ctid = any(d_at);

    return query
    select q.id, case when q.id = any(v_fresh) then 'settled' when q.id = any(v_late) then 'late' else 'repeated' end,
           q.overrun
      from (select (e->>'id')::uuid as id, coalesce((e->>'overrun')::numeric, 0) as overrun
              from jsonb_array_elements(p_items) e) q;
end
$$;

-- As processes from before `billing_conclude` call it, and whoever drains the spool of a dead one.
create or replace function billing_settle(p_items jsonb)
returns table (id uuid, outcome text)
language plpgsql as $$
begin
    return query select c.id, c.outcome from billing_conclude_kept(p_items) c;
end
$$;

-- Ends holds whose rows the caller has locked, without a settlement: the tenant pays nothing. p_cost is the provider's
-- cost: 0 when nothing was dialled, NULL when nobody knows. A usage row that is there already stays as it is.
create or replace function billing_end_holds(p_ids uuid[], p_status text, p_basis text, p_error text, p_cost numeric)
returns void
language plpgsql as $$
declare
    v_now timestamptz := clock_timestamp();
    v_ended uuid[];
    -- one entry a counter
    d_id bigint[]; d_money numeric[]; d_tokens numeric[]; d_open bigint[]; d_at tid[];
begin
    select array_agg(d.counter), array_agg(d.money), array_agg(d.tokens), array_agg(d.open)
      into d_id, d_money, d_tokens, d_open
      from (select n.counter, sum(coalesce(h.money, 0)) as money, sum(h.tokens) as tokens, count(*) as open
              from billing_hold h
             cross join lateral (select jsonb_array_elements_text(h.counters)::bigint as counter) n
             where h.id = any(p_ids) group by n.counter) d;
    select array_agg(l.place) into d_at from billing_lock_counters(d_id) l;
    update billing_counter c
       set held = c.held - case c.measure when 'money' then d_money[array_position(d_id, c.id)]
                                          when 'tokens' then d_tokens[array_position(d_id, c.id)]
                                          when 'open' then d_open[array_position(d_id, c.id)] else 0 end,
           writes = c.writes + 1
     where c.ctid = any(d_at);

    with ended as (
        insert into billing_usage
        select r.*
          from billing_hold h
         cross join lateral jsonb_populate_record(null::billing_usage, h.facts || jsonb_build_object(
                   'id', h.id, 'key', h.key, 'model', h.model, 'status', p_status, 'basis', p_basis,
                   'error', p_error, 'provider_cost', p_cost, 'upstream_id', '', 'finish_reason', '',
                   'native_finish_reason', '',
                   'attempts', (select count(*) from billing_attempt a where a.generation = h.id),
                   'prompt_tokens', 0, 'completion_tokens', 0, 'cached_tokens', 0, 'cache_write_5m_tokens', 0,
                   'cache_write_1h_tokens', 0, 'audio_input_tokens', 0, 'image_input_tokens', 0,
                   'reasoning_tokens', 0, 'audio_output_tokens', 0, 'web_searches', 0, 'video_input_tokens', 0,
                   'image_output_tokens', 0, 'images', 0, 'seconds', 0, 'suspect', false,
                   'charge', 0, 'overrun', 0, 'arithmetic', '[]'::jsonb, 'created_at', h.created_at,
                   'settled_at', v_now)) r
         where h.id = any(p_ids)
         order by h.id
            on conflict (id) do nothing returning id
    )
    select coalesce(array_agg(ended.id), '{}') into v_ended from ended;
    perform billing_close(v_ended);
    perform billing_note_late(v_ended);

    update billing_attempt a set status = case when p_cost is null then 'unknown' else p_status end
     where a.generation = any(p_ids) and a.status = 'dialling';

    delete from billing_hold h where h.id = any(p_ids);
end
$$;

-- Ends up to p_limit holds of processes that are no more: nothing is known of them after a kill, so the tenant pays 0 and
-- the provider's cost is NULL. Several processes may call it at once. Returns how many it ended.
-- A process without a lease is dead: it has ended its lease, or somebody who knows has (billing_bury).
-- One that has been silent for p_dead may be paused, or cut off from here, and its streams go on. So what it holds of a
-- hard budget stays held until the request's own time is over (`seconds` among its facts), when the process, if it lives,
-- has ended the stream itself; else others would spend the money that its settlement is going to need. When the database
-- was away, everybody's lease is old, and whoever comes back first must not take the others for dead: p_lease has to be
-- alive without a gap for as long as the living need to say so. A heartbeat from further ahead than p_dead is from before
-- the database's clock was set back, and says nothing.
create or replace function billing_resolve(p_lease uuid, p_dead interval, p_limit integer)
returns integer
language plpgsql as $$
declare
    v_now timestamptz := clock_timestamp();
    v_judge boolean := exists (
        select 1 from billing_lease l where l.id = p_lease and l.started_at < v_now - interval '10 seconds');
    v_ids uuid[];
begin
    select array_agg(q.id) into v_ids from (
        select h.id from billing_hold h left join billing_lease l on l.id = h.lease
         where l.id is null
            or v_judge and l.heartbeat_at not between v_now - p_dead and v_now + p_dead
               and (not h.hard
                    or h.created_at < v_now - make_interval(secs => coalesce((h.facts->>'seconds')::float8, 3600)))
         order by h.id limit p_limit
           for update of h skip locked
    ) q;
    if v_ids is null then
        return 0;
    end if;
    perform billing_end_holds(v_ids, 'abandoned', 'unknown', 'process_died', null);
    return cardinality(v_ids);
end
$$;

-- Gives back holds that were granted after their request had stopped waiting: nothing was dialled. Ids without a hold
-- are passed over.
create or replace function billing_give_back(p_ids uuid[])
returns void
language plpgsql as $$
declare
    v_ids uuid[];
begin
    select array_agg(q.id) into v_ids from (
        select h.id from billing_hold h where h.id = any(p_ids) order by h.id for update
    ) q;
    if v_ids is not null then
        perform billing_end_holds(v_ids, 'cancelled', 'nothing', 'not_dialled', 0);
    end if;
end
$$;

-- Gives up holds whose settlements the tables do not take: what they used is written down elsewhere, for an operator.
create or replace function billing_give_up(p_ids uuid[])
returns void
language plpgsql as $$
declare
    v_ids uuid[];
begin
    select array_agg(q.id) into v_ids from (
        select h.id from billing_hold h where h.id = any(p_ids) order by h.id for update
    ) q;
    if v_ids is not null then
        perform billing_end_holds(v_ids, 'abandoned', 'unknown', 'settlement_refused', null);
    end if;
end
$$;

-- Says that a process is alive; also after it was thought dead. Silent for longer than p_gap, by a clock that was set
-- perhaps, it begins a new life.
create or replace function billing_heartbeat(p_lease uuid, p_host text, p_pid integer, p_gap interval)
returns void
language sql as $$
    insert into billing_lease as l (id, host, pid, started_at, heartbeat_at)
    values (p_lease, p_host, p_pid, clock_timestamp(), clock_timestamp())
    on conflict (id) do update
       set host = excluded.host, pid = excluded.pid, heartbeat_at = excluded.heartbeat_at,
           started_at = case when l.heartbeat_at between excluded.heartbeat_at - p_gap and excluded.heartbeat_at + p_gap
                             then l.started_at else excluded.started_at end;
$$;

-- A new budget starts with what has been spent in the running period of what it counts; one for each end user with what
-- each of them has, as many as there is room for, those first that spent most. Runs as its owner, since the console may not
-- write counters. Requests that are open at this moment hold nothing on it and settle unseen by it.
create or replace function billing_seed_counter(p_budget bigint)
returns void
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_now timestamptz := clock_timestamp();
    -- What is open began after this, so older rows do not change any more.
    v_recent uuid := billing_first_id(v_now - interval '1 hour');
    v_last constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    v_budget billing_budget;
    v_start timestamptz;
    v_from uuid;
    v_scope uuid;
    -- Who has a counter of it: end users, or nobody (null) for all calls together. And what some have spent long ago.
    v_users text[];
    o_user text[]; o_charge numeric[];
    v_counters bigint[];
begin
    select * into strict v_budget from billing_budget b where b.id = p_budget;
    v_start := billing_window(v_budget.period, v_now, v_budget.time_zone);
    v_from := billing_first_id(v_start - interval '1 hour');  -- an id is made a moment before its hold
    v_scope := billing_scope(v_budget.subject, v_budget.model, nullif(v_budget.end_user, ''));
    perform billing_begin_windows(array[v_budget.subject, v_budget.organization_id]);

    -- The long sum, before the lock that every hold of this organization would wait for.
    select array_agg(s.who order by s.charge desc), array_agg(s.charge order by s.charge desc) into o_user, o_charge
      from billing_spent(v_budget, v_start, v_from, v_recent) s;
    -- And what was dropped, months before any window but that of 'total' begins; whose it was among end users nobody knows.
    if v_budget.period = 'total' and v_budget.end_user = '' then
        select array_append(o_user, null::text), array_append(o_charge, coalesce(sum(r.charge), 0)) into o_user, o_charge
          from billing_spendrollup r
         where r.span = 'kept' and r.organization = v_budget.organization_id
           and (v_budget.project_id is null or r.project = v_budget.project_id)
           and (v_budget.key_id is null or r.key = v_budget.key_id)
           and (v_budget.model = '' or r.model = v_budget.model);
    end if;
    v_users := case when v_budget.end_user <> '*' then array[nullif(v_budget.end_user, '')]
                    else o_user || array(
                        select s.who from billing_spent(v_budget, v_start, greatest(v_from, v_recent), v_last) s
                        except select unnest(o_user)) end;

    with made as (
        insert into billing_counter (organization, subject, measure, period, period_start, used, held,
                                     owner, model, end_user)
        select v_budget.organization_id, q.scope, 'money', v_budget.period, v_start, 0, 0,
               case when q.scope <> v_budget.subject then v_budget.subject end, v_budget.model, q.who
          from (select w.o, w.who, billing_scope(v_budget.subject, v_budget.model, w.who) as scope
                  from unnest(v_users) with ordinality as w(who, o)) q
         where not exists (
               select 1 from billing_counter n where n.subject = q.scope and n.measure = 'money'
                  and n.period = v_budget.period and n.period_start = v_start)
         order by q.o
         limit case when v_budget.end_user = '*' then greatest(billing_most_end_users() - coalesce((
                   select n.used from billing_counter n
                    where n.subject = v_budget.organization_id and n.measure = 'users'
                      and n.period = v_budget.period and n.period_start = v_start), 0), 0) end
        returning end_user
    )
    insert into billing_counter as n (organization, subject, measure, period, period_start, used, held)
    select v_budget.organization_id, v_budget.organization_id, 'users', v_budget.period, v_start, count(*), 0
      from made m where m.end_user is not null
    having count(*) > 0
        on conflict (subject, measure, period, period_start, version) do update set used = n.used + excluded.used;

    -- The counter of a budget that was there before and was deleted has missed what was spent since. Locked first, so
    -- that the sum, a later statement, sees every settlement that has written it.
    select array_agg(q.id) into v_counters
      from (select n.id
              from billing_counter n
             where v_budget.end_user <> '*' and n.subject = v_scope and n.measure = 'money'
               and n.period = v_budget.period and n.period_start = v_start
                or v_budget.end_user = '*' and n.owner = v_budget.subject and n.measure = 'money'
               and n.period = v_budget.period and n.period_start = v_start and n.model = v_budget.model
               and n.end_user is not null
             order by n.id
               for no key update) q;

    update billing_counter n
       set used = q.used
      from (select c.id, coalesce(sum(s.charge), 0) as used
              from billing_counter c
              left join (select * from unnest(o_user, o_charge) as o(who, charge)
                         union all
                         select * from billing_spent(v_budget, v_start, greatest(v_from, v_recent), v_last)) s
                on s.who is not distinct from c.end_user
             where c.id = any(v_counters)
             group by c.id) q
     where n.id = q.id;
end
$$;
