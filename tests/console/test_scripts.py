"""Sixty script payloads in every text that somebody else may have written: each is text on every page, and none runs.

The fields come from the models, the pages from the admin's registry and the URL configuration, so that new ones are
met here, too. `make test` has each field hold one of them, `make slow` a browser see the pages of what clients
send; `make scripts` has each hold each, and a browser see all pages.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.contrib.postgres.fields import ArrayField
from django.db import DatabaseError, models, transaction
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import escape

from accounts.models import ApiKey, Identity, Invitation, Passkey, SignedIn
from billing.models import Attempt, Crossing, Delivery, Hold, LedgerEntry, Rate, TariffVersion, Usage
from gateway.changes.models import Change
from gateway.models import ChangeSet, Refused, StoredFile
from routing.models import Credential, Provider
from tests.console.browser import Rows, addresses, console, make_entry, make_rows
from tests.console.window import needs_a_browser, open_window
from tests.matrix.people import make_file
from tests.matrix.routes import ROUTES, names
from tests.stage.cast import make_tenant
from tests.stage.product import running

WHOLE = os.environ.get("SCRIPTS") == "whole"
RUN = "ran(1)"
SCRIPTS = (
    r"""
<script>RUN</script>
</script><script>RUN</script>
<ScRiPt>RUN</sCrIpT>
<script x>RUN</script>
<script/src=data:,RUN></script>
<svg><script>RUN</script></svg>
<<script>RUN//<</script>
<p><script>RUN</script>
<img src=x onerror=RUN>
<img src=x:x onerror='RUN'>
<image src onerror=RUN>
<img/src/onerror=RUN>
<svg onload=RUN>
<svg/onload=RUN//>
<body onload=RUN>
<input autofocus onfocus=RUN>
<select autofocus onfocus=RUN>
<textarea autofocus onfocus=RUN>
<video src onerror=RUN>
<audio src onerror=RUN>
<details open ontoggle=RUN>
<marquee onstart=RUN>
<style onload=RUN></style>
<iframe srcdoc='<script>parent.RUN</script>'>
<iframe src=javascript:parent.RUN>
<object data=javascript:RUN>
<embed src=javascript:RUN>
<a href=javascript:RUN autofocus>x</a>
<form action=javascript:RUN><button>x
<math href=javascript:RUN>x</math>
<base href=javascript:RUN//>
<meta http-equiv=refresh content=0;javascript:RUN>
<link rel=stylesheet href=data:,x onload=RUN>
<template><script>RUN</script></template>
<noscript><p title='</noscript><img src onerror=RUN>'>
<title><img src onerror=RUN></title>
"><script>RUN</script>
'><script>RUN</script>
" autofocus onfocus=RUN x="
' autofocus onfocus=RUN x='
" onmouseover=RUN "
` onerror=RUN `
</textarea><script>RUN</script>
</title><script>RUN</script>
</style><script>RUN</script>
--><script>RUN</script>
]]><script>RUN</script>
'-RUN-'
";RUN//
${RUN}
javascript:RUN
data:text/html,<script>RUN</script>
<i x-init=RUN></i>
<i x-data x-text=RUN></i>
<i x-on:load.window=RUN></i>
<i hx-on:load=RUN></i>
<i hx-get=/RUN hx-trigger=load></i>
{{RUN}}
{% debug %}{{ request.session.session_key }}
<a href=" javascript:RUN">x</a>
""".strip()
    .replace("RUN", RUN)
    .split("\n")
)
ROUNDS = range(len(SCRIPTS)) if WHOLE else (0,)
# What nobody writes freely: the database or a parser of ours would fall over anything else.
CHECKED = {"sealed", "password", "time_zone", "allowed_ips", "session_key", "sha256", "currency"}
# What a browser is shown in `make test`: pages of what clients and tenants write.
SEEN = (Usage, Refused, ApiKey)
# Their texts stand on no page, or only the product or an operator's choice makes them.
UNSHOWN = {
    *("accounts.AuditBlock", "accounts.Change", "billing.AccountDay", "billing.BillPage"),
    *("billing.ClosedSum", "billing.Counter", "billing.Credit", "billing.Judgement", "billing.LedgerBlock"),
    *("billing.AuditState", "billing.ReconciliationLine", "billing.SpendRollup", "billing.TagRollup"),
    *("billing.UsageRollup", "gateway.ReadCount", "routing.Ejection", "routing.OfferRollup"),
    *("routing.OfferStatistics", "routing.Replay"),
}


def texts(model: type[models.Model]) -> list[Any]:
    """The columns of a model that hold free text, in whatever form."""
    found = []
    for field in model._meta.concrete_fields:
        held = field.base_field if isinstance(field, ArrayField) else field
        free = isinstance(held, models.CharField | models.TextField | models.JSONField) and not held.choices
        if free and not field.primary_key and field.name not in CHECKED:
            found.append(field)
    return found


@pytest.fixture
def rows(database: None) -> Iterator[Rows]:
    """A row of every page, and of what is shown on another's."""
    tenant, now = make_tenant("mallory"), timezone.now()
    made: Any = make_rows(tenant)
    told: Any = made
    usage = told[Usage]
    made |= {
        Credential: Credential.objects.get(provider=told[Provider]),
        Attempt: Attempt.objects.get(generation=usage.pk),
        Crossing: Crossing.objects.get(deliveries=told[Delivery]),
        Rate: Rate.objects.get(version=told[TariffVersion]),
        Change: made[ChangeSet].changes.create(
            kind="budget", verb="change", subject="a budget", before={"amount": ["1"]}, after={"amount": ["2"]}
        ),
        # What is posted is never changed.
        LedgerEntry: make_entry(usage, kind=SCRIPTS[8], debit=SCRIPTS[0], credit=SCRIPTS[9]),
        StoredFile: make_file(tenant, tenant.key),
        Passkey: Passkey.objects.create(user=tenant.user, credential_id=os.urandom(16), credential=b"c"),
        Identity: Identity.objects.create(user=tenant.user, issuer="https://id.example", subject=str(tenant.user.pk)),
        Invitation: Invitation.objects.create(
            email="guest@example.com", organization=tenant.organization, role="owner", digest=os.urandom(32),
            invited_by=tenant.user, expires_at=now,
        ),
    }  # fmt: skip
    before = {model: model._base_manager.filter(pk=row.pk).values().get() for model, row in made.items()}
    yield made
    for model, row in made.items():  # what is no name of anything would keep other tests' gateways from reading it
        with suppress(DatabaseError), transaction.atomic():
            model._base_manager.filter(pk=row.pk).update(**before[model])
    made[Hold].delete()


