-- Budgets that bind only a part of a subject's calls: those of a model, those of an end user, or, with '*' for the end
-- user, those of each end user for itself. A model is that of the usage row, an end user what the request calls it; all
-- requests that name none are one user's.

-- The subject of the counter of such a budget: a hash of whose, which model's and which user's. Of all calls together it
-- is the subject itself. The length says where the model ends, so that no two are written the same.
create or replace function billing_scope(p_subject uuid, p_model text, p_end_user text)
returns uuid
language sql immutable parallel safe as $$
    select case when p_model = '' and p_end_user is null then p_subject
                else encode(substr(sha256(convert_to(
                         p_subject::text || ':' || length(p_model) || ':' || p_model || coalesce(':' || p_end_user, ''),
                         'UTF8')), 1, 16), 'hex')::uuid end;
$$;

-- How many counters of end users an organization may begin in a window of one length, whatever budgets they are for.
-- Whoever has a key names end users as he likes, and each is a row.
create or replace function billing_most_end_users()
returns integer
language sql immutable parallel safe as $$
    select 100000;
$$;

-- Every budget and limit that binds a subject, and what a prepaid organization was granted, as the counter it is kept on.
-- All parts have the same types to the letter: otherwise PostgreSQL cannot look a subject up in them, and reads every
-- tenant's rules for each batch.
create or replace view billing_rule as
select b.subject, 'money'::varchar as measure, b.period, b.amount as room, b.hard, b.time_zone as zone,
       b.model, b.end_user
  from billing_budget b
union all
select l.subject, l.measure, (case l.measure when 'open' then 'now' else 'minute' end)::varchar, l.value::numeric, true,
       'UTC'::varchar, ''::varchar, ''::varchar
  from billing_limit l
union all
select p.organization_id, 'money'::varchar, 'balance'::varchar, p.granted, true, 'UTC'::varchar, ''::varchar, ''::varchar
  from billing_prepaid p;

-- What binds a batch, with its counters where there are any, when some of it binds a part of somebody's calls. The n-th of
-- each array is of the n-th request: its key, project, organization, the model it goes to first, others that it may go
-- to (or null), and its end user. `crowded`: there is no counter, and no room for one more until `seconds` have passed.
-- An end user who is named has the amount that is for him, instead of everybody's.
create or replace function billing_rules_of_parts(
    p_keys uuid[], p_projects uuid[], p_organizations uuid[], p_models text[], p_others jsonb[], p_users text[],
    p_now timestamptz
)
returns table (
    organization uuid, subject uuid, measure varchar, period varchar, start timestamptz, room numeric, hard boolean,
    model text, end_user text, scope uuid, counter bigint, crowded boolean, seconds integer
)
language sql stable as $$
    with asked as materialized (
        select distinct s.subject, p_organizations[o] as organization, m.model, p_users[o] as end_user
          from generate_series(1, cardinality(p_keys)) o
         cross join lateral (values (p_keys[o]), (p_projects[o]), (p_organizations[o])) s(subject)
         cross join lateral (
               select p_models[o] as model union select jsonb_array_elements_text(p_others[o])) m
    ), bound as (
        select distinct a.organization, a.subject, u.measure, u.period, u.zone, u.room, u.hard, u.model,
               case when u.end_user <> '' then a.end_user end as end_user
          from asked a
         cross join lateral (select r.* from billing_rule r where r.subject = a.subject offset 0) u
         where (u.model = '' or u.model = a.model)
           and (u.end_user in ('', '*') or u.end_user = a.end_user)
           and (u.end_user <> '*' or a.end_user in ('', '*') or not exists (
                   select 1 from billing_budget b
                    where b.subject = a.subject and b.period = u.period and b.model = u.model
                      and b.end_user = a.end_user))
    ), counted as (
        select b.*, w.start, w.scope, (
               select n.id from billing_counter n
                where n.subject = w.scope and n.measure = b.measure and n.period = b.period and n.period_start = w.start
                order by n.version desc limit 1) as counter
          from bound b
         cross join lateral (select billing_window(b.period, p_now, b.zone) as start,
                                    billing_scope(b.subject, b.model, b.end_user) as scope) w
    )
    select c.organization, c.subject, c.measure, c.period, c.start, c.room, c.hard, c.model, c.end_user, c.scope,
           c.counter, f.crowded,
           case when f.crowded and c.period <> 'total' then ceil(extract(epoch from
               (c.start at time zone c.zone + ('1 ' || c.period)::interval) at time zone c.zone - p_now))::integer end
      from counted c
     cross join lateral (select c.counter is null and c.end_user is not null and coalesce((
               select n.used from billing_counter n
                where n.subject = c.organization and n.measure = 'users' and n.period = c.period
                  and n.period_start = c.start
                order by n.version desc limit 1), 0) >= billing_most_end_users() as crowded) f;
