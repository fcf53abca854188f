-- What is on offer, as one document, for whoever reads the catalog in the console: of all models, or of those of
-- `p_slugs`, at the list's prices or, where the connection sees that organization, at what `p_organization` agreed on.
--
-- Runs as its owner: members of organizations see neither providers, offers, tariffs nor policies. So nothing is in it
-- that a request of theirs is not told as well: no address and no secret of a provider, only whether it can be called,
-- and of rates what is charged now. What a provider takes is in it for an organization that pays so much on top of that.
--
-- models    {id: [a row for each offer, in the order of `routing.catalog.QUERY`]}
-- terms     rows of `routing.terms.QUERY`
-- policies  rows of `routing.planning.policy.QUERY`: those of all, of models, and of the organization's projects
-- projects  the organization's, active
-- allowed   the lists of models of its living keys; null: some key may use all, or there is none
create or replace function routing_sold(p_organization uuid, p_slugs text[])
returns jsonb
language sql stable security definer set search_path = public, pg_temp as $$
with reader as materialized (
    select o.id from accounts_organization o
     where o.id = p_organization and (accounts_sees_all() or o.id = any (accounts_seen()))
), agreed as materialized (
    select t.* from billing_terms t join reader on reader.id = t.organization_id
), on_top as materialized (
    select exists (select from agreed where markup is not null) as cost
), wanted as materialized (
    select m.* from routing_model m where m.active and (p_slugs is null or m.slug = any (p_slugs))
), tariffs as materialized (
    select o.tariff_id as id
      from wanted m join routing_offer o on o.model_id = m.id and o.active
     where o.tariff_id is not null
     union
    select price_list_id from agreed where price_list_id is not null
), current as materialized (
    select distinct on (v.tariff_id) v.*
      from tariffs t join billing_tariffversion v on v.tariff_id = t.id and v.effective_from <= now()
     order by v.tariff_id, v.effective_from desc
), rates as materialized (
    select r.version_id, jsonb_agg(jsonb_build_array(r.item, r.above, r.service_tier,
                                                     case when on_top.cost then r.cost::text end, r.charge::text)) as list
      from current v join billing_rate r on r.version_id = v.id
     cross join on_top
     group by r.version_id
), versions as materialized (
    select v.tariff_id, jsonb_build_array(jsonb_build_array(v.id, v.effective_from, v.marginal, v.exchange_rate::text,
                                                            coalesce(r.list, '[]'))) as list
      from current v left join rates r on r.version_id = v.id
), offered as (
    select m.id, jsonb_agg(jsonb_build_array(
               m.id, m.slug, m.name, m.aliases, m.input_modalities, m.output_modalities, m.context_length, m.max_output,
               m.supported_parameters, m.capabilities, m.published_on, m.image_token_bound, m.audio_token_bound,
               m.file_token_bound, m.quality, o.id, o.upstream_model, o.priority, o.weight, o.context_length,
               o.max_output, o.input_modalities, o.supported_parameters, o.quality, o.forced,
               p.slug, p.protocol, p.variant, '', case when p.auth_style = 'none' or exists (
                   select from routing_credential c where c.provider_id = p.id and c.active and c.sealed <> ''
               ) then 'none' else 'bearer' end,
               false, '', 0, 0, 0, 0, 0, 0, p.trains_on_data, p.retains_data, '', 0, '', '',
               null, v.list, o.tariff_id)) as list
      from wanted m
      join routing_offer o on o.model_id = m.id and o.active
      join routing_provider p on p.id = o.provider_id and p.active
      left join versions v on v.tariff_id = o.tariff_id
     group by m.id
)
select jsonb_build_object(
    'models', (select coalesce(jsonb_object_agg(id, list), '{}') from offered),
    'terms', (select coalesce(jsonb_agg(jsonb_build_array(t.organization_id, t.tariff_id, t.effective_from,
                                                          t.markup::text, t.price_list_id is not null, v.list)
                                        order by t.effective_from), '[]')
                from agreed t left join versions v on v.tariff_id = t.price_list_id),
    'policies', (select coalesce(jsonb_agg(jsonb_build_array(
                     s.level, null, s.project_id, s.model_id, nullif(s.strategy, ''), nullif(s.factor, ''), s.providers,
                     s.only_providers, nullif(s.fallback, ''), s.max_attempts, s.first_byte_timeout, s.total_timeout,
                     s.refuses_training, s.refuses_retention, s.continues_streams)), '[]')
                   from routing_policy s
                  where s.level in ('global', 'model')
                     or s.project_id in (select r.id from accounts_project r join reader on reader.id = r.organization_id)),
    'projects', (select coalesce(jsonb_agg(r.id order by r.slug), '[]')
                   from accounts_project r join reader on reader.id = r.organization_id where r.active),
    'allowed', (select case when bool_and(cardinality(k.allowed_models) > 0) then jsonb_agg(distinct k.allowed_models) end
                  from reader join accounts_alive_key a on a.organization = reader.id
                  join accounts_apikey k on k.id = a.id)
)
$$;