def fill(rows: Rows, turn: int) -> dict[str, str]:
    """Puts a payload into every text of `rows`, another one into each; by model and column what was put there.

    What the database itself keeps from being changed, or refuses, stays as it was.
    """
    held: dict[str, str] = {}
    for model, row in rows.items():
        for field in texts(model):
            size = getattr(field.base_field if isinstance(field, ArrayField) else field, "max_length", None)
            text = SCRIPTS[(turn + len(held)) % len(SCRIPTS)][:size]
            value: Any = [text] if isinstance(field, ArrayField) else text
            if isinstance(field, models.JSONField):
                if field.name != "metadata":
                    continue  # of a form that the product alone writes: `test_markup` fills a plan
                value = {text: text}
            try:
                with transaction.atomic():
                    model._base_manager.filter(pk=row.pk).update(**{field.name: value})
            except DatabaseError:
                continue
            held[f"{model.__name__}.{field.name}"] = text
    return held


def pages(rows: Rows) -> list[str]:
    """Every page of the console that is opened by GET, with these rows in its address."""
    found = [
        address for model, row in rows.items() if model in admin.site._registry for address in addresses(model, row)
    ]
    told = {model._meta.label_lower: row for model, row in rows.items()}
    for name in names():
        method, places, _ = ROUTES.get(name, ("get", {}, ()))
        own = name.removeprefix("admin:").rpartition("_")[0].replace("_", ".", 1)
        try:
            given = {
                key: value[1:] if value.startswith("=") else told[own if value == "row" else value].pk
                for key, value in places.items()
            }
            address = reverse(name, kwargs=given)
        except (NoReverseMatch, KeyError):  # of a row that is none, or asked for otherwise
            continue
        if method == "get" and address not in found and not name.endswith("logout"):
            found.append(address)
    return found if WHOLE else [one for one in found if not one.endswith(("/add/", "/delete/", "/history/"))]


