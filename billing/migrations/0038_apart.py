"""Step: tighten. The console's role sees of the books what the person it speaks for may see: see `accounts/sql/access.sql`."""

from pathlib import Path

from django.db import migrations

from accounts.access.policies import hold_apart
from accounts.watching import logged

SQL = Path(__file__).resolve().parent.parent / "sql"

# What members of an organization see of their own.
OWN = {
    **dict.fromkeys(
        (
            *("billing_usage", "billing_counter", "billing_lot", "billing_keptanswer", "billing_usagerollup"),
            *("billing_spendrollup", "billing_crossing", "billing_delivery", "billing_statement"),
        ),
        "organization = {}",
    ),
    **dict.fromkeys(
        ("billing_budget", "billing_limit", "billing_terms", "billing_prepaid", "billing_credit", "billing_recipient"),
        "organization_id = {}",
    ),
}
WRITES = {"billing_budget": "organization_id = {} and not contract"}
# What is the installation's alone: costs, what is of all organizations, and what it keeps for itself.
OTHERS = (
    *("billing_attempt", "billing_hold", "billing_keptshare", "billing_ledgerentry", "billing_accountday"),
    *("billing_tariffversion", "billing_rate", "billing_priceproposal", "billing_closedmonth", "billing_closedsum"),
    *("billing_repricing", "billing_repricingsum", "billing_reconciliation", "billing_reconciliationline"),
    *("billing_exportschedule", "billing_storedexport", "billing_auditfinding", "billing_judgement"),
    *("billing_reporttags", "billing_tagrollup", "billing_pricelist", "billing_billsource", "billing_billfetch"),
    *("billing_billpage",),
)


# What people decide; what the product counts as it runs is no decision.
ORGANIZATION = {"organization": "organization_id"}
LOGGED = {
    **dict.fromkeys(("billing_tariff", "billing_tariffversion", "billing_rate", "billing_priceproposal"), {}),
    **dict.fromkeys(("billing_terms", "billing_limit", "billing_credit"), ORGANIZATION),
    "billing_budget": {**ORGANIZATION, "ignored": "subject time_zone"},
    "billing_prepaid": {**ORGANIZATION, "on": "update of alerts", "key": "organization_id"},
    "billing_recipient": {**ORGANIZATION, "secret": "sealed"},
    "billing_exportschedule": {"secret": "sealed"},
    "billing_statement": {"organization": "organization", "ignored": "lines"},
    "billing_reporttags": {"on": "update of names", "key": "organization_id"},
    "billing_judgement": {"key": "generation"},
    "billing_pricelist": {"on": "update of decided_at", "ignored": "content lines"},
    "billing_billsource": {"secret": "sealed"},
    "billing_billfetch": {"on": "update of stop"},
    "billing_closedmonth": {"on": "update of month", "key": "month"},
    "billing_repricing": {"on": "update of stop, applied_at", "ignored": "after done total"},
    "billing_reconciliation": {},
    "billing_retention": {"key": "table"},
}


class Migration(migrations.Migration):
    atomic = False  # each table is locked for itself, and for a moment
    dependencies = [("billing", "0037_contract"), ("accounts", "0013_log")]
    operations = [
        *(hold_apart(table, seen, writes=WRITES.get(table, "")) for table, seen in OWN.items()),
        *(hold_apart(table) for table in OTHERS),
        # How the ledger's writers are waited for, now of any table, and what its people change, logged.
        migrations.RunSQL((SQL / "sealing.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL("drop function if exists billing_writers();", migrations.RunSQL.noop),
        *(logged(table, **said) for table, said in LOGGED.items()),
        migrations.RunSQL("revoke select on billing_rule, billing_key_subject from meterline_console;",
                          migrations.RunSQL.noop),
    ]
