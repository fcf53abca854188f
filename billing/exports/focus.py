"""The layout of FOCUS, the FinOps Open Cost and Usage Specification: its Cost and Usage dataset, versions 1.2 and 1.4.

What is charged is told from the tenant's side: the operator is who provides, prices and bills. A row is one item of one
generation's arithmetic (the specification leaves the grain to who makes a file), so that a price times a quantity is a
cost, exactly:

- `ListCost` and `ContractedCost` are quantity times rate; `BilledCost` and `EffectiveCost` are what of it was charged:
  less where a hard budget had no more, taken from the last items. So the rows of a generation add up to its charge.
- An item of unknown price was not charged, and is no row: a cost may not be NULL, and 0 would be a price.
- Credit notes, and what re-pricing posted, are rows of their own behind all others, of the category `Adjustment`: a
  credit, as the specification has it, is unrelated to any charge. What corrects a month that was invoiced (stated, or
  closed) is a `Correction`. Their charge period is the month that they are of, their billing period the one in which
  they count, and which file they are in goes by when they were made.
- The charge period is the hour (UTC) that the generation began in, the billing period that hour's month.
- Columns for what there is not (commitments, capacity, regions, availability zones, resources, currencies other than
  the billed one, payable invoices) are left out, as the specification has it for conditional columns; those that it
  recommends are there where there is something to say.

1.4 has neither `ProviderName` nor `PublisherName`, but `ServiceProviderName` and `HostProviderName` (both since 1.3).
Who runs a model is not the tenant's to know, so the host is told as the specification has it where a service provider
gives no view of it.
"""

from dataclasses import replace

from django.conf import settings
from django.utils.translation import override

from billing.exports.columns import Column, Kind, Layout, literal
from billing.models import Item

VERSIONS = ("1.2", "1.4")
# Items that are priced each, and what they are counted in; all others are tokens, priced by the million.
EACH = {"request": "Requests", "web_search": "Searches", "image": "Images", "second": "Seconds"}

_EACH = ", ".join(map(literal, EACH))
_UNITS = "".join(f" when {literal(item)} then {literal(unit)}" for item, unit in EACH.items())
with override("en"):  # whoever reads this module first
    _LABELS = "".join(f" when {literal(item.value)} then {literal(str(item.label))}" for item in Item)
# `before`: what the items before this one come to.
ROWS = f"""
select x.*, coalesce(sum(x.amount) over (order by x.n rows between unbounded preceding and 1 preceding), 0) as before,
       x.n = max(x.n) over () as last
  from (select a.n, q.item, q.quantity, q.rate, q.quantity * q.size as priced, q.quantity * q.size * q.rate as amount,
               case q.item{_LABELS} else q.item end as label, case q.item{_UNITS} else 'Tokens' end as unit
          from jsonb_array_elements(billing_usage.arithmetic) with ordinality a(e, n)
         cross join lateral (
             select a.e->>'item' as item, (a.e->>'quantity')::numeric as quantity, (a.e->>'charge')::numeric as rate,
                    case when a.e->>'item' in ({_EACH}) then 1 else 0.000001 end as size) q
         where q.rate is not null) x
"""  # noqa: S608 - constants of ours


def _numbered(row: str) -> str:
    """SQL of a document's number."""
    number = f"{row}.number::text"
    return f"{row}.year || '-' || lpad({number}, greatest(length({number}), 5), '0')"


# What is of no generation. A month that was closed when usage was priced anew has it posted to the next that is open.
ADJUSTED = f"""
select 'credit-' || lpad(s.id::text, 20, '0') as key, s.issued_at as at, s.organization, s.slug, s.total as amount,
       date_trunc('month', s.issued_at, 'UTC') as bills, s.month::timestamp at time zone 'UTC' as starts,
       true as corrects,
       'Credit note ' || {_numbered("s")} || ' of statement ' || {_numbered("o")} || ': ' || s.reason as words
  from billing_statement s join billing_statement o on o.id = s.refers_to_id
 where s.kind = 'credit'
union all
select 'repriced-' || lpad(r.id::text, 20, '0') || q.organization || q.month::date, r.applied_at, q.organization,
       coalesce(t.slug, q.organization::text), q.amount, greatest(q.month, c.opens) at time zone 'UTC',
       q.month at time zone 'UTC', coalesce(c.opens > q.month, false),
       'Usage of ' || to_char(q.month, 'YYYY-MM') || ' priced anew'
  from (select s.run_id, s.organization, date_trunc('month', s.day::timestamp) as month,
               sum(s.charge_after - s.charge_before - s.charge_prior) as amount
          from billing_repricingsum s group by 1, 2, 3) q
  join billing_repricing r on r.id = q.run_id and r.state = 'applied'
  left join accounts_organization t on t.id = q.organization
 cross join lateral (select max(m.month) + interval '1 month' as opens
                       from billing_closedmonth m where m.closed_at < r.applied_at) c
 where q.amount <> 0
"""  # noqa: S608 - SQL of ours

