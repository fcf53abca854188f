-- The only writers of counters, holds, attempts, usage and the ledger.
--
-- Lock order, everywhere: holds by id, then counters by id. What a counter says is taken from its locked row, which comes
-- as the last holder of the lock has left it. Nothing here counts or sums other rows.

-- Takes room for every request of a batch, in arrival order, all or nothing over a request's counters.
-- p_items: [{id, attempt, key, model, money, offers, cap, min_cap, tokens, least, answer, copies, facts, patience,
--            models}]
--   money     dollars at worst, whichever of the offers answers (null: the price of one is unknown)
--   offers    [[fixed, rate, cap]] in the order of their dials, looked at where a hard budget does not cover `money`:
--             dollars at worst that do not depend on the output, dollars an output token, tokens at most, all copies
--             together. Those that the money covers with min_cap tokens (or with their cap, if that is less) are held
--             for, each up to the cap that is paid for; the first must be among them
--   cap       output tokens wanted of an answer
--   tokens    input tokens to hold on token limits; answer: output tokens to hold for an answer (null: its cap)
--   least     input tokens that there are at least. With an answer of min_cap they must fit a token limit that nobody
--             else uses; the cap is lowered to what fits then
--   copies    how many answers (n)
--   facts     what a usage row needs if only the hold is left, and whose rules bind: project, organization, end_user
--   patience  milliseconds its request will wait for an answer
--   models    the model of each of the offers, then others that may come after them; absent when it is `model` alone
-- Items of the last release have `fixed` and `rate`, which hold for all offers, instead of money, offers and least.
-- Returns a row an item. verdict: admitted | key | unpriced | credit | users | requests | tokens | never | open | late;
-- never: a token limit can at no time let it through; users: too many end users have a counter of a budget. output_cap is
-- the highest of the offers' caps. Of what is refused for lack of money, `money` is what there was, and `limit_value` is
-- null where that is the prepaid balance. Of what is admitted `limit_value` is what the hard budget with the least left had
-- before this hold, a prepaid balance being one (null: none binds, or it is told again after a lost connection).
-- counters: what its charge is to be added to; with `models`, where budgets of a model bind, {all: [those whichever model
-- answers], models: {model: [those that count it too], or null: it may not answer}}. The hold is on all of them, since
-- nobody knows which it will be, so a budget of another than the first model must have all that is held, else its offers
-- are left out. Of what the budget of a model or an end user refuses, `counters` is {model, end_user}.
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
    r_id uuid[]; r_attempt uuid[]; r_key uuid[]; r_project uuid[]; r_organization uuid[]; r_model text[];
    r_money numeric[]; r_offers jsonb[]; r_cap bigint[]; r_min bigint[]; r_tokens bigint[]; r_least bigint[];
    r_answer bigint[]; r_copies integer[]; r_patience integer[]; r_facts jsonb[]; r_models jsonb[]; r_user text[];
    v_done uuid[]; v_alive uuid[];
    -- one entry a budget or limit of anybody here, and its counter: money first, then in the order of counters
    c_subject uuid[]; c_measure text[]; c_period text[]; c_room numeric[]; c_hard boolean[]; c_counter bigint[];
    c_used numeric[]; c_held numeric[]; c_at tid[];
    -- Whether one of them binds a part of somebody's calls; only then: which part of them each counts, and what has no
    -- room for one more end user.
    v_parts boolean; c_model text[]; c_user text[];
    f_subject uuid[]; f_model text[]; f_user text[]; f_seconds integer[];
    v_mine integer[];  -- places, among those, of what binds the running key
    -- what is admitted: one entry a request again, a cap of null for those that are not
    a_cap bigint[]; a_money numeric[]; a_tokens bigint[]; a_counters jsonb[]; a_hard boolean[];
    i integer; p integer;
    v_verdict text; v_subject uuid; v_limit numeric; v_room numeric; v_left numeric; v_cap bigint; v_money numeric;
    v_tokens bigint; v_hard boolean; v_counters jsonb; v_last integer; v_first boolean;
    v_missing boolean; v_some boolean := false; v_out text[] := '{}'; v_at integer; v_part jsonb; v_seconds integer;
    v_offers jsonb;
