"""The console's routes, as its URL configuration has them, and who may use those beside each model's usual pages.

A route, a model, a task or an export that is not told of here, or in `accounts.access.table`, fails the tests.
"""

import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from accounts.access.table import Verb
from tests.matrix.people import MEMBERS, ROLES, STAFF
from tests.stage.cast import NOBODYS

USUAL = re.compile(r"admin:\w+_(changelist|add|change|delete|history)\Z")
OPERATORS = STAFF[:2]
EVERYBODY = tuple(ROLES)
READERS = (*STAFF, *MEMBERS)
WITHOUT_FINANCE = tuple(one for one in STAFF if "finance" not in one)

# By name: with which method, with what of Alice's organization in its place, and who may.
# `row` is the row of the model that the name begins with.
ROUTES: dict[str, tuple[str, dict[str, Any], Iterable[str]]] = {
    "health_board": ("get", {}, OPERATORS),
    "catalog": ("get", {}, READERS),
    "catalog_compare": ("get", {}, READERS),
    "catalog_model": ("get", {"slug": "=lab/none"}, ()),  # of a model that is there: `tests/console/catalog`
    "playground": ("get", {}, (*OPERATORS, *MEMBERS[:2])),
    "playground_key": ("post", {}, ()),  # of a project: `tests/console/playground`
    "health_force": ("post", {"offer": "routing.offer"}, OPERATORS),
    "health_end_rests": ("post", {"offer": "routing.offer"}, OPERATORS),
    "credential_test": ("post", {"credential": f"={NOBODYS}"}, ()),  # whom it is for: `tests/console/test_trials.py`
    "first_request": ("get", {}, (*OPERATORS, *MEMBERS[:2])),
    "spend": ("get", {}, STAFF),
    "spend_export": ("get", {}, STAFF),
    "end_users": ("get", {}, STAFF),
    "cut_request": ("post", {"generation": "billing.hold"}, (*OPERATORS, MEMBERS[0])),
    "search": ("get", {}, EVERYBODY),
    "invite": ("get", {}, (*OPERATORS, MEMBERS[0])),
    "take_back": ("post", {"pk": f"={NOBODYS}"}, ()),
    "admin:index": ("get", {}, EVERYBODY),
    "admin:search": ("get", {}, EVERYBODY),
    "admin:jsi18n": ("get", {}, EVERYBODY),
    "admin:password_change_done": ("get", {}, EVERYBODY),
    "admin:billing_usage_sums": ("get", {}, READERS),
    "admin:billing_usage_export": ("get", {}, READERS),
    "admin:billing_usage_export_as": ("get", {"layout": "=generations", "format": "=csv"}, READERS),
    "admin:gateway_payload_reveal": ("post", {"payload": "row"}, (*OPERATORS, MEMBERS[0])),
    "admin:billing_ledgerentry_export": ("get", {}, STAFF),
    "admin:billing_statement_pdf": ("get", {"number": "row"}, (*STAFF, MEMBERS[0], MEMBERS[2])),
    "admin:billing_prepaid_end": ("post", {"organization": "row"}, OPERATORS),
    "admin:billing_quarantined_accept": ("post", {"generation": "row"}, OPERATORS),
    "admin:billing_quarantined_dismiss": ("post", {"generation": "row"}, OPERATORS),
    "admin:billing_pricelist_import": ("post", {"number": "row"}, OPERATORS),
    "admin:billing_pricelist_decline": ("post", {"number": "row"}, OPERATORS),
    "admin:billing_billfetch_stop": ("post", {"fetch": "row"}, OPERATORS),
    "admin:billing_billfetch_go_on": ("post", {"fetch": "billing.billfetch"}, OPERATORS),
    "admin:billing_tariff_new_version": ("get", {"object_id": "billing.tariff"}, OPERATORS),
    "admin:billing_repricing_stop": ("post", {"run": "row"}, OPERATORS),
    "admin:billing_repricing_count": ("post", {"run": "row"}, OPERATORS),
    "admin:billing_repricing_apply": ("post", {"run": "row"}, OPERATORS),
    "admin:gateway_changeset_approve": ("post", {"number": "gateway.changeset"}, OPERATORS),
    "admin:gateway_changeset_apply": ("post", {"number": "gateway.changeset"}, OPERATORS),
    "admin:gateway_changeset_roll_back": ("post", {"number": "gateway.changeset"}, OPERATORS),
    "admin:gateway_changeset_give_up": ("post", {"number": "gateway.changeset"}, OPERATORS),
    "admin:billing_reconciliation_upload": ("get", {}, OPERATORS),
    "admin:billing_reconciliation_file": ("get", {"made": "row"}, OPERATORS),
    "admin:billing_exportschedule_run": ("post", {"schedule": "row"}, OPERATORS),
    "admin:accounts_apikey_revoke": ("get", {"object_id": "row"}, (*OPERATORS, *MEMBERS[:2])),
    "admin:routing_policy_of": ("get", {"level": "=project", "subject": "accounts.project"}, OPERATORS),
    "admin:routing_policy_replay": ("get", {}, OPERATORS),
    "admin:routing_policy_replayed": ("get", {"number": "=0"}, ()),
    "admin:routing_policy_keep": ("post", {"number": "=0"}, ()),
}
# Of nobody's rows, or tested by name: in and out, one's own password, the list of an app's pages, what a browser asks
# for as somebody types (`test_tenants`), and the redirects of paths that are none.
ELSEWHERE = {
    *("admin:login", "admin:logout", "admin:password_change", "admin:autocomplete", "admin:app_list"),
    # Pages of before somebody is let in, and of one's own ways in and sessions (`tests/console/sign_in`).
    *("login", "set_language", "second_step", "second_options", "passkey_login", "passkey_options", "sso", "sso_back"),
    *("open_invitation", "accept_invitation", "my_sign_in", "sign_in_again", "new_totp", "remove_totp"),
    *("passkey_new", "passkey_new_options", "passkey_rename", "passkey_remove", "new_codes", "end_sessions"),
    # A file that is there once a worker has fetched it (`tests/routing/bills`).
    "admin:billing_billfetch_file",
    *("admin:view_on_site", "admin:auth_user_password_change", "None", "admin:None"),
}
# What they touch is of all organizations: none takes an organization, a person or a row of one as its argument, but for
# re-pricings and replays, which operators alone ask for.
TASKS = {
    "accounts.seal_log",
    *("billing.apply_repricing", "billing.audit", "billing.count_repricing", "billing.drop_old_months"),
    *("billing.expire_credit", "billing.make_partitions", "billing.prune", "billing.resolve_dead_holds"),
    *(
        "billing.roll_up_usage",
        "billing.seal",
        "gateway.alert",
        "gateway.prune_files",
        "gateway.prune_refused",
        "gateway.purge_payloads",
        "gateway.store_exports",
    ),
    *("routing.fetch_bill", "routing.fetch_price_list", "routing.prune", "routing.replay", "routing.roll_up"),
}
EXPORTS = {"generations", "focus-1.2", "focus-1.4"}
VERBS = {"changelist": Verb.VIEW, "history": Verb.VIEW, "add": Verb.ADD, "change": Verb.VIEW, "delete": Verb.DELETE}


def names() -> list[str]:
    """The names of all routes of the console, with their namespace; None for those without."""

    def walk(patterns: Iterable[Any], space: str) -> Iterator[str]:
        for one in patterns:
            if hasattr(one, "url_patterns"):
                yield from walk(one.url_patterns, f"{one.namespace}:" if one.namespace else space)
            else:
                yield f"{space}{one.name}"

    return list(walk(import_module("gateway.console.urls").urlpatterns, ""))
