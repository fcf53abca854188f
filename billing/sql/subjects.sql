-- Whom a key's calls count for: itself, its project, its organization.
create or replace view billing_key_subject as
select k.id as key, p.organization_id as organization, s.subject
  from accounts_apikey k
  join accounts_project p on p.id = k.project_id
 cross join lateral (values (k.id), (p.id), (p.organization_id)) as s(subject);
