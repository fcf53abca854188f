-- What the console may not do, whatever its code does: change terms that are in force, or were.
create or replace function billing_keep_terms()
returns trigger
language plpgsql as $$
begin
    if current_user = 'meterline_console' and old.effective_from <= clock_timestamp() then
        raise exception 'terms that are in force are not changed' using errcode = 'insufficient_privilege';
    end if;
    return case tg_op when 'DELETE' then old else new end;
end
$$;
drop trigger if exists keep_terms on billing_terms;
create trigger keep_terms before update or delete on billing_terms
   for each row execute function billing_keep_terms();
