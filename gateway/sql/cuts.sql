-- Has whichever process a request is open in cut it off: a note among the changes that all of them follow, and an event of
-- the audit log. False where no such request is open, or not one that the connection's person may see. Runs as its owner:
-- the console writes neither by itself.
create or replace function gateway_cut(p_generation uuid)
returns boolean
language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
    v_organization uuid;
begin
    select h.organization into v_organization from billing_hold h
     where h.id = p_generation and (accounts_sees_all() or h.organization = any (accounts_seen()));
    if v_organization is null then
        return false;
    end if;
    insert into accounts_change (xid, "table", "row", at)
    values (pg_current_xact_id()::text::bigint, 'gateway_cut', p_generation::text, clock_timestamp());
    notify meterline_change;
    perform accounts_write_event('change', 'billing_hold', p_generation::text, v_organization, null, null, 'Cut off.');
    return true;
end
$$;
revoke execute on function gateway_cut(uuid) from public;
grant execute on function gateway_cut(uuid) to meterline_console;
