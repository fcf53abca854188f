-- The audit log: what was changed, by whom and from where, as triggers see it; and its hash chain. The functions run as
-- their owner: no role that serves may write the log.

-- Waits until every transaction that may be writing to a table as this is called has ended; false when one goes on for
-- longer than p_patience hundredths of a second. Nobody is kept from writing, nor waits.
--
-- Ids are not in the order of commits, so what is visible below an id may still become more. But who inserts takes
-- RowExclusiveLock on the table first, then the id (the sequence caches none ahead), and gives the lock back once its
-- rows are to be seen, or never will be. So: read an id s that is there; call this, a later statement; read again, in
-- yet another one. Every id up to s was taken before s was seen, under a lock that is then still held, and is in the
-- list, or that was given back. After the wait all ids up to s are to be seen, and those that are not never will be.
-- Locks taken on the fast path stand in pg_locks too, and it is read as it is, not as of a snapshot. A transaction's
-- number (virtualtransaction) is not used again. A prepared one may lose it, so all of those are waited for.
-- A part of a transaction that is taken back gives up its lock and with it its ids; what follows takes new ones.
create or replace function accounts_await_writers(p_table regclass, p_patience integer)
returns boolean
language plpgsql as $$
declare
    v_writers text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'what was committed meanwhile would not be seen';
    end if;
    v_writers := array(select w.virtual from accounts_writers(p_table) w);
    for i in 0 .. p_patience loop
        if i > 0 then
            perform pg_sleep(0.01);
        end if;
        if not exists (select from accounts_writers(p_table) w where w.prepared or w.virtual = any(v_writers)) then
            return true;
        end if;
    end loop;
    return false;
end
$$;

-- The transactions that may be writing to a table at this moment.
create or replace function accounts_writers(p_table regclass)
returns table (virtual text, prepared boolean)
language sql stable as $$
    select l.virtualtransaction, l.pid is null
      from pg_locks l
     where l.locktype = 'relation' and l.relation = p_table and l.granted
       and l.database = (select oid from pg_database where datname = current_database())
       and l.mode = 'RowExclusiveLock' and l.pid is distinct from pg_backend_pid()
$$;

-- Writes an event. Who and where from is what the connection has entered as; else its role in the database.
create or replace function accounts_write_event(
    p_action text, p_table text, p_row text, p_organization uuid, p_before jsonb, p_after jsonb, p_note text
)
returns void
language sql volatile as $$
    insert into accounts_auditevent (at, actor, actor_name, address, action, "table", "row", organization, before, after, note)
    select clock_timestamp(), accounts_actor(),
           coalesce(nullif(substring(current_setting('meterline.actor', true) from position(' ' in current_setting('meterline.actor', true)) + 1), ''),
                    nullif(current_setting('role'), 'none'), session_user),
           coalesce(current_setting('meterline.address', true), ''),
           p_action, p_table, p_row, p_organization, p_before, p_after, p_note
$$;
revoke execute on function accounts_write_event(text, text, text, uuid, jsonb, jsonb, text) from public;

-- After each changed row of a table of configuration. Arguments: the column, or whose project's, that says which
-- organization it is of; columns that are secret, of which is told only that they changed; and columns that are no change.
create or replace function accounts_audit()
returns trigger
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_before jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) - string_to_array(tg_argv[2], ' ') end;
    v_after jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) - string_to_array(tg_argv[2], ' ') end;
    v_row jsonb := coalesce(v_after, v_before);
    v_changed text[];
    v_organization uuid;
    v_secret text;
begin
    if tg_op = 'UPDATE' then
        v_changed := array(select b.key from jsonb_each(v_before) b where b.value is distinct from v_after -> b.key);
        if cardinality(v_changed) = 0 then
            return null;
        end if;
        v_before := (select jsonb_object_agg(b.key, b.value) from jsonb_each(v_before) b where b.key = any(v_changed));
        v_after := (select jsonb_object_agg(a.key, a.value) from jsonb_each(v_after) a where a.key = any(v_changed));
    end if;
    foreach v_secret in array string_to_array(tg_argv[1], ' ') loop
        v_before := case when v_before ? v_secret then v_before || jsonb_build_object(v_secret, '(secret)') else v_before end;
        v_after := case when v_after ? v_secret then v_after || jsonb_build_object(v_secret, '(secret)') else v_after end;
    end loop;
    if tg_argv[0] = 'project_id' then
        select p.organization_id into v_organization from accounts_project p where p.id = (v_row ->> 'project_id')::uuid;
    elsif tg_argv[0] <> '' then
        v_organization := (v_row ->> tg_argv[0])::uuid;
    end if;
    perform accounts_write_event(
        case tg_op when 'INSERT' then 'add' when 'UPDATE' then 'change' else 'delete' end,
        tg_table_name, coalesce(v_row ->> tg_argv[3], ''), v_organization, v_before, v_after, '');
    return null;
