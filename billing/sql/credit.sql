-- Prepaid balances. The only writers of credits, lots and what an organization was granted.
--
-- A balance is `granted` less what its counter has used (period 'balance'). Lock order: the organization's billing_prepaid
-- row, then its counter. Admission and settlement know the counter alone: what lowers a balance is written there, under
-- the lock that they take, and counts at once; `granted`, which they may have read before they had the lock, only grows.

-- What is left of an organization's credits at this moment, in the order in which they are spent: what was given before
-- what was paid, then what expires first, then the oldest.
create or replace function billing_lots(p_organization uuid)
returns table (credit bigint, kind text, bonus boolean, expires_at timestamptz, remaining numeric)
language sql stable as $$
    with spent as (
        select coalesce((select c.used from billing_counter c
                          where c.subject = p.organization_id and c.measure = 'money' and c.period = 'balance'
                            and c.period_start = billing_window('balance', now())
                          order by c.version desc limit 1), p.used) - p.used as amount
          from billing_prepaid p where p.organization_id = p_organization
    ), kept as (
        select k.id, k.kind, k.kind not in ('top_up', 'adjustment') as bonus, k.expires_at, l.remaining
          from billing_lot l join billing_credit k on k.id = l.credit_id
         where l.organization = p_organization
    ), ordered as (
        select k.*, sum(k.remaining) over (order by k.bonus desc, k.expires_at nulls last, k.id) - k.remaining as before
          from kept k
    )
    select o.id, o.kind, o.bonus, o.expires_at, o.remaining - least(o.remaining, greatest(s.amount - o.before, 0))
      from ordered o cross join spent s
     order by o.bonus desc, o.expires_at nulls last, o.id
$$;

-- Locks a balance until the transaction ends, and brings its lots up to this moment.
create or replace function billing_lock_balance(
    p_organization uuid, out counter bigint, out granted numeric, out used numeric, out held numeric
)
language plpgsql as $$
#variable_conflict use_column
declare
    v_counter bigint; v_used numeric; v_held numeric; v_granted numeric;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'what was committed meanwhile would not be seen';
    end if;
    select p.granted into v_granted
      from billing_prepaid p where p.organization_id = p_organization for no key update;
    if not found then  -- it may have ended while its row was waited for
        raise exception 'the organization is postpaid' using errcode = 'check_violation';
    end if;
    select c.id into strict v_counter from billing_counter c
     where c.subject = p_organization and c.measure = 'money' and c.period = 'balance'
       and c.period_start = billing_window('balance', now())
     order by c.version desc limit 1;
    select l.used, l.held into strict v_used, v_held from billing_lock_counters(array[v_counter]) l;
    update billing_lot l set remaining = n.remaining
      from billing_lots(p_organization) n where n.credit = l.credit_id and n.remaining <> l.remaining;
    delete from billing_lot l where l.organization = p_organization and l.remaining = 0;
    update billing_prepaid p set used = v_used where p.organization_id = p_organization and p.used <> v_used;
    counter := v_counter; granted := v_granted; used := v_used; held := v_held;
end
$$;

-- Writes a movement and its entry in the ledger, on accounts of its own; dated as in billing_close. What it takes or
-- gives back (below 0; or `expired`) is counted as used. The caller has locked the balance. Returns its id.
create or replace function billing_move_balance(
    p_organization uuid, p_kind text, p_amount numeric, p_expires_at timestamptz, p_reference text, p_note text,
    p_by text, p_used numeric, p_counter bigint, p_of bigint
)
returns bigint
language plpgsql as $$
declare
    v_now timestamptz := clock_timestamp();
    v_id bigint;
