"""What clients and tenants wrote is text on every page of the console, never markup, template or expression."""

from html.parser import HTMLParser
from typing import Any

import pytest
from django.urls import reverse
from django.utils.html import escape

from accounts.models import ApiKey, Organization, Project, User
from billing.models import Hold, Lease, LedgerEntry, TariffVersion, Usage
from gateway.models import Refused
from routing.models import Credential, Model, Offer, Policy, Provider
from tests.console.browser import PAGES, addresses, console, make_attempt, make_entry, make_rows, url
from tests.stage.cast import make_tenant

# At most 200 characters, which is what names may have.
PAYLOAD = (
    "</title></textarea>\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7|add:7 }}{% debug %}"
    "<a href=javascript:alert(1)>x<b hx-get=/alert><i x-init=alert(1)><iframe srcdoc=alert(1)>\u2028"
)


def plan_of(text: str) -> dict[str, Any]:
    """A kept plan in which everything that is text is `text`."""
    line = [1, text, text, text, 1.0, text]
    choice = {"preference": text, "models": [[text, 1.0]]}
    policy = {"providers": [text], "fallback": text}
    return {
        "model": text, "seed": 1, "by": text, "taken": 1, "wanted": {"bytes": 1}, "offers": [line], "out": [line],
        "policy": policy, "choice": choice,
    }  # fmt: skip


@pytest.mark.slow  # `test_scripts` has the same of more texts, without searches, filters and templates
def test_it_shows_what_others_wrote_as_text() -> None:
    payload, tenant = PAYLOAD, make_tenant("mallory")
    made = make_rows(tenant)
    slug = tenant.organization.slug
    try:
        Organization.objects.filter(pk=tenant.organization.pk).update(name=payload)
        Project.objects.filter(pk=tenant.project.pk).update(name=payload)
        ApiKey.objects.filter(pk=tenant.key.pk).update(name=payload, allowed_models=[payload])
        User.objects.filter(pk=tenant.user.pk).update(first_name=payload[:150], last_name=payload[:150])
        Provider.objects.filter(slug=slug).update(name=payload, base_url=payload)
        Credential.objects.filter(provider__slug=slug).update(name=payload[:64])
        Model.objects.filter(slug=f"lab/{slug}").update(name=payload, aliases=[payload])
        Offer.objects.filter(provider__slug=slug).update(upstream_model=payload)
        Policy.objects.filter(model__slug=f"lab/{slug}").update(fallback=payload, providers=[payload[:64]])
        TariffVersion.objects.filter(tariff__slug=slug).update(note=payload)
        Lease.objects.filter(host=slug).update(host=payload)
        Hold.objects.filter(pk=made[Hold].pk).update(model=payload)
        told = ("message", "method", "path", "model", "address", "key_name", "organization_slug", "project_slug")
        Refused.objects.filter(pk=made[Refused].pk).update(code=payload, **dict.fromkeys(told, payload))
        entry = make_entry(made[Usage], kind=payload, debit=payload, credit=payload)  # type: ignore[arg-type]
        texts = ("model", "provider", "upstream_model", "upstream_id", "end_user", "app", "error", "key_name")
        more = ("finish_reason", "native_finish_reason", "organization_slug", "project_slug")
        Usage.objects.filter(pk=made[Usage].pk).update(
            **dict.fromkeys((*texts, *more), payload), metadata={payload: payload}, plan=plan_of(payload)
        )
        make_attempt(made[Usage], fault=payload, status=payload)  # type: ignore[arg-type]
        client = console()
        seen = 0
        pages = [address for model, row in made.items() for address in addresses(model, row)]
        pages += [url(LedgerEntry, "change", entry.pk), reverse("admin:accounts_apikey_revoke", args=[tenant.key.pk])]
        for address in (*pages, reverse("admin:index")):
            seen += payload_is_text(client.get(address), payload)
        for model in PAGES:
            payload_is_text(client.get(url(model, "changelist"), {"q": payload}), payload)
        names = ("model", "provider", "app", "metadata")
        filters = {**dict.fromkeys(names, payload), "created_at_from_0": payload, "status": payload}
        payload_is_text(client.get(url(Usage, "changelist"), filters), payload)
        assert seen > 50
    finally:
        made[Hold].delete()


class Running(HTMLParser):
    """Finds what of a page would run and holds a payload's mark."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Attributes that a browser, Alpine or htmx would run or load."""
        self._script = tag == "script"
        for name, value in attrs:
            runs = name.startswith(("on", "x-", "hx-", "@", ":")) or name in ("href", "src", "srcdoc", "action")
            loads = name in ("href", "action") and not (value or "").lower().startswith("javascript:")
            if runs and not loads and "alert" in (value or ""):
                self.found.append((tag, name, value or ""))

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        """The text of a script."""
        if self._script and "alert" in data:
            self.found.append(("script", "", data))


def payload_is_text(response: Any, payload: str) -> int:
    """Asserts that nothing of `payload` runs on the page; returns how often it is shown."""
    html: str = response.content.decode()
    assert response.status_code == 200
    assert payload not in html and "14{%" not in html
    page = Running()
    page.feed(html)
    assert page.found == []
    return len(html.split(escape(payload))) - 1


def test_the_search_for_running_payloads_finds_them() -> None:
    page = Running()
    page.feed(f"<p>{PAYLOAD}</p>")
    assert len(page.found) >= 6
