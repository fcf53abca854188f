-- Numbers documents, holds them to the ledger, and keeps them as they are.

-- Whoever issues waits for who issues before, until that is committed or taken back: so a year's numbers have no gap, and
-- none is given twice. What follows the lock sees what was committed before it was had.
create or replace function billing_number_statement()
returns trigger
language plpgsql as $$
declare
    v_of billing_statement;
    v_owed numeric;
begin
    perform pg_advisory_xact_lock(hashtext('billing_statement'));
    new.issued_at := clock_timestamp();
    new.year := extract(year from new.issued_at at time zone 'UTC');
    new.number := 1 + coalesce(
        (select max(s.number) from billing_statement s where s.issuer = new.issuer and s.year = new.year), 0);
    if new.kind = 'statement' then
        if not exists (select from billing_closedmonth c where c.month = new.month and c.summed_at is not null) then
            raise exception 'the month is not closed, or its sums are not kept yet' using errcode = 'check_violation';
        end if;
        v_owed := coalesce((select sum(c.debit - c.credit) from billing_closedsum c
                             where c.month = new.month and c.organization = new.organization
                               and c.account in ('tenant:' || new.organization, 'repriced:' || new.organization)), 0);
        if new.total <> v_owed
           or new.total <> coalesce((select sum((l->>'charge')::numeric) from jsonb_array_elements(new.lines) l), 0) then
            raise exception 'a statement''s lines, its total and the ledger are one sum' using errcode = 'check_violation';
        end if;
    else
        select s.* into v_of from billing_statement s where s.id = new.refers_to_id and s.kind = 'statement';
        if v_of.id is null or (v_of.organization, v_of.month, v_of.issuer, v_of.currency)
                              is distinct from (new.organization, new.month, new.issuer, new.currency) then
            raise exception 'a credit note is of its statement''s organization, month, issuer and currency'
                  using errcode = 'check_violation';
        end if;
        if new.total >= 0 or v_of.total + new.total
           + coalesce((select sum(s.total) from billing_statement s where s.refers_to_id = v_of.id), 0) < 0 then
            raise exception 'a credit note takes something, and no more than its statement has left'
                  using errcode = 'check_violation';
        end if;
    end if;
    return new;
end
$$;
drop trigger if exists number_statement on billing_statement;
create trigger number_statement before insert on billing_statement
   for each row execute function billing_number_statement();

create or replace function billing_keep_statements()
returns trigger
language plpgsql as $$
begin
    raise exception 'a statement stays as it is; a credit note takes of it' using errcode = 'insufficient_privilege';
end
$$;
drop trigger if exists keep_statements on billing_statement;
create trigger keep_statements before update or delete or truncate on billing_statement
   for each statement execute function billing_keep_statements();
