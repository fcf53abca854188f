-- The only writers of counters, holds, attempts, usage and the ledger.
--
-- Lock order, everywhere: holds by id, then counters by id. Counters are read only after they are locked, in a statement
-- of its own, so that it sees what the last holder of the lock committed. Nothing here counts or sums other rows.

-- Takes room for every request of a batch, in arrival order, all or nothing over a request's counters.
-- p_items: [{id, attempt, key, model, fixed, rate, cap, min_cap, tokens, copies, facts, patience}]
--   fixed     dollars of the worst case that do not depend on the output cap (null: the price is unknown)
--   rate      dollars an output token, all copies together
--   cap       output tokens wanted; lowered to what a hard budget covers, never below min_cap
--   tokens    input tokens at most; copies: how many answers (n)
--   facts     what a usage row needs if only the hold is left
--   patience  milliseconds its request will wait for an answer
-- Returns a row an item. verdict: admitted | key | unpriced | credit | requests | tokens | open | late.
-- Sent again after a lost connection, the same batch returns what was recorded.
create or replace function billing_admit(p_lease uuid, p_items jsonb)
returns table (
    id uuid, verdict text, output_cap bigint, money numeric, counters jsonb, hard boolean,
    retry_after integer, subject uuid, limit_value numeric, admitted_at timestamptz
)
language plpgsql as $$
#variable_conflict use_column
declare
    v_start timestamptz := clock_timestamp();
    v_now timestamptz;
    v_waited numeric;
    -- one entry a request, in arrival order
    r_id uuid[]; r_attempt uuid[]; r_key uuid[]; r_model text[]; r_fixed numeric[]; r_rate numeric[]; r_cap bigint[];
    r_min bigint[]; r_tokens bigint[]; r_copies integer[]; r_patience integer[]; r_facts jsonb[]; r_alive boolean[];
    r_done boolean[];
    -- one entry a (key, budget or limit), a key's together; `f_` to `t_` are the running key's
    c_key uuid[]; c_measure text[]; c_room numeric[]; c_hard boolean[]; c_subject uuid[]; c_counter bigint[];
    c_place integer[];
    f_ integer; t_ integer;
    -- one entry a counter
    n_id bigint[]; n_used numeric[]; n_held numeric[];
    -- what is admitted: one entry a request again, a cap of null for those that are not
    a_cap bigint[]; a_money numeric[]; a_tokens bigint[]; a_counters jsonb[]; a_hard boolean[];
    i integer; j integer; p integer;
    v_verdict text; v_subject uuid; v_limit numeric; v_room numeric; v_left numeric; v_cap bigint; v_money numeric;
    v_tokens bigint; v_hard boolean; v_counters jsonb; v_last uuid; v_priced boolean;
    v_missing boolean; v_some boolean := false;
