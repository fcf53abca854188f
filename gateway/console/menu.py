"""The console's menu, and so what its pages are called."""

from functools import lru_cache

from django.urls import get_script_prefix, reverse

NAVIGATION = (
    (
        "Traffic",
        (
            ("Overview", "speed", "admin:index"),
            ("Search", "search", "search"),
            ("Generations", "receipt_long", "admin:billing_usage_changelist"),
            ("Refused requests", "block", "admin:gateway_refused_changelist"),
            ("Refused by minute", "stacked_bar_chart", "admin:gateway_refusedcount_changelist"),
            ("Health", "monitor_heart", "health_board"),
            ("Open requests", "hourglass_top", "admin:billing_hold_changelist"),
            ("Processes", "memory", "admin:billing_lease_changelist"),
        ),
    ),
    (
        "Tenants",
        (
            ("Organizations", "apartment", "admin:accounts_organization_changelist"),
            ("Projects", "folder", "admin:accounts_project_changelist"),
            ("Keys", "key", "admin:accounts_apikey_changelist"),
            ("Files", "draft", "admin:gateway_storedfile_changelist"),
            ("Kept payloads", "lock", "admin:gateway_payload_changelist"),
            ("People", "person", "admin:accounts_user_changelist"),
            ("Members", "group", "admin:accounts_membership_changelist"),
            ("Invitations", "mail", "invite"),
        ),
    ),
    (
        "Catalog",
        (
            ("Catalog", "storefront", "catalog"),
            ("Playground", "play_circle", "playground"),
            ("Models", "deployed_code", "admin:routing_model_changelist"),
            ("Offers", "sell", "admin:routing_offer_changelist"),
            ("Providers", "dns", "admin:routing_provider_changelist"),
        ),
    ),
    (
        "Routing",
        (
            ("Policies", "alt_route", "admin:routing_policy_changelist"),
            ("Change sets", "difference", "admin:gateway_changeset_changelist"),
            ("Choice of a model", "balance", "admin:routing_choiceweight_changelist"),
        ),
    ),
    (
        "Money",
        (
            ("Spend", "query_stats", "spend"),
            ("End users", "groups", "end_users"),
            ("Tags of reports", "label", "admin:billing_reporttags_changelist"),
            ("Tariffs", "price_change", "admin:billing_tariff_changelist"),
            ("Tariff versions", "history", "admin:billing_tariffversion_changelist"),
            ("Price lists", "price_check", "admin:billing_pricelist_changelist"),
            ("Price proposals", "approval_delegation", "admin:billing_priceproposal_changelist"),
            ("Terms", "handshake", "admin:billing_terms_changelist"),
            ("Budgets", "savings", "admin:billing_budget_changelist"),
            ("Balances", "account_balance_wallet", "admin:billing_prepaid_changelist"),
            ("Alerts", "notifications", "admin:billing_delivery_changelist"),
            ("Recipients of alerts", "contact_mail", "admin:billing_recipient_changelist"),
            ("Limits", "speed_2x", "admin:billing_limit_changelist"),
            ("Ledger", "account_balance", "admin:billing_ledgerentry_changelist"),
            ("Closed months", "event_available", "admin:billing_closedmonth_changelist"),
            ("Quarantine", "gpp_maybe", "admin:billing_quarantined_changelist"),
            ("Re-pricing", "currency_exchange", "admin:billing_repricing_changelist"),
            ("Reconciliation", "balance", "admin:billing_reconciliation_changelist"),
            ("Fetched bills", "cloud_download", "admin:billing_billfetch_changelist"),
            ("Bill sources", "key_visualizer", "admin:billing_billsource_changelist"),
            ("Statements", "request_quote", "admin:billing_statement_changelist"),
            ("Exports", "cloud_upload", "admin:billing_exportschedule_changelist"),
            ("Stored exports", "inventory_2", "admin:billing_storedexport_changelist"),
            ("Retention", "auto_delete", "admin:billing_retention_changelist"),
            ("Audit", "fact_check", "admin:billing_auditfinding_changelist"),
            ("Audit log", "manage_history", "admin:accounts_auditevent_changelist"),
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
                return name
    return title
