-- Keeps the sums of closed months, as soon as nothing can be posted to them any more: who might not have seen that they
-- are closed has ended, and what was posted to them is sealed. Runs as its owner: nobody else writes sums. Returns how
-- many months it summed; those that must wait are summed by a later run.
create or replace function billing_sum_closed(p_patience integer)
returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_months date[] := array(select c.month from billing_closedmonth c where c.summed_at is null order by c.month);
    v_month date;
    v_count integer := 0;
begin
    -- The months were read before: whoever writes and is not waited for has seen them closed.
    if cardinality(v_months) = 0 or not pg_try_advisory_xact_lock(hashtext('billing_seal'))
       or not billing_await_writers(p_patience) then
        return 0;
    end if;
    foreach v_month in array v_months loop
        exit when exists (
            select from billing_ledgerentry l
             where l.id > coalesce((select max(b.last_id) from billing_ledgerblock b), -9223372036854775808)
               and l.created_at < (v_month + interval '1 month') at time zone 'UTC');
        insert into billing_closedsum (month, organization, account, debit, credit, debits, credits)
        select v_month, d.organization, d.account, sum(d.debit), sum(d.credit), sum(d.debits), sum(d.credits)
          from billing_accountday d
         where d.day >= v_month and d.day < v_month + interval '1 month'
         group by d.organization, d.account;
        update billing_closedmonth c set summed_at = clock_timestamp() where c.month = v_month;
        v_count := v_count + 1;
    end loop;
    return v_count;
end
$$;