end
$$;

-- For what changes no row: a secret that was shown or tried, a file that left.
create or replace function accounts_log(p_action text, p_table text, p_row text, p_organization uuid, p_note text)
returns void
language plpgsql volatile security definer set search_path = public, pg_temp as $$
begin
    if p_action not in ('reveal', 'export', 'test')
       and not (p_action = 'delete' and p_table in ('gateway_storedfile', 'gateway_payload')) then
        raise exception 'changes are logged by triggers';
    end if;
    perform accounts_write_event(p_action, p_table, left(p_row, 200), p_organization, null, null, left(p_note, 500));
end
$$;

-- The text that stands for events in a digest: a line each, in the order of ids, a JSON array of texts and nulls. JSON
-- values are jsonb's own text; times are UTC. So no two logs have the same text.
create or replace function accounts_events_text(p_after bigint, p_last bigint)
returns text
language sql stable as $$
    select coalesce(string_agg(
               json_build_array(
                   e.id::text, to_char(e.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), e.actor::text,
                   e.actor_name, e.address, e.action, e."table", e."row", e.organization::text, e.before::text,
                   e.after::text, e.note)::text || E'\n', '' order by e.id), '')
      from accounts_auditevent e where e.id > p_after and e.id <= p_last
$$;

create or replace function accounts_log_digest(p_block accounts_auditblock, p_after bigint)
returns text
language sql stable as $$
    select encode(sha256(convert_to(
               json_build_array(
                   p_block.number::text, p_block.previous, p_block.last_id::text, p_block.events::text,
                   to_char(p_block.sealed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text
               || E'\n' || accounts_events_text(p_after, p_block.last_id), 'UTF8')), 'hex')
$$;

-- The numbers of the blocks from p_from to p_to that do not hold: another digest than their events and fields come to, no
-- block before them, or one that they do not go on from.
create or replace function accounts_wrong_log_blocks(p_from bigint, p_to bigint)
returns setof bigint
language sql stable security definer set search_path = public, pg_temp as $$
    select b.number
      from accounts_auditblock b
      left join accounts_auditblock p on p.number = b.number - 1
     where b.number between p_from and p_to
       and not coalesce(
               case when b.number = 1 then b.previous = '' else b.previous = p.digest and b.last_id > p.last_id end
               and b.digest = accounts_log_digest(b, coalesce(p.last_id, 0)), false)
     order by b.number
$$;

-- Seals what is not sealed yet, up to p_most events a block; how many blocks that made: 0 when another seals, or when a
-- writer would have to be waited for too long, which the next run does again.
create or replace function accounts_seal_log(p_most integer, p_patience integer)
returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_top bigint;
    v_block accounts_auditblock;
    v_after bigint;
    v_made integer := 0;
begin
    if not pg_try_advisory_xact_lock(hashtext('accounts_seal_log')) then
        return 0;
    end if;
    select max(e.id) into v_top from accounts_auditevent e;
    if v_top is null or not accounts_await_writers('accounts_auditevent', p_patience) then
        return 0;
    end if;
    select * into v_block from accounts_auditblock b order by b.number desc limit 1;
    while coalesce(v_block.last_id, 0) < v_top and v_made < 20 loop
        v_after := coalesce(v_block.last_id, 0);
        v_block.number := coalesce(v_block.number, 0) + 1;
        v_block.previous := coalesce(v_block.digest, '');
        v_block.sealed_at := clock_timestamp();
        select count(*), max(q.id) into v_block.events, v_block.last_id
          from (select e.id from accounts_auditevent e
                 where e.id > v_after and e.id <= v_top order by e.id limit p_most) q;
        v_block.digest := accounts_log_digest(v_block, v_after);
        insert into accounts_auditblock (number, last_id, events, previous, digest, sealed_at)
        values (v_block.number, v_block.last_id, v_block.events, v_block.previous, v_block.digest, v_block.sealed_at);
        v_made := v_made + 1;
    end loop;
    return v_made;
end
$$;
