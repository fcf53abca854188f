"""The console's menu, and so what its pages are called."""

from functools import lru_cache

from django.urls import get_script_prefix, reverse
from django.utils.translation import gettext, gettext_noop

NAVIGATION = (
    (
        gettext_noop("Traffic"),
        (
            (gettext_noop("Overview"), "speed", "admin:index"),
            (gettext_noop("Search"), "search", "search"),
            (gettext_noop("Generations"), "receipt_long", "admin:billing_usage_changelist"),
            (gettext_noop("Refused requests"), "block", "admin:gateway_refused_changelist"),
            (gettext_noop("Refused by minute"), "stacked_bar_chart", "admin:gateway_refusedcount_changelist"),
            (gettext_noop("Health"), "monitor_heart", "health_board"),
            (gettext_noop("Open requests"), "hourglass_top", "admin:billing_hold_changelist"),
            (gettext_noop("Processes"), "memory", "admin:billing_lease_changelist"),
        ),
    ),
    (
        gettext_noop("Tenants"),
        (
            (gettext_noop("Organizations"), "apartment", "admin:accounts_organization_changelist"),
            (gettext_noop("Projects"), "folder", "admin:accounts_project_changelist"),
            (gettext_noop("Keys"), "key", "admin:accounts_apikey_changelist"),
            (gettext_noop("Files"), "draft", "admin:gateway_storedfile_changelist"),
            (gettext_noop("Kept payloads"), "lock", "admin:gateway_payload_changelist"),
            (gettext_noop("People"), "person", "admin:accounts_user_changelist"),
            (gettext_noop("Members"), "group", "admin:accounts_membership_changelist"),
            (gettext_noop("Invitations"), "mail", "invite"),
        ),
    ),
    (
        gettext_noop("Catalog"),
        (
            (gettext_noop("Catalog"), "storefront", "catalog"),
            (gettext_noop("Playground"), "play_circle", "playground"),
            (gettext_noop("Models"), "deployed_code", "admin:routing_model_changelist"),
            (gettext_noop("Offers"), "sell", "admin:routing_offer_changelist"),
            (gettext_noop("Providers"), "dns", "admin:routing_provider_changelist"),
        ),
    ),
    (
        gettext_noop("Routing"),
        (
            (gettext_noop("Policies"), "alt_route", "admin:routing_policy_changelist"),
            (gettext_noop("Change sets"), "difference", "admin:gateway_changeset_changelist"),
            (gettext_noop("Choice of a model"), "balance", "admin:routing_choiceweight_changelist"),
        ),
    ),
    (
        gettext_noop("Money"),
        (
            (gettext_noop("Spend"), "query_stats", "spend"),
            (gettext_noop("End users"), "groups", "end_users"),
            (gettext_noop("Tags of reports"), "label", "admin:billing_reporttags_changelist"),
            (gettext_noop("Tariffs"), "price_change", "admin:billing_tariff_changelist"),
            (gettext_noop("Tariff versions"), "history", "admin:billing_tariffversion_changelist"),
            (gettext_noop("Price lists"), "price_check", "admin:billing_pricelist_changelist"),
            (gettext_noop("Price proposals"), "approval_delegation", "admin:billing_priceproposal_changelist"),
            (gettext_noop("Terms"), "handshake", "admin:billing_terms_changelist"),
            (gettext_noop("Budgets"), "savings", "admin:billing_budget_changelist"),
            (gettext_noop("Balances"), "account_balance_wallet", "admin:billing_prepaid_changelist"),
            (gettext_noop("Alerts"), "notifications", "admin:billing_delivery_changelist"),
            (gettext_noop("Recipients of alerts"), "contact_mail", "admin:billing_recipient_changelist"),
            (gettext_noop("Limits"), "speed_2x", "admin:billing_limit_changelist"),
            (gettext_noop("Ledger"), "account_balance", "admin:billing_ledgerentry_changelist"),
            (gettext_noop("Closed months"), "event_available", "admin:billing_closedmonth_changelist"),
            (gettext_noop("Quarantine"), "gpp_maybe", "admin:billing_quarantined_changelist"),
            (gettext_noop("Re-pricing"), "currency_exchange", "admin:billing_repricing_changelist"),
            (gettext_noop("Reconciliation"), "balance", "admin:billing_reconciliation_changelist"),
            (gettext_noop("Fetched bills"), "cloud_download", "admin:billing_billfetch_changelist"),
            (gettext_noop("Bill sources"), "key_visualizer", "admin:billing_billsource_changelist"),
            (gettext_noop("Statements"), "request_quote", "admin:billing_statement_changelist"),
            (gettext_noop("Exports"), "cloud_upload", "admin:billing_exportschedule_changelist"),
            (gettext_noop("Stored exports"), "inventory_2", "admin:billing_storedexport_changelist"),
            (gettext_noop("Retention"), "auto_delete", "admin:billing_retention_changelist"),
            (gettext_noop("Audit"), "fact_check", "admin:billing_auditfinding_changelist"),
            (gettext_noop("Audit log"), "manage_history", "admin:accounts_auditevent_changelist"),
        ),
    ),
)


def links() -> dict[str, str]:
    """The address of each view that the menu leads to."""
    return _links(get_script_prefix())


@lru_cache(maxsize=1)  # every page asks for them, and they stay where they are
def _links(prefix: str) -> dict[str, str]:
    return {view: reverse(view) for _, items in NAVIGATION for _, _, view in items}


def called(link: str, title: str) -> str:
    """What a page is called: as the menu calls it, or `title`, where the menu does not lead to `link`."""
    known = links()
    for _, items in NAVIGATION:
        for name, _, view in items:
            if known[view] == link:
                return gettext(name)
    return title
