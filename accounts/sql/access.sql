-- What a connection of the console may see. Every request says once who makes it; a connection for which nobody has said
-- so sees nothing. The rows are held back by policies (row-level security), whatever the console's code asks for.

-- Enters as a person, from an address; no row, and nothing to see, for who is nobody or may not log in any more. Runs as
-- its owner, so that who belongs where is read before anything is seen.
create or replace function accounts_enter(p_user bigint, p_address text)
returns table (superuser boolean, offices text[], organizations uuid[], roles text[])
language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
    v_name text;
    v_sees text;
begin
    select u.username, u.is_superuser into v_name, superuser from accounts_user u where u.id = p_user and u.is_active and u.is_staff;
    if v_name is not null then
        select coalesce(array_agg(g.name::text), '{}') into offices
          from accounts_user_groups ug join auth_group g on g.id = ug.group_id
         where ug.user_id = p_user and g.name in ('operator', 'finance', 'auditor');
        select coalesce(array_agg(m.organization_id order by m.organization_id), '{}'),
               coalesce(array_agg(m.role::text order by m.organization_id), '{}')
          into organizations, roles from accounts_membership m where m.user_id = p_user;
        v_sees := case when superuser or cardinality(offices) > 0 then 'all' else organizations::text end;
    end if;
    perform set_config('meterline.sees', coalesce(v_sees, ''), false),
            set_config('meterline.actor', coalesce(p_user::text || ' ' || v_name, ''), false),
            set_config('meterline.address', coalesce(p_address, ''), false);
    if v_name is not null then
        return next;
    end if;
end
$$;

create or replace function accounts_sees_all()
returns boolean
language sql stable parallel safe as $$
    select coalesce(current_setting('meterline.sees', true), '') = 'all'
$$;

-- The organizations whose rows are seen, besides.
create or replace function accounts_seen()
returns uuid[]
language sql stable parallel safe as $$
    select case when coalesce(current_setting('meterline.sees', true), '') in ('', 'all') then '{}'
                else current_setting('meterline.sees', true)::uuid[] end
$$;

-- The person as whom the connection has entered; NULL when as nobody.
create or replace function accounts_actor()
returns bigint
language sql stable parallel safe as $$
    select nullif(split_part(coalesce(current_setting('meterline.actor', true), ''), ' ', 1), '')::bigint
$$;
