-- Ends the rests of what has changed: a credential's secret, a provider's address, an offer's name for the model, or that
-- one of them is switched on. What failed before says nothing of what is there now. Runs as its owner: whoever edits the
-- configuration need not be able to write what the gateways find out.
create or replace function routing_end_rests()
returns trigger
language plpgsql security definer set search_path = public, pg_temp as $$
begin
    update routing_ejection e
       set closed_at = clock_timestamp(), closed_by = 'operator', probed_until = null
     where e.closed_at is null
       and case tg_table_name
           when 'routing_credential' then e.credential_id::text = to_jsonb(new) ->> 'id'
           when 'routing_offer' then e.offer_id::text = to_jsonb(new) ->> 'id'
           else e.offer_id in (select o.id from routing_offer o where o.provider_id::text = to_jsonb(new) ->> 'id')
                or e.credential_id in (
                    select c.id from routing_credential c where c.provider_id::text = to_jsonb(new) ->> 'id')
           end;
    return null;
end
$$;