AMOUNT = "r.amount::numeric(24,12)"
REST = "greatest(coalesce(billing_usage.charge, 0) - r.before, 0)"
BILLED = f"(case when r.last then {REST} else least(r.amount, {REST}) end)::numeric(24,12)"
SKU = "billing_usage.model || ':' || r.item"


def _began(unit: str, later: str = "") -> str:
    """SQL of when the hour or month began that a generation is of."""
    return f"(date_trunc('{unit}', billing_usage.created_at, 'UTC'){later})"


def _hex(column: str) -> str:
    return f"encode(uuid_send(billing_usage.{column}), 'hex')"


def _later(moment: str) -> str:
    """SQL of a month after the moment that the SQL is."""
    return f"(({moment} at time zone 'UTC' + interval '1 month') at time zone 'UTC')"


def _adjusted(issuer: str) -> dict[str, str]:
    """SQL of an adjustment's columns, as far as it has any."""
    return {
        **dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), "a.amount::numeric(24,12)"),
        "BillingAccountId": "encode(uuid_send(a.organization), 'hex')",
        "BillingAccountName": "a.slug",
        "BillingPeriodStart": "a.bills",
        "BillingPeriodEnd": _later("a.bills"),
        "ChargeCategory": "'Adjustment'",
        "ChargeClass": "case when a.corrects then 'Correction' end",
        "ChargeDescription": "a.words",
        "ChargeFrequency": "'One-Time'",
        "ChargePeriodStart": "a.starts",
        "ChargePeriodEnd": _later("a.starts"),
        "PublisherName": issuer,
    }


def focus(version: str = VERSIONS[0]) -> Layout:
    """The layout of a version, one of `VERSIONS`."""
    text, code, decimal, second, null = Kind.TEXT, Kind.CODE, Kind.DECIMAL, Kind.SECOND, True
    issuer = literal(settings.ISSUER_NAME)
    month = "at time zone 'UTC' + interval '1 month') at time zone 'UTC'"
    columns = [
        Column("BilledCost", decimal, BILLED),
        Column("BillingAccountId", code, _hex("organization")),
        Column("BillingAccountName", text, "billing_usage.organization_slug"),
        Column("BillingCurrency", code, "'USD'"),
        Column("BillingPeriodEnd", second, f"({_began('month')} {month}"),
        Column("BillingPeriodStart", second, _began("month")),
        Column("ChargeCategory", code, "'Usage'"),
        Column("ChargeClass", code, "null::text", null),
        Column("ChargeDescription", text, "r.label || ' of ' || billing_usage.model"),
        Column("ChargeFrequency", code, "'Usage-Based'"),
        Column("ChargePeriodEnd", second, _began("hour", " + interval '1 hour'")),
        Column("ChargePeriodStart", second, _began("hour")),
        Column("ConsumedQuantity", decimal, "r.quantity::numeric(24,1)", null),  # no integer, as a reader may guess
        Column("ConsumedUnit", code, "r.unit", null),
        Column("ContractedCost", decimal, AMOUNT),
        Column("ContractedUnitPrice", decimal, "r.rate", null),
        Column("EffectiveCost", decimal, BILLED),
        Column("HostProviderName", text, issuer),
        Column("InvoiceIssuerName", text, issuer),
        Column("ListCost", decimal, AMOUNT),
        Column("ListUnitPrice", decimal, "r.rate", null),
        Column("PricingCategory", code, "'Standard'", null),
        Column("PricingQuantity", decimal, "r.priced", null),
        Column("PricingUnit", code, "case r.unit when 'Tokens' then '1000000 Tokens' else r.unit end", null),
        Column("ProviderName", text, issuer),
        Column("PublisherName", text, "split_part(billing_usage.model, '/', 1)"),
        Column("ServiceCategory", code, "'AI and Machine Learning'"),
        Column("ServiceName", code, "'Model inference'"),
        Column("ServiceProviderName", text, issuer),
        Column("ServiceSubcategory", code, "'Generative AI'"),
        Column("SkuId", text, SKU, null),
        Column("SkuMeter", code, "r.label", null),
        Column("SkuPriceDetails", Kind.JSON, "null::jsonb", null),
        Column("SkuPriceId", text, SKU, null),
        Column("SubAccountId", code, _hex("project"), null),
        Column("SubAccountName", text, "billing_usage.project_slug", null),
        Column("Tags", Kind.JSON, "nullif(billing_usage.metadata, '{}')", null),
        Column("x_KeyName", text, "billing_usage.key_name", null),
        Column("x_Model", text, "billing_usage.model", null),
        Column("x_GenerationId", code, _hex("id"), null),
    ]
    name, sums = f"focus-{version}", ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")
    adjusted = _adjusted(issuer)
    tail = tuple(replace(one, value=adjusted.get(one.name, "null" if one.null else one.value)) for one in columns)
    return Layout(name, tuple(columns), sums, ROWS, Layout(name, tail, sums, ADJUSTED)).without(
        {"HostProviderName", "ServiceProviderName"} if version == "1.2" else {"ProviderName", "PublisherName"}
    )