begin
    -- One sending of a batch at a time. The first may still be at work when the process, its connection lost, sends the
    -- second, which must find what the first recorded even if a minute has ended between and their windows differ.
    perform pg_advisory_xact_lock(hashtextextended(p_items->0->>'id', 0));
    v_now := clock_timestamp();

    -- A process whose lease went stale (it was paused) renews it before it may hold: others may be resolving its holds.
    if not exists (
        select 1 from billing_lease l where l.id = p_lease and l.heartbeat_at > v_now - interval '15 seconds'
    ) then
        raise exception 'stale lease' using errcode = 'ML001';
    end if;

    select array_agg(q.id), array_agg(q.attempt), array_agg(q.key), array_agg(q.model), array_agg(q.fixed),
           array_agg(q.rate), array_agg(q.cap), array_agg(greatest(q.min_cap, 1)), array_agg(q.tokens),
           array_agg(q.copies), array_agg(q.patience), array_agg(q.facts)
      into r_id, r_attempt, r_key, r_model, r_fixed, r_rate, r_cap, r_min, r_tokens, r_copies, r_patience, r_facts
      from (select r.*
              from rows from (jsonb_to_recordset(p_items) as (
                       id uuid, attempt uuid, key uuid, model text, fixed numeric, rate numeric, cap bigint,
                       min_cap bigint, tokens bigint, copies integer, patience integer, facts jsonb))
                   with ordinality as r(id, attempt, key, model, fixed, rate, cap, min_cap, tokens, copies, patience,
                                        facts, o)
             order by r.o) q;

    loop
        select array_agg(distinct n.id), bool_or(n.id is null)
          into n_id, v_missing
          from billing_key_subject s
          join billing_rule u on u.subject = s.subject
          left join billing_counter n on n.subject = u.subject and n.measure = u.measure and n.period = u.period
                                     and n.period_start = billing_window(u.period, v_now)
         where s.key = any(r_key);
        exit when v_missing is not true;
        -- Windows that begin with this batch. Two batches that make the same one insert in the same order, so neither
        -- waits for the other in a circle.
        insert into billing_counter (organization, subject, measure, period, period_start, used, held)
        select w.organization, w.subject, w.measure, w.period, w.start, 0::numeric, 0::numeric
          from (select distinct s.organization, u.subject, u.measure, u.period, billing_window(u.period, v_now) as start
                  from billing_key_subject s join billing_rule u on u.subject = s.subject
                 where s.key = any(r_key)) w
         where not exists (
               select 1 from billing_counter n where n.subject = w.subject and n.measure = w.measure
                  and n.period = w.period and n.period_start = w.start)
         order by w.subject, w.measure, w.period, w.start
            on conflict do nothing;
    end loop;

    with locked as materialized (
        select n.id from billing_counter n where n.id = any(n_id) order by n.id for no key update
    )
    select array_agg(l.id order by l.id) into n_id from locked l;

    -- From here on everything is read behind the locks: what is spent, what the rules say, which keys live, and whether
    -- the first sending of this very batch has committed meanwhile.
    if n_id is not null then
        select array_agg(q.used order by q.place), array_agg(q.held order by q.place)
          into n_used, n_held
          from (select l.place, n.used, n.held
                  from unnest(n_id) with ordinality as l(id, place) join billing_counter n on n.id = l.id) q;

        select array_agg(q.key), array_agg(q.subject), array_agg(q.measure), array_agg(q.room), array_agg(q.hard),
               array_agg(q.counter), array_agg(q.place)
          into c_key, c_subject, c_measure, c_room, c_hard, c_counter, c_place
          from (select s.key, u.subject, u.measure, u.room, u.hard, n.id as counter, l.place::integer as place
                  from unnest(n_id) with ordinality as l(id, place)
                  join billing_counter n on n.id = l.id
                  join billing_rule u on u.subject = n.subject and u.measure = n.measure and u.period = n.period
                  join billing_key_subject s on s.subject = u.subject
                 where s.key = any(r_key)
                 order by s.key, u.measure, l.place) q;
    end if;

    select array_agg(h.id is not null order by q.o), array_agg(k.id is not null order by q.o)
      into r_done, r_alive
      from unnest(r_id, r_key) with ordinality as q(id, key, o)
      left join billing_hold h on h.id = q.id
      left join (select a.id from accounts_alive_key a where a.id = any(r_key)) k on k.id = q.key;

    a_cap := array_fill(null::bigint, array[cardinality(r_id)]);
    a_tokens := a_cap;
    a_money := array_fill(null::numeric, array[cardinality(r_id)]);
    a_counters := array_fill(null::jsonb, array[cardinality(r_id)]);
    a_hard := array_fill(null::boolean, array[cardinality(r_id)]);
    v_waited := extract(epoch from clock_timestamp() - v_start) * 1000;
    for i in 1 .. cardinality(r_id) loop
        continue when r_done[i];
        if not r_alive[i] then
            id := r_id[i]; verdict := 'key'; output_cap := null; money := null; counters := null; hard := null;
            retry_after := null; subject := r_key[i]; limit_value := null; admitted_at := v_now;
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
            v_counters := case when f_ > 0 then to_jsonb(c_counter[f_:t_]) else '[]' end;
        end if;

        -- What nobody waits for must not bind money that another is refused.
        v_verdict := case when r_patience[i] < v_waited then 'late' else 'admitted' end;
        v_subject := null; v_limit := null; v_room := null; v_hard := false;
        v_priced := r_fixed[i] is not null and r_rate[i] is not null;
        v_cap := r_cap[i];
        if f_ > 0 then
            -- Money first, as the rules are sorted: it may lower the cap, and the token limits count what is left of it.
            for j in f_ .. t_ loop
                exit when c_measure[j] <> 'money';
                if c_hard[j] then
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
                -- `div` is exact, where the quotient of `/` may be rounded up by a hair that nobody has.
                v_cap := case when r_rate[i] > 0 and r_fixed[i] <= v_room
                              then div(v_room - r_fixed[i], r_rate[i]) else 0 end;
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
            retry_after := case
                when v_verdict = 'open' then 1
                when v_verdict in ('requests', 'tokens') then
                    ceil(extract(epoch from billing_window('minute', v_now) + interval '1 minute' - v_now))
                end;
            return next;
            continue;
        end if;

        v_money := case when v_priced then r_fixed[i] + r_rate[i] * v_cap end;
        v_tokens := r_tokens[i] + v_cap * r_copies[i];
        if f_ > 0 then
            for j in f_ .. t_ loop
                p := c_place[j];
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
        end if;
        a_cap[i] := v_cap; a_money[i] := v_money; a_tokens[i] := v_tokens; a_counters[i] := v_counters;
        a_hard[i] := v_hard;
        v_some := true;
        output_cap := v_cap; money := v_money; counters := v_counters; retry_after := null;
        return next;
    end loop;

    if v_some then
        update billing_counter n set used = d.used, held = d.held
          from unnest(n_id, n_used, n_held) as d(id, used, held)
         where n.id = d.id and (n.used <> d.used or n.held <> d.held);

        insert into billing_hold (id, lease, organization, project, key, model, money, tokens, output_cap, hard,
                                  counters, facts, created_at)
        select a.id, p_lease, (a.facts->>'organization')::uuid, (a.facts->>'project')::uuid, a.key, a.model, a.money,
               a.tokens, a.cap, a.hard, a.counters, a.facts, v_now
          from unnest(r_id, r_key, r_model, r_facts, a_cap, a_money, a_tokens, a_counters, a_hard)
               as a(id, key, model, facts, cap, money, tokens, counters, hard)
         where a.cap is not null
            on conflict do nothing;

        insert into billing_attempt (id, generation, number, provider, upstream_model, started_at, status, fault,
                                     model)
        select a.attempt, a.id, 1, a.facts->>'provider', a.facts->>'upstream_model', v_now, 'dialling', '', a.model
          from unnest(r_attempt, r_id, r_model, r_facts, a_cap) as a(attempt, id, model, facts, cap)
         where a.cap is not null
            on conflict do nothing;
    end if;

    if true = any(r_done) then
        return query
        select h.id, 'admitted', h.output_cap, h.money, h.counters, h.hard, null::integer, null::uuid,
               null::numeric, h.created_at
          from unnest(r_id, r_done) with ordinality as d(id, done, o)
          join billing_hold h on h.id = d.id
         where d.done
         order by d.o;
    end if;
end
$$;

-- Writes further attempts before their dials. p_items: [{id, generation, number, provider, upstream_model, key}].
-- Returns whether each may be dialled: a key revoked since the hold makes no further call, nor does a generation that
-- others have ended, its process having been paused for so long.
create or replace function billing_attempt_again(p_items jsonb)
returns table (id uuid, alive boolean)
language plpgsql as $$
#variable_conflict use_column
begin
    insert into billing_attempt (id, generation, number, provider, upstream_model, started_at, status, fault, model)
    select r.id, r.generation, r.number, r.provider, r.upstream_model, clock_timestamp(), 'dialling', '',
           coalesce(r.model, '')
      from jsonb_to_recordset(p_items) as r(id uuid, generation uuid, number smallint, provider text,
                                            upstream_model text, model text, key uuid)
      join accounts_alive_key k on k.id = r.key
      join billing_hold h on h.id = r.generation
        on conflict do nothing;
    return query
    select r.id, a.id is not null
      from jsonb_to_recordset(p_items) as r(id uuid) left join billing_attempt a on a.id = r.id;
end
$$;