begin
    insert into billing_credit (organization_id, kind, amount, expires_at, reference, note, granted_by, created_at,
                                used_before, of_id)
    values (p_organization, p_kind, p_amount, p_expires_at, p_reference, p_note, p_by, v_now, p_used, p_of)
    returning id into v_id;
    insert into billing_ledgerentry (transaction, kind, generation, organization, debit, credit, amount, currency,
                                     created_at, late_of)
    select gen_random_uuid(), p_kind, null, p_organization,
           case when p_amount > 0 then 'prepaid-' || p_kind else 'prepaid:' || p_organization end,
           case when p_amount > 0 then 'prepaid:' || p_organization else 'prepaid-' || p_kind end, abs(p_amount), 'USD',
           greatest(v_now, o.opens), case when v_now < o.opens then (v_now at time zone 'UTC')::date end
      from (select (max(c.month) + interval '1 month') at time zone 'UTC' as opens from billing_closedmonth c) o;
    if p_amount > 0 and p_kind <> 'expired' then
        update billing_prepaid set granted = granted + p_amount, granted_at = v_now
         where organization_id = p_organization;
        insert into billing_lot (credit_id, organization, remaining) values (v_id, p_organization, p_amount);
    else
        update billing_counter set used = used - p_amount, writes = writes + 1 where id = p_counter;
        update billing_prepaid set used = used - p_amount where organization_id = p_organization;
    end if;
    return v_id;
end
$$;

-- What was spent beyond a balance had been held before a credit expired. It is given back to that one, the last that
-- expired first, and so paid by it: what is granted afterwards is not touched. Returns what is used then.
create or replace function billing_pay_late(p_organization uuid, p_counter bigint, p_granted numeric, p_used numeric)
returns numeric
language plpgsql as $$
declare
    v_of bigint; v_left numeric; v_last bigint; v_taken numeric;
begin
    for v_of, v_left, v_last in
        select k.of_id, -sum(k.amount), max(k.id) from billing_credit k
         where p_used > p_granted and k.organization_id = p_organization and k.kind = 'expired'
         group by k.of_id having sum(k.amount) < 0 order by max(k.id) desc
    loop
        exit when p_used <= p_granted;
        v_taken := least(v_left, p_used - p_granted);
        perform billing_move_balance(p_organization, 'expired', v_taken, null,
                                     'expired:' || v_of || ':' || v_last, 'Held before it expired', '', p_used,
                                     p_counter, v_of);
        p_used := p_used - v_taken;
    end loop;
    return p_used;
end
$$;

-- Moves a balance by what somebody gives or takes. Of two with one reference the second is refused, however they race.
-- An adjustment below 0 takes what would be spent last, and nothing that is spent or held. p_begin: an organization that
-- is postpaid is prepaid from now on; what it has open is not paid by the balance. One that was prepaid before goes on
-- with its counter, of which all that was granted then is used. Returns the credit's id.
create or replace function billing_grant_credit(
    p_organization uuid, p_kind text, p_amount numeric, p_expires_at timestamptz, p_reference text, p_note text,
    p_by text, p_begin boolean
)
returns bigint
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_now timestamptz := clock_timestamp();
    v_amount numeric := p_amount::numeric(24, 12);
    b record;
    v_id bigint;
    v_given numeric; v_taken numeric;
    v_begun boolean := false;
begin
    if p_kind = 'expired' or p_reference = '' or p_reference like 'expired:%' then
        raise exception 'a credit has a kind and a reference of its own' using errcode = 'check_violation';
    end if;
    if p_expires_at <= v_now then
        raise exception 'it would have expired already' using errcode = 'check_violation';
    end if;
    if p_begin then
        perform billing_begin_windows(array[p_organization]);
        insert into billing_counter (organization, subject, measure, period, period_start, used, held)
        select p_organization, p_organization, 'money', 'balance', billing_window('balance', v_now), 0, 0
         where not exists (select from billing_counter c where c.subject = p_organization and c.measure = 'money'
                              and c.period = 'balance' and c.period_start = billing_window('balance', v_now));
        select coalesce(sum(k.amount) filter (where k.amount > 0 and k.kind <> 'expired'), 0),
               coalesce(-sum(k.amount) filter (where k.amount < 0 or k.kind = 'expired'), 0)
          into v_given, v_taken from billing_credit k where k.organization_id = p_organization;
        insert into billing_prepaid (organization_id, since, granted, granted_at, used, carried)
        values (p_organization, v_now, v_given, v_now, v_given, v_given - v_taken) on conflict do nothing;
        v_begun := found;
    end if;
    if not exists (select from billing_prepaid p where p.organization_id = p_organization) then
        raise exception 'the organization is postpaid' using errcode = 'check_violation';
    end if;
    select * into b from billing_lock_balance(p_organization);
    if v_begun and b.used <> b.granted then  -- a request that held nothing and was billed after the balance had ended
        update billing_counter set used = b.granted, writes = writes + 1 where id = b.counter;
        update billing_prepaid p set used = b.granted where p.organization_id = p_organization;
        b.used := b.granted;
    end if;
    if v_amount < 0 and v_amount < b.used + b.held - b.granted then
        raise exception 'the balance has $% that is neither spent nor held',
                        trim_scale(greatest(b.granted - b.used - b.held, 0)) using errcode = 'check_violation';
    end if;
    b.used := billing_pay_late(p_organization, b.counter, b.granted, b.used);
    if v_amount < 0 then
        update billing_lot l set remaining = l.remaining - least(l.remaining, greatest(-v_amount - o.before, 0))
          from (select k.id, sum(m.remaining) over (order by k.kind not in ('top_up', 'adjustment'),
                                                    k.expires_at desc nulls first, k.id desc) - m.remaining as before
                  from billing_lot m join billing_credit k on k.id = m.credit_id
                 where m.organization = p_organization) o
         where l.credit_id = o.id and o.before < -v_amount;
        delete from billing_lot l where l.organization = p_organization and l.remaining = 0;
    end if;
    return billing_move_balance(p_organization, p_kind, v_amount, p_expires_at, p_reference, p_note, p_by, b.used,
                                b.counter, null);