class Runs(HTMLParser):
    """What of a page would run, and holds a payload."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._script = tag in ("script", "style")
        for name, value in attrs:
            said = value or ""
            leads = name in ("href", "src", "action", "data", "formaction", "content")
            leads_there = leads and not re.search(r"(^|;)\s*(javascript|data):", said, re.IGNORECASE)
            shown = name in ("value", "title", "alt", "placeholder", "aria-label") or name.startswith("data-")
            if RUN in name or (RUN in said and not leads_there and not shown):
                self.found.append((tag, name, said))

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script and RUN in data:
            self.found.append(("script", "", data))


def running_in(html: str) -> list[tuple[str, str, str]]:
    """What of it would run."""
    page = Runs()
    page.feed(html)
    page.close()
    return page.found


def test_there_are_sixty_and_the_search_finds_those_that_run_by_themselves() -> None:
    assert len(SCRIPTS) == len(set(SCRIPTS)) == 60
    tags = [one for one in SCRIPTS if one[0] == "<" and one[1:5] not in ("nosc", "i hx")]
    assert len(tags) == 42 and [one for one in tags if not running_in(f"<p>{one}</p>")] == []
    closing = [one for one in SCRIPTS if one[0] in "\"'" and one[1] in "> "]
    assert len(closing) == 5 and [one for one in closing if not running_in(f"<p title={one[0]}{one}{one[0]}>")] == []
    assert running_in(f"<p title='{SCRIPTS[0]}'>{escape(SCRIPTS[0])}</p>") == []


def test_each_model_with_texts_is_filled_or_said_not_to_be_shown(rows: Rows) -> None:
    ours = [one for one in apps.get_models() if one._meta.app_label in ("accounts", "billing", "routing", "gateway")]
    left = {one._meta.label for one in ours if texts(one) and one not in rows and one is not SignedIn}
    assert left == UNSHOWN


@pytest.mark.parametrize("turn", ROUNDS)
def test_none_is_more_than_text_on_any_page(turn: int, rows: Rows) -> None:
    held, client, shown = fill(rows, turn), console(), set()
    assert len(held) > 90, sorted(held)
    client.get("/console/me/")
    SignedIn.objects.filter(session_key=client.session.session_key).update(device=SCRIPTS[turn][:200])
    asked = pages(rows)
    assert len(asked) > 90
    for address in asked:
        response = client.get(address)
        assert response.status_code in (200, 302, 400, 403, 404, 405), address
        if response.streaming or "html" not in response["Content-Type"]:
            continue
        html = response.content.decode()
        assert running_in(html) == [], address
        assert [place for place, text in held.items() if "<" in text and len(text) > 12 and text in html] == [], address
        shown |= {place for place, text in held.items() if escape(text) != text and escape(text) in html}
    assert len(shown) > 60, sorted(held.keys() - shown)


@needs_a_browser
@pytest.mark.slow
def test_a_browser_runs_none_even_without_the_policy(rows: Rows, tmp_path: Path) -> None:
    """The content security policy is switched off, so that what is not escaped would run."""
    asked = pages(rows) if WHOLE else [address for one in SEEN for address in addresses(one, rows[one])[:2]]
    with running(tmp_path, SERVE="all") as (server,), open_window(server.url) as window:
        fill(rows, 0)
        window.open("/console/login/")
        name = settings.SESSION_COOKIE_NAME
        window.driver.add_cookie({"name": name, "value": console().cookies[name].value, "path": "/"})
        window.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
        told = "window.told = []; window.ran = window.alert = (n) => window.told.push(n)"
        window.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": told})
        for address in asked:
            window.open(address)
            assert window.driver.execute_script("return window.told") == [], address
        # It would have been noticed.
        window.driver.execute_async_script(
            "window.ran = arguments[1]; document.body.insertAdjacentHTML('beforeend', arguments[0])", SCRIPTS[8]
        )
