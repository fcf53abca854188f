-- Seals the ledger in blocks of a hash chain, and keeps balances. Nothing here is called by a settlement.

-- Waits until every transaction that may be writing to the ledger as this is called has ended; false when one goes on for
-- longer than p_patience hundredths of a second: see `accounts_await_writers` in `accounts/sql/log.sql`.
create or replace function billing_await_writers(p_patience integer)
returns boolean
language plpgsql as $$
begin
    return accounts_await_writers('billing_ledgerentry', p_patience);
end
$$;

-- The text that stands for entries in a digest: a line each, in the order of ids, a JSON array of texts and nulls with
-- ', ' between them, and the day that the entry is late for where there is one. Amounts have twelve decimals, times are
-- UTC with six. So no two ledgers have the same text.
create or replace function billing_entries_text(p_after bigint, p_last bigint)
returns text
language sql stable as $$
    select coalesce(string_agg(
               json_build_array(
                   l.id::text, l.transaction::text, l.kind, l.generation::text, l.organization::text, l.debit, l.credit,
                   l.amount::numeric(24,12)::text, l.currency,
                   to_char(l.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text
               || coalesce(' "' || to_char(l.late_of, 'YYYY-MM-DD') || '"', '') || E'\n', '' order by l.id), '')
      from billing_ledgerentry l where l.id > p_after and l.id <= p_last
$$;

-- The digest of a block: SHA-256 over a line of its own fields, with the digest before it, and the text of the entries.
create or replace function billing_block_digest(p_block billing_ledgerblock, p_after bigint)
returns text
language sql stable as $$
    select encode(sha256(convert_to(
               json_build_array(
                   p_block.number::text, p_block.previous, p_block.last_id::text, p_block.entries::text,
                   p_block.amount::numeric(30,12)::text,
                   to_char(p_block.sealed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text
               || E'\n' || billing_entries_text(p_after, p_block.last_id), 'UTF8')), 'hex')
$$;

-- The numbers of the blocks from p_from to p_to that do not hold: another digest than their entries and fields come to,
-- no block before them, or one that they do not go on from.
create or replace function billing_wrong_blocks(p_from bigint, p_to bigint)
returns setof bigint
language sql stable as $$
    select b.number
      from billing_ledgerblock b
      left join billing_ledgerblock p on p.number = b.number - 1
     where b.number between p_from and p_to
       and not coalesce(
               case when b.number = 1 then b.previous = '' else b.previous = p.digest and b.last_id > p.last_id end
               and b.digest = billing_block_digest(b, coalesce(p.last_id, -9223372036854775808)), false)
     order by b.number
$$;

-- What entries come to, by organization, account, day, and day that they belong to (UTC).
create or replace function billing_account_days(p_after bigint, p_last bigint)
returns table (
    day date, of_day date, organization uuid, account text, debit numeric, credit numeric, debits bigint, credits bigint
)
language sql stable as $$
    select (l.created_at at time zone 'UTC')::date, coalesce(l.late_of, (l.created_at at time zone 'UTC')::date),
           l.organization, s.account,
           sum(case when s.debits then l.amount else 0 end), sum(case when s.debits then 0 else l.amount end),
           count(*) filter (where s.debits), count(*) filter (where not s.debits)
      from billing_ledgerentry l cross join lateral (values (l.debit, true), (l.credit, false)) s(account, debits)
     where l.id > p_after and l.id <= p_last
     group by 1, 2, 3, 4
$$;

-- Seals what is not sealed yet, in up to p_blocks blocks of up to p_most entries, and adds each block to the balances.
-- Runs as its owner: nobody else writes blocks or balances. Returns how many blocks it made; 0 when another seals, or
-- when a writer would have to be waited for too long, which the next run does again.
create or replace function billing_seal(p_blocks integer, p_most integer, p_patience integer)
returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_top bigint;
    v_block billing_ledgerblock;
    v_after bigint;
    v_made integer := 0;
begin
    if not pg_try_advisory_xact_lock(hashtext('billing_seal')) then
        return 0;
    end if;
    select max(l.id) into v_top from billing_ledgerentry l;
    if not billing_await_writers(p_patience) then
        return 0;
    end if;
    insert into billing_mark (name, until, ran_at) values ('sealing', clock_timestamp(), clock_timestamp())
        on conflict (name) do update set until = excluded.until, ran_at = excluded.ran_at;

    select * into v_block from billing_ledgerblock b order by b.number desc limit 1;
    for i in 1 .. p_blocks loop
        v_after := coalesce(v_block.last_id, -9223372036854775808);
        v_block.number := coalesce(v_block.number, 0) + 1;
        v_block.previous := coalesce(v_block.digest, '');
        v_block.sealed_at := clock_timestamp();
        select count(*), sum(q.amount), case when count(*) < p_most then v_top else max(q.id) end
          into v_block.entries, v_block.amount, v_block.last_id
          from (select l.id, l.amount from billing_ledgerentry l
                 where l.id > v_after and l.id <= v_top order by l.id limit p_most) q;
        exit when v_block.entries = 0;
        v_block.digest := billing_block_digest(v_block, v_after);
        insert into billing_ledgerblock (number, last_id, entries, amount, previous, digest, sealed_at)
        values (v_block.number, v_block.last_id, v_block.entries, v_block.amount, v_block.previous, v_block.digest,
                v_block.sealed_at);
        insert into billing_accountday as d (day, of_day, organization, account, debit, credit, debits, credits)
        select e.day, e.of_day, e.organization, e.account, e.debit, e.credit, e.debits, e.credits
          from billing_account_days(v_after, v_block.last_id) e
            on conflict (organization, account, day, of_day) do update
           set debit = d.debit + excluded.debit, credit = d.credit + excluded.credit,
               debits = d.debits + excluded.debits, credits = d.credits + excluded.credits;
        v_made := i;
        exit when v_block.last_id >= v_top;
    end loop;
    return v_made;
end
$$;
