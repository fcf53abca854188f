-- What the console may not do, whatever its code does: change a price that is in force, or was. A version that is made in
-- the running transaction still gets its rates.
create or replace function billing_keep_rates()
returns trigger
language plpgsql as $$
declare
    v_version bigint;
begin
    if current_user <> 'meterline_console' then
        return case tg_op when 'DELETE' then old else new end;
    end if;
    if tg_table_name = 'billing_tariffversion' then
        v_version := old.id;
    else
        v_version := case tg_op when 'INSERT' then new.version_id else old.version_id end;
    end if;
    if exists (
        select 1 from billing_tariffversion v
         where v.id = v_version and v.effective_from <= clock_timestamp()
           and (tg_op <> 'INSERT' or age(v.xmin) > age(pg_current_xact_id()::xid))
    ) then
        raise exception 'rates that are in force are not changed' using errcode = 'insufficient_privilege';
    end if;
    if tg_table_name = 'billing_rate' and tg_op = 'UPDATE' then
        if new.version_id <> old.version_id then
            raise exception 'a rate stays with its version' using errcode = 'insufficient_privilege';
        end if;
    end if;
    return case tg_op when 'DELETE' then old else new end;
end
$$;
drop trigger if exists keep_rates on billing_rate;
create trigger keep_rates before insert or update or delete on billing_rate
   for each row execute function billing_keep_rates();
drop trigger if exists keep_rates on billing_tariffversion;
create trigger keep_rates before update or delete on billing_tariffversion
   for each row execute function billing_keep_rates();
