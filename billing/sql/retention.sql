-- Months of usage and attempts that are not kept any more. What locks and drops runs as its owner,
-- for the worker, and looks at the console's rows first: so the worker's role drops nothing that nobody has said.

-- Why a month may not be dropped; NULL: it may.
create or replace function billing_objection(p_table text, p_month date)
returns text
language plpgsql stable as $$
declare
    v_months integer := (select r.months from billing_retention r where r."table" = p_table);
    v_now timestamp := now() at time zone 'UTC';
    v_after timestamptz := (p_month + interval '1 month') at time zone 'UTC';
begin
    if p_table not in ('usage', 'attempt') or to_regclass(format('billing_%s_%s', p_table, to_char(p_month, 'YYYY_MM')))
       is null then
        return 'there is no such month';
    elsif v_months is null or p_month + make_interval(months => v_months + 1) > date_trunc('month', v_now) then
        return 'it is to be kept';
    elsif exists (select from pg_inherits i join pg_class c on c.oid = i.inhrelid
                   where i.inhparent = format('billing_%s', p_table)::regclass and c.relname !~ '_default$'
                     and c.relname < format('billing_%s_%s', p_table, to_char(p_month, 'YYYY_MM'))) then
        return 'an older one is there';
    elsif not exists (select from billing_closedmonth c where c.month >= p_month and c.summed_at is not null) then
        return 'it is not closed, or its sums are not kept yet';
    elsif p_table = 'usage' and (
            exists (select from billing_latehour h
                     where h.hour >= p_month::timestamp at time zone 'UTC' - interval '1 day'
                       and h.hour < v_after + interval '1 day')
         or (select count(*) from billing_mark m where m.name in ('usage', 'spend') and m.until >= v_after) < 2) then
        return 'it is not rolled up yet';
    end if;
    return null;
end
$$;

-- Lets nobody write to a month until the transaction ends; what is written elsewhere does not wait.
create or replace function billing_lock_month(p_table text, p_month date)
returns void
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '5s' as $$
begin
    if billing_objection(p_table, p_month) is not null then
        raise exception '% of % stays: %', p_table, p_month, billing_objection(p_table, p_month);
    end if;
    execute format('lock table %I in share mode', format('billing_%s_%s', p_table, to_char(p_month, 'YYYY_MM')));
end
$$;

-- Drops a month that is locked. Of usage only if the rollups that are to stand for it (of the span `kept`) have as many
-- generations as were ever dropped. Its table is locked for a moment, as in billing_make_partitions: it waits briefly,
-- tries again a few times, and raises lock_not_available.
create or replace function billing_drop_month(p_table text, p_month date)
returns bigint
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '100ms' as $$
declare
    v_name text := format('billing_%s_%s', p_table, to_char(p_month, 'YYYY_MM'));
    v_rows bigint;
    v_charge numeric;
    v_cost numeric;
begin
    if billing_objection(p_table, p_month) is not null then
        raise exception '% of % stays: %', p_table, p_month, billing_objection(p_table, p_month);
    end if;
    if p_table = 'usage' then
        execute format('select count(*), coalesce(sum(charge), 0), coalesce(sum(provider_cost), 0) from %I', v_name)
           into v_rows, v_charge, v_cost;
    else
        execute format('select count(*) from %I', v_name) into v_rows;
    end if;
    insert into billing_droppedmonth ("table", month, rows, charge, provider_cost)
    values (p_table, p_month, v_rows, v_charge, v_cost);
    if p_table = 'usage' and (
        select (d.rows, d.rows, d.charge, d.charge, d.cost) is distinct from (u.rows, s.rows, u.charge, s.charge, s.cost)
          from (select sum(rows) as rows, sum(charge) as charge, sum(provider_cost) as cost
                  from billing_droppedmonth where "table" = 'usage') d,
               (select coalesce(sum(requests), 0) as rows, coalesce(sum(charge), 0) as charge
                  from billing_usagerollup where span = 'kept') u,
               (select coalesce(sum(requests), 0) as rows, coalesce(sum(charge), 0) as charge,
                       coalesce(sum(provider_cost), 0) as cost
                  from billing_spendrollup where span = 'kept') s) then
        raise exception '% of % stays: its rollups are not kept', p_table, p_month;
    end if;
    for v_try in 1 .. 5 loop
        begin
            execute format('drop table %I', v_name);
            return v_rows;
        exception when lock_not_available then
            if v_try = 5 then
                raise;
            end if;
            perform pg_sleep(0.5);
        end;
    end loop;
end
$$;
