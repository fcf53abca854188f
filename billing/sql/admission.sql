-- The only writers of counters, holds, attempts, usage and the ledger.
--
-- Lock order, everywhere: holds by id, then counters by id. Counters are read only after they are locked, in a statement
-- of its own, so that it sees what the last holder of the lock committed. Nothing here counts or sums other rows.

-- Takes room for every request of a batch, in arrival order, all or nothing over a request's counters.
-- p_items: [{id, attempt, key, model, fixed, rate, cap, min_cap, tokens, copies, facts}]
--   fixed     dollars of the worst case that do not depend on the output cap (null: the price is unknown)
--   rate      dollars an output token, all copies together
--   cap       output tokens wanted; lowered to what a hard budget covers, never below min_cap
--   tokens    input tokens at most; copies: how many answers (n)
--   facts     what a usage row needs if only the hold is left
-- Returns a row an item. verdict: admitted | key | unpriced | credit | requests | tokens | open.
-- Sent again after a lost connection, the same batch returns what was recorded.
create or replace function billing_admit(p_lease uuid, p_items jsonb)
returns table (
    id uuid, verdict text, output_cap bigint, money numeric, counters jsonb, hard boolean,
    retry_after integer, subject uuid, limit_value numeric, admitted_at timestamptz
)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
    v_minute timestamptz := date_trunc('minute', v_now, 'UTC');
    -- one entry a request, in arrival order
    r_id uuid[]; r_key uuid[]; r_fixed numeric[]; r_rate numeric[]; r_cap bigint[]; r_min bigint[];
    r_tokens bigint[]; r_copies integer[]; r_alive boolean[]; r_done boolean[];
    -- one entry a (key, budget or limit); `f_` and `t_` give a key's range of them
    c_key uuid[]; c_measure text[]; c_room numeric[]; c_hard boolean[]; c_subject uuid[];
    c_place integer[]; c_counter bigint[]; c_organization uuid[]; c_period text[]; c_start timestamptz[];
    f_ integer; t_ integer;
    -- one entry a counter
    n_id bigint[]; n_used numeric[]; n_held numeric[]; n_dirty boolean[];
    -- what is admitted
    a_id uuid[] := '{}'; a_cap bigint[] := '{}'; a_money numeric[] := '{}'; a_tokens bigint[] := '{}';
    a_counters jsonb[] := '{}'; a_hard boolean[] := '{}';
    i integer; j integer; p integer; n integer;
    v_verdict text; v_subject uuid; v_limit numeric; v_room numeric; v_left numeric; v_cap bigint; v_money numeric; v_tokens bigint;
    v_hard boolean; v_counters jsonb; v_last uuid; v_priced boolean;
