-- The only writer of files. Stores one, unless its project has no room for it.
--   p_seconds     how long it is kept (null: until it is deleted)
--   p_most_bytes, p_most_files  what a project may have, this one included; what has expired does not count
-- Returns one row. verdict: stored | bytes | files, the last two being the limit it would pass.
-- Sent again after a lost connection, it returns what was recorded.
create or replace function gateway_store_file(
    p_id uuid, p_project uuid, p_key uuid, p_filename text, p_purpose text, p_media_type text, p_bytes bigint,
    p_content bytea, p_seconds bigint, p_most_bytes bigint, p_most_files bigint
)
returns table (verdict text, created_at timestamptz, expires_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
    v_bytes bigint;
    v_files bigint;
begin
    -- Two uploads at once must not both find the room that is left for one. What the lock's last holder committed is
    -- seen, since the sum is a statement of its own.
    perform pg_advisory_xact_lock(hashtextextended('gateway_store_file ' || p_project, 0));
    return query select 'stored', f.created_at, f.expires_at
                   from gateway_storedfile f where f.id = p_id and f.project_id = p_project;
    if found then
        return;
    end if;
    select coalesce(sum(f.bytes), 0) + p_bytes, count(*) + 1 into v_bytes, v_files
      from gateway_storedfile f
     where f.project_id = p_project and (f.expires_at is null or f.expires_at > v_now);
    if v_bytes > p_most_bytes or v_files > p_most_files then
        return query select case when v_bytes > p_most_bytes then 'bytes' else 'files' end,
                            null::timestamptz, null::timestamptz;
        return;
    end if;
    return query
    insert into gateway_storedfile as f
           (id, project_id, key, filename, purpose, media_type, bytes, content, created_at, expires_at)
    values (p_id, p_project, p_key, p_filename, p_purpose, p_media_type, p_bytes, p_content, v_now,
            v_now + make_interval(secs => p_seconds))
    returning 'stored', f.created_at, f.expires_at;
end
$$;
