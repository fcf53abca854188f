"""What pages are called, and what they say to those who do not see them."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from django.db import models
from django.urls import reverse
from django.utils import timezone

from accounts.models import ApiKey, User
from billing.models import Budget, Hold, Lease, Tariff, Usage
from gateway.console.menu import NAVIGATION
from gateway.templatetags.theme import MENDED
from routing.models import ChoiceWeight, Model, Provider
from tests.console.browser import NEVER_ADDED, PAGES, Rows, console, context_of, make_rows, make_usage, url
from tests.stage.cast import Tenant, make_tenant


@pytest.fixture(scope="module")
def rows(database: None) -> Iterator[Rows]:
    """A row of every page."""
    made = make_rows(make_tenant("alice"))
    yield made
    made[Hold].delete()


def way(html: str) -> list[str]:
    """The words of the way to a page, as its head shows them."""
    found = re.findall(r'class="align-middle inline-block leading-5 min-w-0 truncate[^"]*">\s*(.*?)\s*</', html)
    return [words for words in found if words]


class Inputs(HTMLParser):
    """The inputs of a page that somebody types into, and the labels there are."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[dict[str, str | None]] = []
        self.labelled: set[str | None] = set()
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "label":
            self.depth += 1
            self.labelled.add(given.get("for"))
        typed = tag in ("input", "select", "textarea") and given.get("type") not in ("hidden", "submit", "button")
        if typed and not self.depth:
            self.inputs.append(given)

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "label"

    def nameless(self) -> list[str | None]:
        """The names of those that no label, title or placeholder names."""
        words = ("aria-label", "aria-labelledby", "title", "placeholder")
        return [
            one.get("name") or one.get("id")
            for one in self.inputs
            if one.get("id") not in self.labelled and not any(one.get(word) for word in words)
        ]


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model.__name__)
def test_a_page_has_its_main_part_and_names_its_inputs(model: type[models.Model], rows: Rows) -> None:
    client = console()
    pages = [url(model, "changelist"), url(model, "change", rows[model].pk)]
    pages += [] if model in NEVER_ADDED else [url(model, "add")]
    for address in pages:
        html = client.get(address).content.decode()
        assert html.count('role="main"') == 1, address
        found = Inputs()
        found.feed(html)
        assert found.nameless() == [], address


def test_the_login_and_the_boards_have_their_main_part(rows: Rows) -> None:
    client = console()
    for address in ("/console/", "/console/health/", f"/console/catalog/models/{rows[Model]}/", "/console/nowhere/"):
        assert client.get(address).content.decode().count('role="main"') == 1, address
    client.logout()
    assert client.get(reverse("admin:login")).content.decode().count("<main>") == 1


def test_what_is_mended_in_the_theme_was_there(rows: Rows) -> None:
    html = console().get(url(ApiKey, "changelist")).content.decode()
    for wrong, right in MENDED:
        assert right in html and wrong not in html
    assert not re.search(r'x-bind:style="[\'`]', html), "a style as text, which the policy forbids"


def test_a_page_is_called_what_the_menu_calls_it(rows: Rows) -> None:
    client = console()
    for _, items in NAVIGATION:
        for name, _, view in items:
            if name != "Overview":
                assert way(client.get(reverse(view)).content.decode()) == [name]
    lead = {Hold: "Open requests", Lease: "Processes", User: "People", ChoiceWeight: "Choice of a model"}
    for model, name in lead.items():
        found = way(client.get(url(model, "change", rows[model].pk)).content.decode())
        assert found == [name, str(rows[model])]


def test_the_tab_is_called_what_the_menu_calls_the_page(rows: Rows) -> None:
    client = console()

    def title(address: str) -> str:
        return " ".join(re.findall(r"<title>(.*?)</title>", client.get(address).content.decode(), re.DOTALL)[0].split())

    for _, items in NAVIGATION:
        for name, _, view in items:
            assert title(reverse(view)) == f"{name} | Meterline"
    assert title(url(Lease, "change", rows[Lease].pk)) == f"{rows[Lease]} - Processes | Meterline"
    assert title(url(ApiKey, "add")) == "Add key - Keys | Meterline"


def test_a_name_is_shown_as_it_is_written(rows: Rows) -> None:
    client = console()
    for model in (Model, Provider, Tariff):
        slug = str(rows[model])
        assert slug[0].islower()
        assert way(client.get(url(model, "change", rows[model].pk)).content.decode())[-1] == slug
    page = client.get(f"/console/catalog/models/{rows[Model]}/").content.decode()
    assert f"<code>{rows[Model]}</code>" in page


def test_no_is_a_fact_and_no_failure(rows: Rows) -> None:
    html = console().get(url(User, "changelist"), {"q": str(rows[User])}).content.decode()
    assert "close_small" not in html and "check_small" not in html
    row = html[html.index('<tbody class="block relative') :]
    told = re.findall(r'<td class="field-is_(\w+)[^>]*>\s*<span class="[^"]*bg-(\w+)-[^"]*"\s*>\s*(\w+)\s*</span>', row)
    assert set(told) == {("active", "green", "Yes"), ("superuser", "base", "No")}


def test_a_figure_leads_to_what_it_counts(alice: Tenant) -> None:
    client = console()
    today = f"{timezone.now():%Y-%m-%d}"
    make_usage(alice, status="failed")
    figures = {figure["title"]: figure["link"] for figure in context_of(client.get(reverse("admin:index")))["figures"]}
    listed = url(Usage, "changelist")
    days = f"created_at_from_0={today}&created_at_to_0={today}"
    assert figures["Requests"] == f"{listed}?{days}"
    assert figures["Not completed"] == f"{listed}?status=bad&{days}"
    assert figures["Spend"] == f"{reverse('spend')}?from={today}&to={today}&by=model"
    assert f"From {today} 00:00:00 UTC" in client.get(figures["Not completed"]).content.decode()


def test_a_key_says_whose_it_is_where_one_is_chosen(alice: Tenant) -> None:
    assert str(alice.key) == f"{alice.organization.slug}/{alice.project.slug}/key ({alice.key.prefix})"
    asked = {"app_label": "billing", "model_name": "budget", "field_name": "key", "term": alice.key.prefix[-4:]}
    found = console().get(reverse("admin:autocomplete"), asked).json()["results"]
    assert {"id": str(alice.key.pk), "text": str(alice.key)} in found
    assert Budget._meta.get_field("key").related_model is ApiKey