$$;

-- Begins the windows of such a batch, as many as there is room for. The caller is alone at it (billing_begin_windows).
create or replace function billing_begin_parts(
    p_keys uuid[], p_projects uuid[], p_organizations uuid[], p_models text[], p_others jsonb[], p_users text[],
    p_now timestamptz
)
returns void
language sql as $$
    with missing as (
        select r.*, row_number() over (partition by r.organization, r.period, r.start, r.end_user is null
                                       order by r.scope) as place
          from billing_rules_of_parts(p_keys, p_projects, p_organizations, p_models, p_others, p_users, p_now) r
         where r.counter is null and not r.crowded and r.scope <> r.subject
    ), made as (
        insert into billing_counter (organization, subject, measure, period, period_start, used, held,
                                     owner, model, end_user)
        select m.organization, m.scope, m.measure, m.period, m.start, 0, 0, m.subject, m.model, m.end_user
          from missing m
         where m.end_user is null
            or m.place <= billing_most_end_users() - coalesce((
                   select n.used from billing_counter n
                    where n.subject = m.organization and n.measure = 'users' and n.period = m.period
                      and n.period_start = m.start
                    order by n.version desc limit 1), 0)
         order by m.scope, m.period
            on conflict do nothing
        returning organization, period, period_start, end_user
    )
    insert into billing_counter as n (organization, subject, measure, period, period_start, used, held)
    select m.organization, m.organization, 'users', m.period, m.period_start, count(*), 0
      from made m where m.end_user is not null
     group by m.organization, m.period, m.period_start
        on conflict (subject, measure, period, period_start, version) do update set used = n.used + excluded.used;
$$;

-- The budget that a counter is for; none when it has been deleted.
create or replace function billing_budget_of(p_counter bigint)
returns table (amount numeric, hard boolean)
language sql stable as $$
    select b.amount, b.hard
      from (select n.* from billing_counter n where n.id = p_counter order by n.version desc limit 1) c
      join billing_budget b on b.subject = coalesce(c.owner, c.subject) and b.period = c.period and b.model = c.model
     where case when c.end_user is null then b.end_user = ''
                else b.end_user = '*' or b.end_user = c.end_user and c.end_user <> '' end
     order by b.end_user = '*' limit 1;
$$;

-- The counters of a hold, for who will know which of several models has answered; those left out are null. As they are
-- when no budget of a model is among them.
create or replace function billing_counters_by_model(p_counters jsonb, p_out text[])
returns jsonb
language sql stable as $$
    with held as (
        select i.id, (select n.model from billing_counter n where n.id = i.id order by n.version desc limit 1) as model
          from (select jsonb_array_elements_text(p_counters)::bigint as id) i
    ), by_model as (
        select h.model, jsonb_agg(h.id) as counters from held h where h.model <> '' and h.model <> all(p_out)
         group by h.model
        union all
        select o, null from unnest(p_out) o
    )
    select case when exists (select 1 from by_model)
                then jsonb_build_object(
                         'all', coalesce((select jsonb_agg(h.id) from held h where h.model = ''), '[]'),
                         'models', (select jsonb_object_agg(b.model, b.counters) from by_model b))
                else p_counters end;
$$;

-- What has been charged since p_start of the calls that a budget counts, of ids from p_from until before p_until, by end
-- user where it counts those apart; else for nobody, null.
create or replace function billing_spent(
    p_budget billing_budget, p_start timestamptz, p_from uuid, p_until uuid
)
returns table (who text, charge numeric)
language sql stable as $$
    select case when p_budget.end_user <> '' then u.end_user end, coalesce(sum(u.charge), 0)
      from billing_usage u
     where u.organization = p_budget.organization_id and u.id >= p_from and u.id < p_until
       and u.created_at >= p_start
       and (p_budget.project_id is null or u.project = p_budget.project_id)
       and (p_budget.key_id is null or u.key = p_budget.key_id)
       and (p_budget.model = '' or u.model = p_budget.model)
       and (p_budget.end_user in ('', '*') or u.end_user = p_budget.end_user)
     group by 1;
$$;
