"""Noting which budgets have reached a percent of their amount, and which prepaid balances are low, once each, and who
is to be told.

One statement: its crossings and their messages are there together or not at all, and of two workers that look at the
same moment the unique row lets one pass. It reads what is settled: a hold is no spending yet. Where nobody is to be
told nothing is looked at, so a recipient that is added hears at once of what the running period has reached by then.

A balance is low once after each credit, for each amount that it falls below.

Of the window before the running one the last minutes are looked at, too: else nobody would be told what is spent in its
last seconds.
"""

from django.db import connection, transaction

RETENTION_DAYS = 90  # longer than any period but the one for ever, whose crossings stay, as do the last credit's

NOTE = """
with recipient as materialized (
    select r.id, r.organization_id as organization, r.channel, r.address from billing_recipient r where r.active
), reached as (
    select b.organization_id as organization, b.project_id as project, b.key_id as key, c.subject, b.model, c.end_user,
           b.period, w.start, p.percent, b.amount, b.hard, c.used
      from billing_budget b
     cross join lateral (
           select distinct billing_window(b.period, v.moment, b.time_zone) as start
             from (values (now()), (now() - interval '10 minutes')) v(moment)) w
     cross join lateral (
           (select n.used, n.subject, n.end_user from billing_counter n
             where b.end_user <> '*' and n.subject = billing_scope(b.subject, b.model, nullif(b.end_user, ''))
               and n.measure = 'money' and n.period = b.period and n.period_start = w.start
             order by n.version desc limit 1)
           union all
           -- A row for each end user, but for those who have a budget by name.
           select n.used, n.subject, n.end_user from billing_counter n
            where b.end_user = '*' and n.owner = b.subject and n.period = b.period and n.period_start = w.start
              and n.end_user is not null and n.model = b.model
              and (n.end_user in ('', '*') or not exists (
                   select 1 from billing_budget o
                    where o.subject = b.subject and o.period = b.period and o.model = b.model
                      and o.end_user = n.end_user))) c
     cross join lateral unnest(b.alerts) p(percent)
     where b.organization_id in (select organization from recipient)
       and c.used > 0 and c.used * 100 >= b.amount * p.percent
       and not exists (
           select 1 from billing_crossing x
            where x.subject = c.subject and x.period = b.period and x.period_start = w.start
              and x.percent = p.percent and x.amount = b.amount)
    union all
    select p.organization_id, null, null, p.organization_id, '', null, 'balance', p.granted_at, 0, t.below, true,
           greatest(p.granted - c.used, 0)
      from billing_prepaid p
     cross join lateral (
           select n.used from billing_counter n
            where n.subject = p.organization_id and n.measure = 'money' and n.period = 'balance'
              and n.period_start = billing_window('balance', now())
            order by n.version desc limit 1) c
     cross join lateral unnest(p.alerts) t(below)
     where p.organization_id in (select organization from recipient)
       and (p.granted - c.used < t.below or c.used >= p.granted)
       and not exists (
           select 1 from billing_crossing x
            where x.subject = p.organization_id and x.period = 'balance' and x.period_start = p.granted_at
              and x.percent = 0 and x.amount = t.below)
), crossed as (
    insert into billing_crossing (organization, organization_slug, project, project_slug, key, key_name, subject,
                                  model, end_user, period, period_start, percent, amount, hard, used, crossed_at)
    select q.organization, o.slug, j.id, coalesce(j.slug, ''), k.id, coalesce(k.name, ''), q.subject,
           q.model, q.end_user, q.period, q.start, q.percent, q.amount, q.hard, q.used, clock_timestamp()
      from reached q
      join accounts_organization o on o.id = q.organization
      left join accounts_apikey k on k.id = q.key
      left join accounts_project j on j.id = coalesce(q.project, k.project_id)
     order by q.subject, q.period, q.start, q.percent
        on conflict do nothing
    returning id, organization, crossed_at
)
insert into billing_delivery (message, crossing_id, organization, recipient, channel, address, status, tries,
                              next_try_at, last_error, created_at)
select gen_random_uuid(), c.id, c.organization, r.id, r.channel, r.address, 'waiting', 0, c.crossed_at, '', c.crossed_at
  from crossed c join recipient r on r.organization = c.organization
"""


def note_crossings() -> int:
    """Notes what has been crossed since it was last looked; how many messages that makes."""
    with connection.cursor() as cursor:
        cursor.execute(NOTE)
        return int(cursor.rowcount)


def prune_crossings() -> None:
    """Forgets messages, and the crossings of periods that are over, after `RETENTION_DAYS`."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "delete from billing_delivery where created_at < now() - make_interval(days => %s)", [RETENTION_DAYS]
        )
        cursor.execute(
            "delete from billing_crossing c where c.crossed_at < now() - make_interval(days => %s)"
            " and c.period <> 'total'"
            " and not exists (select 1 from billing_prepaid p where c.period = 'balance'"
            "                    and p.organization_id = c.organization and p.granted_at = c.period_start)"
            " and not exists (select 1 from billing_delivery d where d.crossing_id = c.id)",
            [RETENTION_DAYS],
        )
