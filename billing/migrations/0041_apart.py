"""Step: tighten. The console's role sees of the books what the person it speaks for may see: see `accounts/sql/access.sql`."""

from django.db import migrations

from accounts.access.policies import hold_apart

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
    *("billing_exportschedule", "billing_storedexport", "billing_auditfinding"),
)


class Migration(migrations.Migration):
    atomic = False  # each table is locked for itself, and for a moment
    dependencies = [("billing", "0040_contract"), ("accounts", "0012_access")]
    operations = [
        *(hold_apart(table, seen, writes=WRITES.get(table, "")) for table, seen in OWN.items()),
        *(hold_apart(table) for table in OTHERS),
        migrations.RunSQL("revoke select on billing_rule, billing_key_subject from meterline_console;",
                          migrations.RunSQL.noop),
    ]