begin
    -- One sending of a batch at a time. The first may still be at work when the process, its connection lost, sends the
    -- second, which must find what the first recorded even if a minute has ended between and their windows differ.
    perform pg_advisory_xact_lock(hashtextextended(p_items->0->>'id', 0));
    v_now := clock_timestamp();

    -- A process whose lease went stale (it was paused) renews it before it may hold: others may be resolving its holds.
    if not exists (
        select 1 from billing_lease l
         where l.id = p_lease
           and l.heartbeat_at between v_now - interval '15 seconds' and v_now + interval '15 seconds'
    ) then
        raise exception 'stale lease' using errcode = 'ML001';
    end if;

    select array_agg(r.id), array_agg(r.attempt), array_agg(r.key), array_agg((r.facts->>'project')::uuid),
           array_agg((r.facts->>'organization')::uuid), array_agg(r.model),
           array_agg(case when r.offers is null then r.fixed + r.rate * r.cap else r.money end),
           array_agg(coalesce(r.offers, jsonb_build_array(jsonb_build_array(r.fixed, r.rate, r.cap)))),
           array_agg(r.cap), array_agg(greatest(r.min_cap, 1)), array_agg(r.tokens), array_agg(r.least),
           array_agg(r.answer), array_agg(r.copies), array_agg(r.patience), array_agg(r.facts), array_agg(r.models),
           array_agg(coalesce(r.facts->>'end_user', ''))
      into r_id, r_attempt, r_key, r_project, r_organization, r_model, r_money, r_offers, r_cap, r_min, r_tokens,
           r_least, r_answer, r_copies, r_patience, r_facts, r_models, r_user
      from jsonb_to_recordset(p_items) as r(
               id uuid, attempt uuid, key uuid, model text, money numeric, offers jsonb, fixed numeric, rate numeric,
               cap bigint, min_cap bigint, tokens bigint, least bigint, answer bigint, copies integer,
               patience integer, facts jsonb, models jsonb);

    loop
        select array_agg(q.subject), array_agg(q.measure), array_agg(q.period), array_agg(q.room), array_agg(q.hard),
               array_agg(q.counter), bool_or(q.counter is null), bool_or(q.part)
          into c_subject, c_measure, c_period, c_room, c_hard, c_counter, v_missing, v_parts
          from (select u.subject, u.measure, u.period, u.room, u.hard, u.model <> '' or u.end_user <> '' as part, (
                       select n.id from billing_counter n
                        where n.subject = u.subject and n.measure = u.measure and n.period = u.period
                          and n.period_start = billing_window(u.period, v_now, u.zone)
                        order by n.version desc limit 1) as counter
                  from billing_rule u where u.subject = any(r_key || r_project || r_organization)
                 order by u.measure, counter) q;
        if v_parts then
            select array_agg(q.subject) filter (where q.counter is not null),
                   array_agg(q.measure) filter (where q.counter is not null),
                   array_agg(q.period) filter (where q.counter is not null),
                   array_agg(q.room) filter (where q.counter is not null),
                   array_agg(q.hard) filter (where q.counter is not null),
                   array_agg(q.model) filter (where q.counter is not null),
                   array_agg(q.end_user) filter (where q.counter is not null),
                   array_agg(q.counter) filter (where q.counter is not null),
                   array_agg(q.subject) filter (where q.crowded and q.hard),
                   array_agg(q.model) filter (where q.crowded and q.hard),
                   array_agg(q.end_user) filter (where q.crowded and q.hard),
                   array_agg(q.seconds) filter (where q.crowded and q.hard),
                   bool_or(q.counter is null and not q.crowded)
              into c_subject, c_measure, c_period, c_room, c_hard, c_model, c_user, c_counter, f_subject, f_model,
                   f_user, f_seconds, v_missing
              from (select n.* from billing_rules_of_parts(r_key, r_project, r_organization, r_model, r_models, r_user,
                                                           v_now) n
                     order by n.measure, n.counter) q;
        end if;
        exit when v_missing is not true;
        -- Windows that begin with this batch. Who makes one of a subject is alone at it until the commit, and looks again
        -- in a statement of its own; in the order of subjects, so that nobody waits for another in a circle.
        perform billing_begin_windows(r_key || r_project || r_organization);
        insert into billing_counter (organization, subject, measure, period, period_start, used, held)
        select w.organization, w.subject, w.measure, w.period, w.start, 0::numeric, 0::numeric
          from (select distinct s.organization, u.subject, u.measure, u.period, billing_window(u.period, v_now, u.zone) as start
                  from unnest(r_key || r_project || r_organization, r_organization || r_organization || r_organization)
                       as s(subject, organization)
                  join billing_rule u on u.subject = s.subject and u.model = '' and u.end_user = '') w
         where not exists (
               select 1 from billing_counter n where n.subject = w.subject and n.measure = w.measure
                  and n.period = w.period and n.period_start = w.start)
         order by w.subject, w.measure, w.period, w.start
            on conflict do nothing;
        if v_parts then
            perform billing_begin_parts(r_key, r_project, r_organization, r_model, r_models, r_user, v_now);
        end if;
    end loop;

    -- A row that another transaction had locked comes as that has left it.
    with locked as materialized (select l.* from billing_lock_counters(c_counter) l)
    select array_agg(q.used), array_agg(q.held), array_agg(q.place) into c_used, c_held, c_at
      from (select l.used, l.held, l.place from locked l order by l.measure, l.id) q;

    -- Read behind the locks: which keys live, and whether the first sending of this very batch has committed meanwhile.
    select array(select h.id from billing_hold h where h.id = any(r_id)),
           array(select (select a.id from accounts_alive_key a
                          where a.id = q.key and a.project = q.project and a.organization = q.organization)
                   from (select distinct r_key[o], r_project[o], r_organization[o]
                           from generate_series(1, cardinality(r_id)) o) as q(key, project, organization))
      into v_done, v_alive;

    a_cap := array_fill(null::bigint, array[cardinality(r_id)]);
    a_tokens := a_cap;
    a_money := array_fill(null::numeric, array[cardinality(r_id)]);
    a_counters := array_fill(null::jsonb, array[cardinality(r_id)]);
    a_hard := array_fill(null::boolean, array[cardinality(r_id)]);
    v_waited := extract(epoch from clock_timestamp() - v_start) * 1000;
    for i in 1 .. cardinality(r_id) loop
        continue when r_id[i] = any(v_done);
        if (r_key[i] = any(v_alive)) is not true then
            id := r_id[i]; verdict := 'key'; output_cap := null; money := null; counters := null; hard := null;
            retry_after := null; subject := r_key[i]; limit_value := null; admitted_at := v_now;
            return next;
            continue;
        end if;
        if r_key[i] is distinct from r_key[v_last] or v_parts and (
               r_models[i] is not null or r_models[v_last] is not null
               or r_model[i] <> r_model[v_last] or r_user[i] <> r_user[v_last]) then
            v_last := i;
            select coalesce(array_agg(o), '{}'), coalesce(jsonb_agg(c_counter[o]), '[]') into v_mine, v_counters
              from generate_series(1, cardinality(c_subject)) o
             where c_subject[o] in (r_key[i], r_project[i], r_organization[i])
               and (v_parts is not true
                    or (c_model[o] in ('', r_model[i]) or r_models[i] ? c_model[o])
                       and (c_user[o] is null or c_user[o] = r_user[i]));
        end if;

        -- What nobody waits for must not bind money that another is refused.
        v_verdict := case when r_patience[i] < v_waited then 'late' else 'admitted' end;
        v_subject := null; v_limit := null; v_room := null; v_hard := false; v_part := null; v_seconds := null;
        v_cap := r_cap[i]; v_money := r_money[i];
        -- The least of what hard budgets have left, and the highest cap that an empty minute has the tokens for.
        foreach p in array v_mine loop
            if c_measure[p] = 'money' and c_hard[p] then
                v_hard := true;
                continue when v_parts and c_model[p] not in ('', r_model[i]);  -- binds a fallback alone, see below
                v_left := greatest(c_room[p] - c_used[p] - c_held[p], 0);
                if v_room is null or v_left < v_room then
                    v_room := v_left; v_subject := c_subject[p]; v_at := p;
                    v_limit := case when c_period[p] <> 'balance' then c_room[p] end;
                end if;
            elsif c_measure[p] = 'tokens' and r_least[i] + v_cap * r_copies[i] > c_room[p] then
                v_cap := greatest(div(c_room[p] - r_least[i], r_copies[i]), 0);
                if v_cap < r_min[i] and v_verdict = 'admitted' then
                    v_verdict := 'never'; v_subject := c_subject[p]; v_limit := c_room[p];
                end if;
            end if;
        end loop;
        if v_parts then
            v_out := '{}';
            if r_models[i] is not null then
                -- Other models than the first, whose own budgets have less than may be held, or no room for the end user.
                select coalesce(array_agg(q.model), '{}') into v_out
                  from (select c_model[o] as model from unnest(v_mine) o
                         where c_hard[o] and c_measure[o] = 'money' and c_model[o] not in ('', r_model[i])
                           and (greatest(c_room[o] - c_used[o] - c_held[o], 0) >= least(v_money, v_room)) is not true
                        union
                        select f_model[o] from generate_series(1, cardinality(f_subject)) o
                         where f_subject[o] in (r_key[i], r_project[i], r_organization[i]) and f_user[o] = r_user[i]
                           and r_models[i] ? f_model[o] and f_model[o] <> r_model[i]) q;
                if v_out <> '{}' then
                    select jsonb_agg(a.e order by a.o), max((a.e->>2)::bigint),
                           case when bool_and(a.e->>0 is not null and a.e->>1 is not null)
                                then max((a.e->>0)::numeric + (a.e->>1)::numeric * (a.e->>2)::bigint) end
                      into v_offers, v_left, v_money
                      from jsonb_array_elements(r_offers[i]) with ordinality as a(e, o)
                     where r_models[i]->>(a.o - 1)::integer <> all(v_out);
                    r_offers[i] := v_offers; v_cap := least(v_cap, v_left);
                    select coalesce(bool_or(c_measure[o] = 'money' and c_hard[o]), false) into v_hard
                      from unnest(v_mine) o where c_model[o] <> all(v_out);
                end if;
            end if;
            if f_subject is not null then
                select min(o) into p from generate_series(1, cardinality(f_subject)) o
                 where f_subject[o] in (r_key[i], r_project[i], r_organization[i]) and f_user[o] = r_user[i]
                   and f_model[o] in ('', r_model[i]);
                if p is not null and v_verdict = 'admitted' then
                    v_verdict := 'users'; v_subject := f_subject[p]; v_limit := billing_most_end_users();
                    v_seconds := f_seconds[p]; v_part := jsonb_build_object('model', f_model[p], 'end_user', f_user[p]);
                end if;
            end if;
        end if;
        if v_verdict = 'admitted' and v_hard and v_room is not null
           and (v_money > v_room or v_cap < r_cap[i]) is not false then
            -- `div` is exact, where the quotient of `/` may be rounded up by a hair that nobody has.
            select max(q.fixed + q.rate * q.paid), max(q.paid), bool_or(q.o = 1) into v_money, v_cap, v_first
              from (select w.o, w.fixed, w.rate, least(w.cap, v_cap) as cap,
                           case when w.rate > 0 then least(w.cap, v_cap, div(v_room - w.fixed, w.rate))
                                else least(w.cap, v_cap) end as paid
                      from (select a.o, (a.e->>0)::numeric as fixed, (a.e->>1)::numeric as rate, (a.e->>2)::bigint as cap
                              from jsonb_array_elements(r_offers[i]) with ordinality as a(e, o)) w
                     where w.fixed <= v_room and w.rate is not null) q
             where q.paid >= least(q.cap, r_min[i]);
            if v_first is not true then
                v_verdict := case when r_offers[i]->0->>0 is null or r_offers[i]->0->>1 is null then 'unpriced'
                                  else 'credit' end;
                if v_parts and (c_model[v_at] <> '' or c_user[v_at] is not null) then
                    v_part := jsonb_build_object('model', c_model[v_at], 'end_user', c_user[v_at]);
                end if;
            end if;
        end if;
        if v_verdict = 'admitted' then
            v_subject := null; v_limit := null;
            v_tokens := r_tokens[i] + least(coalesce(r_answer[i], v_cap), v_cap) * r_copies[i];
            foreach p in array v_mine loop
                -- What may come to more than a minute's tokens, and may not, has a minute for itself.
                if c_measure[p] = 'requests' and c_used[p] + 1 > c_room[p]
                   or c_measure[p] = 'open' and c_held[p] + 1 > c_room[p]
                   or c_measure[p] = 'tokens' and c_used[p] + c_held[p]
                      + least(v_tokens, case when r_least[i] is not null then c_room[p] end) > c_room[p] then
                    v_verdict := c_measure[p]; v_subject := c_subject[p]; v_limit := c_room[p];
                    exit;
                end if;
            end loop;
        end if;

        id := r_id[i]; verdict := v_verdict; subject := v_subject; limit_value := v_limit;
        admitted_at := v_now; hard := v_hard;
        if v_verdict <> 'admitted' then
            output_cap := null; counters := v_part;
            money := case when v_verdict in ('credit', 'unpriced') then v_room end;
            retry_after := case
                when v_verdict = 'open' then 1
                when v_verdict = 'users' then v_seconds
                when v_verdict in ('requests', 'tokens') then
                    ceil(extract(epoch from billing_window('minute', v_now) + interval '1 minute' - v_now))
                end;
            return next;
            continue;
        end if;

        if v_parts and v_out <> '{}' then
            -- What was left out is held for nobody.
            select coalesce(array_agg(o), '{}'), coalesce(jsonb_agg(c_counter[o]), '[]') into v_mine, v_counters
              from unnest(v_mine) o where c_model[o] <> all(v_out);
        end if;
        foreach p in array v_mine loop
            case c_measure[p]
                when 'money' then c_held[p] := c_held[p] + coalesce(v_money, 0);
                when 'requests' then c_used[p] := c_used[p] + 1;
                when 'open' then c_held[p] := c_held[p] + 1;
                else c_held[p] := c_held[p] + v_tokens;
            end case;
        end loop;
        a_cap[i] := v_cap; a_money[i] := v_money; a_tokens[i] := v_tokens; a_counters[i] := v_counters;
        a_hard[i] := v_hard;
        v_some := true;
        output_cap := v_cap; money := v_money; counters := v_counters; retry_after := null; limit_value := v_room;
        if v_parts and r_models[i] is not null then
            counters := billing_counters_by_model(v_counters, v_out);
        end if;
        return next;
    end loop;

    if v_some then
        update billing_counter n
           set used = c_used[array_position(c_counter, n.id)], held = c_held[array_position(c_counter, n.id)],
               writes = n.writes + 1
         where n.ctid = any(c_at) and (n.used <> c_used[array_position(c_counter, n.id)]
                                       or n.held <> c_held[array_position(c_counter, n.id)]);

        insert into billing_hold (id, lease, organization, project, key, model, money, tokens, output_cap, hard,
                                  counters, facts, created_at)
        select r_id[o], p_lease, r_organization[o], r_project[o], r_key[o], r_model[o], a_money[o], a_tokens[o],
               a_cap[o], a_hard[o], a_counters[o], r_facts[o], v_now
          from generate_series(1, cardinality(r_id)) o
         where a_cap[o] is not null
            on conflict do nothing;

        insert into billing_attempt (id, generation, number, provider, upstream_model, started_at, status, fault,
                                     model)
        select r_attempt[o], r_id[o], 1, r_facts[o]->>'provider', r_facts[o]->>'upstream_model', v_now, 'dialling', '',
               r_model[o]
          from generate_series(1, cardinality(r_id)) o
         where a_cap[o] is not null
            on conflict do nothing;
    end if;

    if v_done <> '{}' then
        return query
        select h.id, 'admitted', h.output_cap, h.money,
               case when v_parts and r_models[d.o] is not null
                    then billing_counters_by_model(h.counters, array(
                             select x.model from jsonb_array_elements_text(r_models[d.o]) x(model)
                              where x.model <> r_model[d.o] and exists (
                                    select 1 from generate_series(1, cardinality(c_subject)) c
                                     where c_model[c] = x.model and c_hard[c]
                                       and c_subject[c] in (r_key[d.o], r_project[d.o], r_organization[d.o])
                                       and (c_user[c] is null or c_user[c] = r_user[d.o])
                                       and not h.counters @> to_jsonb(c_counter[c]))))
                    else h.counters end,
               h.hard, null::integer, null::uuid, null::numeric, h.created_at
          from unnest(r_id) with ordinality as d(id, o) join billing_hold h on h.id = d.id
         where d.id = any(v_done)
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
    -- Whoever ends a generation at this moment finds the attempt, or the attempt finds no hold any more.
    perform 1 from billing_hold h
      where h.id in (select (e->>'generation')::uuid from jsonb_array_elements(p_items) e)
      order by h.id for key share;
    insert into billing_attempt (id, generation, number, provider, upstream_model, started_at, status, fault, model)
    select r.id, r.generation, r.number, r.provider, r.upstream_model, clock_timestamp(), 'dialling', '',
           coalesce(r.model, '')
      from jsonb_to_recordset(p_items) as r(id uuid, generation uuid, number smallint, provider text,
                                            upstream_model text, model text, key uuid)
     where (select k.id from accounts_alive_key k where k.id = r.key) is not null
       and (select h.id from billing_hold h where h.id = r.generation) is not null
        on conflict do nothing;
    return query
    select r.id, (select a.id from billing_attempt a where a.id = r.id) is not null
      from jsonb_to_recordset(p_items) as r(id uuid);
end
$$;
