-- Makes the monthly partitions of usage and attempts, this month's and p_months ahead. Runs as its owner, for the app's
-- housekeeping. The default partition catches what no month covers, so that no settlement is ever refused.
create or replace function billing_make_partitions(p_months integer)
returns void
language plpgsql security definer set search_path from current as $$
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
            execute format('create table %I partition of %I for values from (%L) to (%L)',
                           v_name, v_table,
                           billing_first_id(v_start), billing_first_id(v_start + interval '1 month'));
            -- Reached through its parent alone: what the parent forbids must not be allowed here.
            execute format('revoke all on %I from meterline_app, meterline_console', v_name);
        end loop;
    end loop;
end
$$;
