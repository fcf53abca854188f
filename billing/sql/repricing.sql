-- Posts what a counted re-pricing comes to: for each organization and month the difference of charges and of costs, on
-- accounts of their own (kind `reprice`), and notes that it is applied; in one transaction, once. Returns how many
-- entries that made; NULL when it is not counted, or applied already. Whoever calls it has counted anew, alone.
-- An entry is of the last day of its month that the run has usage of. When that month is closed, it is of the first
-- moment that is open, with a note of the day. The same statement looks which is open, as in billing_close.
create or replace function billing_apply_repricing(p_run bigint, p_by text)
returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_count integer;
begin
    update billing_repricing r set state = 'applied', applied_at = clock_timestamp(), applied_by = p_by
     where r.id = p_run and r.state = 'counted';
    if not found then
        return null;
    end if;
    insert into billing_ledgerentry (transaction, kind, generation, organization, debit, credit, amount, currency,
                                     created_at, late_of)
    select m.transaction, 'reprice', null, m.organization, case when l.amount > 0 then l.debit else l.credit end,
           case when l.amount > 0 then l.credit else l.debit end, abs(l.amount), 'USD',
           greatest(m.last at time zone 'UTC', o.opens), case when m.last at time zone 'UTC' < o.opens then m.last::date end
      from (select (max(c.month) + interval '1 month') at time zone 'UTC' as opens from billing_closedmonth c) o
     cross join (
         select gen_random_uuid() as transaction, s.organization, max(s.day)::timestamp as last,
                sum(s.charge_after - s.charge_before - s.charge_prior) as charge,
                sum(s.cost_after - s.cost_before - s.cost_prior) as cost
           from billing_repricingsum s where s.run_id = p_run
          group by s.organization, date_trunc('month', s.day)
     ) m
     cross join lateral (
         values ('repriced:' || m.organization, 'repriced-revenue', m.charge),
                ('repriced-cost', 'repriced-provider', m.cost)
     ) as l(debit, credit, amount)
     where l.amount <> 0;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