end
$$;

-- Organizations whose balance has something to expire, or was overdrawn by what had been held until then.
create or replace function billing_due_balances()
returns setof uuid
language sql stable as $$
    select l.organization from billing_lot l join billing_credit k on k.id = l.credit_id
     where k.expires_at <= clock_timestamp()
    union
    select p.organization_id from billing_prepaid p
     cross join lateral (
           select c.used from billing_counter c
            where c.subject = p.organization_id and c.measure = 'money' and c.period = 'balance'
              and c.period_start = billing_window('balance', now())
            order by c.version desc limit 1) c
     where c.used > p.granted
$$;

-- Takes what is left of an organization's credits whose time is over; whoever comes second finds nothing. What is held
-- at this moment is settled all the same, and paid late if nothing else is left; no new hold finds room until then.
-- One organization a transaction: its counter is locked. Returns how many expired.
create or replace function billing_expire_credit(p_organization uuid)
returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    b record;
    v_lot record;
    v_count integer := 0;
begin
    select * into b from billing_lock_balance(p_organization);
    b.used := billing_pay_late(p_organization, b.counter, b.granted, b.used);
    for v_lot in
        select n.credit, n.remaining from billing_lots(p_organization) n
         where n.expires_at <= clock_timestamp() and n.remaining > 0
    loop
        delete from billing_lot l where l.credit_id = v_lot.credit;
        perform billing_move_balance(p_organization, 'expired', -v_lot.remaining, null, 'expired:' || v_lot.credit, '',
                                     '', b.used, b.counter, v_lot.credit);
        b.used := b.used + v_lot.remaining;
        v_count := v_count + 1;
    end loop;
    return v_count;
end
$$;

-- Ends a balance: its organization is postpaid from now on. Only when nothing is left, and nothing held: what is left is
-- taken by an adjustment before, with the entry that says so, and what is open is settled, so that no unit is lost. A
-- request that is admitted meanwhile waits for the counter, and finds nothing left, or comes when the organization is
-- postpaid. Its credits stay, and a balance that begins again goes on after them.
create or replace function billing_end_balance(p_organization uuid)
returns void
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    b record;
begin
    select * into b from billing_lock_balance(p_organization);
    b.used := billing_pay_late(p_organization, b.counter, b.granted, b.used);
    if b.used < b.granted then
        raise exception 'the balance has $% left, of which $% are held: take what is not spent by an adjustment first',
                        trim_scale(b.granted - b.used), trim_scale(b.held) using errcode = 'check_violation';
    end if;
    if exists (select from billing_hold h where h.organization = p_organization and h.counters @> to_jsonb(b.counter)) then
        raise exception 'requests are open that hold of the balance' using errcode = 'check_violation';
    end if;
    delete from billing_prepaid p where p.organization_id = p_organization;
end
$$;

create or replace function billing_keep_credits()
returns trigger
language plpgsql as $$
begin
    raise exception 'a credit stays as it is; another one corrects it' using errcode = 'insufficient_privilege';
end
$$;
drop trigger if exists keep_credits on billing_credit;
create trigger keep_credits before update or delete or truncate on billing_credit
   for each statement execute function billing_keep_credits();
