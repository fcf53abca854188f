-- Notes which row of configuration changed, in the changing transaction, and wakes the listening processes. Runs as its
-- owner: whoever may change a row need not be able to write the notes. The first argument is the key column.
create or replace function accounts_note_change()
returns trigger
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_row text;
begin
    if tg_op = 'DELETE' then
        v_row := to_jsonb(old) ->> tg_argv[0];
    else
        v_row := to_jsonb(new) ->> tg_argv[0];
    end if;
    insert into accounts_change (xid, "table", "row", at)
    values (pg_current_xact_id()::text::bigint, tg_table_name, v_row, clock_timestamp());
    notify meterline_change;
    return null;
end
$$;