begin
    -- A process whose lease went stale (it was paused) renews it before it may hold: others may be resolving its holds.
    if not exists (
        select 1 from billing_lease l where l.id = p_lease and l.heartbeat_at > v_now - interval '15 seconds'
    ) then
        raise exception 'stale lease' using errcode = 'ML001';
    end if;

    select array_agg(r.id order by r.o), array_agg(r.key order by r.o), array_agg(r.fixed order by r.o),
           array_agg(r.rate order by r.o), array_agg(r.cap order by r.o), array_agg(r.min_cap order by r.o),
           array_agg(r.tokens order by r.o), array_agg(r.copies order by r.o),
           array_agg(k.id is not null order by r.o)
      into r_id, r_key, r_fixed, r_rate, r_cap, r_min, r_tokens, r_copies, r_alive
      from rows from (jsonb_to_recordset(p_items) as (
               id uuid, key uuid, fixed numeric, rate numeric, cap bigint, min_cap bigint, tokens bigint,
               copies integer)) with ordinality
           as r(id, key, fixed, rate, cap, min_cap, tokens, copies, o)
      left join accounts_alive_key k on k.id = r.key;

    -- Which budgets and limits bind each key, sorted by key so that a key's stand together.
    select array_agg(c.key order by c.key, c.at), array_agg(c.organization order by c.key, c.at),
           array_agg(c.subject order by c.key, c.at), array_agg(c.measure order by c.key, c.at),
           array_agg(c.period order by c.key, c.at), array_agg(c.start order by c.key, c.at),
           array_agg(c.room order by c.key, c.at), array_agg(c.hard order by c.key, c.at)
      into c_key, c_organization, c_subject, c_measure, c_period, c_start, c_room, c_hard
      from (
          select s.key, s.organization, b.subject, 'money' as measure, b.period, b.amount as room, b.hard, 0 as at,
                 case b.period when 'day' then date_trunc('day', v_now, 'UTC')
                               when 'month' then date_trunc('month', v_now, 'UTC')
                               else timestamptz '2000-01-01 00:00:00+00' end as start
            from billing_key_subject s join billing_budget b on b.subject = s.subject
           where s.key = any(r_key)
          union all
          select s.key, s.organization, l.subject, l.measure,
                 case l.measure when 'open' then 'now' else 'minute' end, l.value, true, 1,
                 case l.measure when 'open' then timestamptz '2000-01-01 00:00:00+00' else v_minute end
            from billing_key_subject s join billing_limit l on l.subject = s.subject
           where s.key = any(r_key)
      ) c;

    if c_key is not null then
        -- Two batches that make the same window insert in the same order, so neither waits for the other in a circle.
        insert into billing_counter (organization, subject, measure, period, period_start, used, held)
        select distinct u.organization, u.subject, u.measure, u.period, u.start, 0::numeric, 0::numeric
          from unnest(c_organization, c_subject, c_measure, c_period, c_start)
               as u(organization, subject, measure, period, start)
         where not exists (
               select 1 from billing_counter n where n.subject = u.subject and n.measure = u.measure
                  and n.period = u.period and n.period_start = u.start)
         order by 2, 3, 4, 5
            on conflict do nothing;

        perform 1
           from billing_counter n
           join (select distinct u.* from unnest(c_subject, c_measure, c_period, c_start)
                        as u(subject, measure, period, start)) u
             on n.subject = u.subject and n.measure = u.measure and n.period = u.period and n.period_start = u.start
          order by n.id
            for no key update of n;

        select array_agg(q.id order by q.at), array_agg(q.place order by q.at)
          into c_counter, c_place
          from (select n.id, dense_rank() over (order by n.id) as place, u.at
                  from rows from (unnest(c_subject, c_measure, c_period, c_start)) with ordinality
                       as u(subject, measure, period, start, at)
                  join billing_counter n on n.subject = u.subject and n.measure = u.measure
                   and n.period = u.period and n.period_start = u.start) q;

        select array_agg(n.id order by n.id), array_agg(n.used order by n.id), array_agg(n.held order by n.id)
          into n_id, n_used, n_held
          from billing_counter n where n.id = any(c_counter);
        n_dirty := array_fill(false, array[cardinality(n_id)]);
    end if;

    -- Read after the locks: the first sending of this very batch may have committed while we waited.
    select array_agg(h.id is not null order by q.o) into r_done
      from unnest(r_id) with ordinality as q(id, o) left join billing_hold h on h.id = q.id;

    for i in 1 .. cardinality(r_id) loop
        continue when r_done[i];
        if not r_alive[i] then
            id := r_id[i]; verdict := 'key'; retry_after := null; subject := r_key[i]; limit_value := null;
            admitted_at := v_now;
            output_cap := null; money := null; counters := null; hard := null;
            return next;
            continue;
        end if;
        if v_last is distinct from r_key[i] then
            v_last := r_key[i];
            f_ := coalesce(array_position(c_key, v_last), 0);
            t_ := f_ - 1;
            while f_ > 0 and t_ < cardinality(c_key) and c_key[t_ + 1] = v_last loop
                t_ := t_ + 1;
            end loop;
        end if;

        v_verdict := 'admitted'; v_subject := null; v_limit := null; v_room := null; v_hard := false;
        v_priced := r_fixed[i] is not null and r_rate[i] is not null;
        v_cap := r_cap[i];
        if f_ > 0 then
            -- Money first: its verdict lowers the cap, which the token limits then count.
            for j in f_ .. t_ loop
                if c_measure[j] = 'money' and c_hard[j] then
                    v_hard := true;
                    p := c_place[j];
                    v_left := c_room[j] - n_used[p] - n_held[p];
                    if v_room is null or v_left < v_room then
                        v_room := v_left; v_subject := c_subject[j]; v_limit := c_room[j];
                    end if;
                end if;
            end loop;
            if v_hard and not v_priced then
                v_verdict := 'unpriced';
            elsif v_hard and r_fixed[i] + r_rate[i] * v_cap > v_room then
                if r_rate[i] > 0 then
                    v_cap := floor((v_room - r_fixed[i]) / r_rate[i]);
                else
                    v_cap := -1;
                end if;
                if v_cap < r_min[i] then
                    v_verdict := 'credit';
                end if;
            end if;
            if v_verdict = 'admitted' then
                v_subject := null; v_limit := null;
                for j in f_ .. t_ loop
                    p := c_place[j];
                    if c_measure[j] = 'requests' and n_used[p] + 1 > c_room[j]
                       or c_measure[j] = 'open' and n_held[p] + 1 > c_room[j]
                       or c_measure[j] = 'tokens'
                          and n_used[p] + n_held[p] + r_tokens[i] + v_cap * r_copies[i] > c_room[j] then
                        v_verdict := c_measure[j]; v_subject := c_subject[j]; v_limit := c_room[j];
                        exit;
                    end if;
                end loop;
            end if;
        end if;

        id := r_id[i]; verdict := v_verdict; subject := v_subject; limit_value := v_limit;
        admitted_at := v_now; hard := v_hard;
        if v_verdict <> 'admitted' then
            output_cap := null; money := null; counters := null;
            retry_after := case v_verdict
                when 'requests' then ceil(extract(epoch from v_minute + interval '1 minute' - v_now))
                when 'tokens' then ceil(extract(epoch from v_minute + interval '1 minute' - v_now))
                when 'open' then 1 end;
            return next;
            continue;
        end if;

        v_money := case when v_priced then r_fixed[i] + r_rate[i] * v_cap end;
        v_tokens := r_tokens[i] + v_cap * r_copies[i];
        v_counters := '[]'::jsonb;
        if f_ > 0 then
            for j in f_ .. t_ loop
                p := c_place[j];
                n_dirty[p] := true;
                if c_measure[j] = 'money' then
                    n_held[p] := n_held[p] + coalesce(v_money, 0);
                elsif c_measure[j] = 'requests' then
                    n_used[p] := n_used[p] + 1;
                elsif c_measure[j] = 'open' then
                    n_held[p] := n_held[p] + 1;
                else
                    n_held[p] := n_held[p] + v_tokens;
                end if;
            end loop;
            v_counters := to_jsonb(c_counter[f_:t_]);
        end if;
        a_id := a_id || r_id[i]; a_cap := a_cap || v_cap; a_money := array_append(a_money, v_money);
        a_tokens := a_tokens || v_tokens; a_counters := array_append(a_counters, v_counters);
        a_hard := a_hard || v_hard;
        output_cap := v_cap; money := v_money; counters := v_counters; retry_after := null;
        return next;
    end loop;

    if cardinality(a_id) > 0 then
        update billing_counter n set used = d.used, held = d.held
          from unnest(n_id, n_used, n_held, n_dirty) as d(id, used, held, dirty)
         where n.id = d.id and d.dirty;

        insert into billing_hold (id, lease, organization, project, key, model, money, tokens, output_cap, hard,
                                  counters, facts, created_at)
        select a.id, p_lease, (r.facts->>'organization')::uuid, (r.facts->>'project')::uuid, r.key, r.model, a.money,
               a.tokens, a.cap, a.hard, a.counters, r.facts, v_now
          from unnest(a_id, a_cap, a_money, a_tokens, a_counters, a_hard) as a(id, cap, money, tokens, counters, hard)
          join jsonb_to_recordset(p_items) as r(id uuid, key uuid, model text, facts jsonb) on r.id = a.id
            on conflict do nothing;

        insert into billing_attempt (id, generation, number, provider, upstream_model, started_at, status, fault)
        select r.attempt, a.id, 1, r.facts->>'provider', r.facts->>'upstream_model', v_now, 'dialling', ''
          from unnest(a_id) as a(id)
          join jsonb_to_recordset(p_items) as r(id uuid, attempt uuid, facts jsonb) on r.id = a.id
            on conflict do nothing;
    end if;

    return query
    select h.id, 'admitted', h.output_cap, h.money, h.counters, h.hard, null::integer, null::uuid,
           null::numeric, h.created_at
      from billing_hold h
      join unnest(r_id, r_done) as d(id, done) on d.id = h.id and d.done;
end
$$;

-- Writes further attempts before their dials. p_items: [{id, generation, number, provider, upstream_model, key}].
-- Returns whether each may be dialled: a key revoked since the hold makes no further call.
create or replace function billing_attempt_again(p_items jsonb)
returns table (id uuid, alive boolean)
language plpgsql as $$
#variable_conflict use_column
begin
    insert into billing_attempt (id, generation, number, provider, upstream_model, started_at, status, fault)
    select r.id, r.generation, r.number, r.provider, r.upstream_model, clock_timestamp(), 'dialling', ''
      from jsonb_to_recordset(p_items) as r(id uuid, generation uuid, number smallint, provider text,
                                            upstream_model text, key uuid)
      join accounts_alive_key k on k.id = r.key
        on conflict do nothing;
    return query
    select r.id, k.id is not null
      from jsonb_to_recordset(p_items) as r(id uuid, key uuid) left join accounts_alive_key k on k.id = r.key;
end
$$;
