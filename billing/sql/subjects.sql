-- Whom a key's calls count for: itself, its project, its organization.
create or replace view billing_key_subject as
select k.id as key, p.organization_id as organization, s.subject
  from accounts_apikey k
  join accounts_project p on p.id = k.project_id
 cross join lateral (values (k.id), (p.id), (p.organization_id)) as s(subject);

-- When the window that holds p_now began, UTC: of a day, month or minute. 'total' and 'now' have one window for ever.
create or replace function billing_window(p_period text, p_now timestamptz)
returns timestamptz
language sql stable as $$
    select case p_period when 'minute' then date_trunc('minute', p_now, 'UTC')
                         when 'day' then date_trunc('day', p_now, 'UTC')
                         when 'month' then date_trunc('month', p_now, 'UTC')
                         else timestamptz '2000-01-01 00:00:00+00' end;
$$;

-- Every budget and limit that binds a subject, as the counter it is kept on. Both halves have the same types to the
-- letter: otherwise PostgreSQL cannot look a subject up in them, and reads every tenant's rules for each batch.
create or replace view billing_rule as
select b.subject, 'money'::varchar as measure, b.period, b.amount as room, b.hard
  from billing_budget b
union all
select l.subject, l.measure, (case l.measure when 'open' then 'now' else 'minute' end)::varchar, l.value::numeric, true
  from billing_limit l;
