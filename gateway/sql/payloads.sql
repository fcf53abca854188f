-- Kept payloads: who may have one shown, that it is logged before it is, and what is kept no longer.

-- Whether the person as whom the connection has entered may break the glass of an organization's payloads: its owners,
-- and who runs the installation.
create or replace function gateway_may_reveal(p_organization uuid)
returns boolean
language sql stable as $$
    select exists (
        select from accounts_user u
         where u.id = accounts_actor() and u.is_active and u.is_staff
           and (u.is_superuser
                or exists (select from accounts_user_groups ug join auth_group g on g.id = ug.group_id
                            where ug.user_id = u.id and g.name = 'operator')
                or exists (select from accounts_membership m
                            where m.user_id = u.id and m.organization_id = p_organization and m.role = 'owner')))
$$;

-- One payload, sealed, for a reason, which the audit log has with who, when and from where. No row: there is none, it is
-- kept no longer, or it is not for this person. No other way leads to what is in it: no role that serves may read it.
create or replace function gateway_reveal_payload(p_id uuid, p_reason text, p_most_days integer)
returns table (prompt bytea, answer bytea)
language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
    v_payload gateway_payload;
begin
    if coalesce(btrim(p_reason), '') = '' then
        raise exception 'a reason is needed';
    end if;
    select y.* into v_payload
      from gateway_payload y join accounts_project p on p.id = y.project
     where y.id = p_id and y.created_at > now() - make_interval(days => least(p.payload_days, p_most_days))
       and gateway_may_reveal(y.organization);
    if v_payload.id is null then
        return;
    end if;
    perform accounts_write_event('reveal', 'gateway_payload', v_payload.id::text, v_payload.organization, null, null,
                                 left(p_reason, 500));
    return query select v_payload.prompt, v_payload.answer;
end
$$;

-- Deletes up to p_limit payloads that are kept no longer: older than their project says now, of one that has switched it
-- off, or is gone. By the index, project by project. Returns how many.
create or replace function gateway_purge_payloads(p_most_days integer, p_limit integer)
returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_gone integer;
begin
    with recursive kept as (
        (select y.project from gateway_payload y order by y.project limit 1)
        union all
        select (select y.project from gateway_payload y where y.project > k.project order by y.project limit 1)
          from kept k where k.project is not null
    ), old as (
        select o.id
          from kept k
          left join accounts_project p on p.id = k.project
         cross join lateral (
               select y.id from gateway_payload y
                where y.project = k.project
                  and y.created_at <= now() - make_interval(days => least(coalesce(p.payload_days, 0), p_most_days))
                order by y.created_at limit p_limit) o
         where k.project is not null
         limit p_limit
    ), gone as (
        delete from gateway_payload y using old where y.id = old.id returning 1
    )
    select count(*) into v_gone from gone;
    delete from gateway_payloadday d where d.day < (now() at time zone 'UTC')::date - 1;
    return v_gone;
end
$$;
