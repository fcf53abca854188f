-- Which keys may call at this moment. The hold reads it, so a revoked key makes no paid call after the revoke commits.
create or replace view accounts_alive_key as
select k.id, k.project_id as project, p.organization_id as organization
  from accounts_apikey k
  join accounts_project p on p.id = k.project_id and p.active
  join accounts_organization o on o.id = p.organization_id and o.active
  left join accounts_user u on u.id = k.owner_id
 where k.revoked_at is null
   and (k.valid_from is null or k.valid_from <= now())
   and (k.expires_at is null or k.expires_at > now())
   and (u.id is null or u.is_active);
