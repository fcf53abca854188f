-- Budgets go by the days of the organization's time zone. (The windows before: `subjects.sql`; the rules since: `scopes.sql`.)

-- When the window that holds p_now began: of a day, a week (from Monday) or a month of a time zone, of a minute. 'total'
-- and 'now' have one window for ever. A day that a clock is changed on has 23 or 25 hours, and begins once.
create or replace function billing_window(p_period text, p_now timestamptz, p_zone text)
returns timestamptz
language sql stable as $$
    select case p_period when 'minute' then date_trunc('minute', p_now, 'UTC')
                         when 'day' then date_trunc('day', p_now, p_zone)
                         when 'week' then date_trunc('week', p_now, p_zone)
                         when 'month' then date_trunc('month', p_now, p_zone)
                         else timestamptz '2000-01-01 00:00:00+00' end;
$$;

-- Every budget and limit that binds a subject, as the counter it is kept on (its later shape: `scopes.sql`). Both halves
-- have the same types to the letter: otherwise PostgreSQL cannot look a subject up in them, and reads every tenant's rules
-- for each batch.
create or replace view billing_rule as
select b.subject, 'money'::varchar as measure, b.period, b.amount as room, b.hard, b.time_zone as zone
  from billing_budget b
union all
select l.subject, l.measure, (case l.measure when 'open' then 'now' else 'minute' end)::varchar, l.value::numeric, true,
       'UTC'::varchar
  from billing_limit l;

-- A budget's time zone is its organization's, whoever writes it.
create or replace function billing_zone_of_budget()
returns trigger
language plpgsql as $$
begin
    select o.time_zone into new.time_zone from accounts_organization o where o.id = new.organization_id;
    return new;
end
$$;
drop trigger if exists zone_of_budget on billing_budget;
create trigger zone_of_budget before insert on billing_budget for each row execute function billing_zone_of_budget();

-- With another time zone other windows run: they start with what has been spent in them, as a new budget does.
create or replace function billing_zone_changed()
returns trigger
language plpgsql as $$
declare
    v_budget bigint;
begin
    perform clock_timestamp() at time zone new.time_zone;  -- or no request of this tenant's could be admitted
    for v_budget in
        update billing_budget b set time_zone = new.time_zone where b.organization_id = new.id returning b.id
    loop
        perform billing_seed_counter(v_budget);
    end loop;
    return new;
end
$$;
drop trigger if exists zone_changed on accounts_organization;
create trigger zone_changed after update of time_zone on accounts_organization
   for each row when (old.time_zone <> new.time_zone) execute function billing_zone_changed();
