-- Makes the monthly partitions of usage and attempts, this month's and p_months ahead. Runs as its owner, for the app's
-- housekeeping. The default partition catches what no month covers, so that no settlement is ever refused.
-- A new partition locks its whole table. While it waits behind a long read (an export), every settlement waits behind
-- it: so it waits briefly, and the next run tries again, months before the partition is needed.
create or replace function billing_make_partitions(p_months integer)
returns void
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '100ms' as $$
declare
    v_table text;
    v_start timestamptz;
    v_name text;
begin
    foreach v_table in array array['billing_usage', 'billing_attempt'] loop
        for i in 0 .. p_months loop
            v_start := date_trunc('month', now(), 'UTC') + make_interval(months => i);
            v_name := v_table || to_char(v_start at time zone 'UTC', '_YYYY_MM');
            continue when to_regclass(v_name) is not null;
            begin
                execute format('create table %I partition of %I for values from (%L) to (%L)',
                               v_name, v_table,
                               billing_first_id(v_start), billing_first_id(v_start + interval '1 month'));
                -- Reached through its parent alone: what the parent forbids must not be allowed here.
                execute format('revoke all on %I from meterline_app, meterline_console', v_name);
            exception
                when lock_not_available then raise warning '% is in use; % is made another time', v_table, v_name;
                -- A clock that ran ahead has put rows of that month into the default partition.
                when check_violation then raise warning '% stays in %_default', v_name, v_table;
            end;
        end loop;
    end loop;
end
$$;
