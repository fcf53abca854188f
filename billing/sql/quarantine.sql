-- Judges a provider's claim of a generation that was not believed, once: of two the second is told so, and nothing is
-- written. Accepted, the difference is posted as a re-pricing of that one generation is (billing_apply_repricing), on the
-- day that it was made, in the first open month if that one is closed. Returns whether it was judged by this call.
create or replace function billing_judge_claim(
    p_generation uuid, p_by text, p_accepted boolean, p_claimed jsonb, p_charge numeric, p_cost numeric
)
returns boolean
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    u record;
    v_day date;
    v_run bigint;
    v_charge numeric; v_cost numeric;
begin
    select x.organization, x.tariff_version, x.created_at, coalesce(x.charge, 0) as charge,
           coalesce(x.provider_cost, 0) as cost
      into u from billing_usage x where x.id = p_generation and x.suspect;
    if not found then
        raise exception 'there is no such generation in quarantine' using errcode = 'check_violation';
    end if;
    v_charge := case when p_accepted then p_charge::numeric(24, 12) - u.charge else 0 end;
    v_cost := case when p_accepted then p_cost::numeric(24, 12) - u.cost else 0 end;
    insert into billing_judgement (generation, organization, decision, claimed, charge_change, cost_change, decided_by,
                                   decided_at)
    values (p_generation, u.organization, case when p_accepted then 'accepted' else 'dismissed' end, p_claimed, v_charge,
            v_cost, p_by, clock_timestamp())
        on conflict do nothing;
    if not found then
        return false;
    end if;
    if v_charge <> 0 or v_cost <> 0 then
        v_day := (u.created_at at time zone 'UTC')::date;
        insert into billing_repricing (version_id, first, until, asked_by, state, stop, total, done, digest, looks,
                                       applied_by, generation)
        values (u.tariff_version, v_day, v_day + 1, p_by, 'counted', false, 1, 1, '', 1, '', p_generation)
        returning id into v_run;
        insert into billing_repricingsum (run_id, organization, day, rows, "left", charge_before, charge_after,
                                          charge_prior, cost_before, cost_after, cost_prior)
        values (v_run, u.organization, v_day, 1, 0, u.charge, u.charge + v_charge, 0, u.cost, u.cost + v_cost, 0);
        perform billing_apply_repricing(v_run, p_by);
        update billing_judgement j set run_id = v_run where j.generation = p_generation;
    end if;
    return true;
end
$$;
