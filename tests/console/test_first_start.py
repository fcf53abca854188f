"""From an empty installation to its first answered request, in a browser, by what the first page says is next."""

import secrets
from pathlib import Path
from typing import Any

import pytest

from accounts.models import User
from billing.models import Usage
from tests.console.window import Window, needs_a_browser, open_window
from tests.simulated.process import SimulatedProvider
from tests.stage.books import forced, fresh_books
from tests.stage.product import running

pytestmark = [needs_a_browser, pytest.mark.slow]

CLICKS = 34  # with the one that logs in, and those that choose in a list; whatever else is typed


# What other tests may have left in the copy of the database, those that refer to others first.
LEFT = """
routing_policy routing_offer routing_ejection routing_credential routing_provider routing_model billing_terms
billing_budget billing_limit billing_prepaid billing_recipient billing_reporttags billing_rate billing_tariffversion
billing_tariff gateway_storedfile accounts_apikey accounts_project accounts_membership accounts_organization
"""


class Hand:
    """Clicks, and counts them."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.clicks = 0

    def click(self, selector: str) -> None:
        """Clicks what a CSS selector finds, where it is seen."""
        one = next(one for one in self._find(selector) if one.is_displayed())
        self.window.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", one)
        one.click()
        self.clicks += 1

    def go(self, selector: str) -> None:
        """Clicks what leads to another page, and waits for that."""
        page = self.window.driver.find_element("tag name", "html")
        self.click(selector)
        self.window._until_gone(page)

    def step(self, title: str) -> None:
        """To the first page by the menu, and where it says that the next step is done."""
        if not self.window.driver.current_url.endswith("/console/"):
            self.go("#nav-sidebar-inner a[href='/console/']")
        link = self.window.driver.find_element("css selector", ".first-steps a.font-semibold")
        assert link.text == title
        self.go(".first-steps a.font-semibold")

    def type(self, **words: str) -> None:
        """Fills fields by their names."""
        for name, value in words.items():
            field = self.window.driver.find_element("name", name.replace("__", "-"))
            field.clear()
            field.send_keys(value)

    def choose(self, name: str, word: str) -> None:
        """Opens a list to choose from, types into it, and takes the first that is found."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.wait import WebDriverWait

        self.click(f"[name='{name}'] ~ .select2-container")
        next(one for one in self._find(".select2-search__field") if one.is_displayed()).send_keys(word)

        def found(driver: Any) -> Any:
            return next((one for one in self._find(".select2-results__option") if word in one.text), None)

        WebDriverWait(self.window.driver, 20, ignored_exceptions=[StaleElementReferenceException]).until(found).click()
        self.clicks += 1

    def _find(self, selector: str) -> list[Any]:
        return self.window.driver.find_elements("css selector", selector)


def test_an_empty_installation_leads_to_its_first_answer(simulated: SimulatedProvider, tmp_path: Path) -> None:
    """Each step is where the page before says, and is done when the page says so."""
    secret = secrets.token_hex(8)
    with fresh_books():
        forced("; ".join(f"delete from {table}" for table in LEFT.split()))  # noqa: S608
        User.objects.create_superuser(f"root-{secret[:6]}", password=secret)
        with (
            running(tmp_path, SERVE="all", EGRESS_ALLOW=simulated.url) as (server,),
            open_window(server.url) as window,
        ):
            window.open("/console/login/")
            window.driver.set_window_size(1440, 1000)
            hand = Hand(window)
            window.type(username=f"root-{secret[:6]}", password=secret)
            hand.clicks += 1

            hand.step("Add a provider, with its key")
            hand.type(slug="vendor", name="Vendor", base_url=f"{simulated.url}/v1")
            hand.click("#credentials-group .add-row a, #credentials-group .add-row")
            hand.type(credentials__0__name="default", credentials__0__secret="sk-of-the-vendor")
            hand.go("[name=_save]")

            hand.step("Test the key")
            hand.go("form[id^=test_] button")
            assert "It works." in window.words("body")

            hand.step("Add a model, with an offer and its price")
            hand.type(slug="fair")
            for row, (cost, charge) in enumerate((("1", "2"), ("3", "4"))):
                hand.type(**{f"rates__{row}__cost": cost, f"rates__{row}__charge": charge})
            hand.go("[name=_save]")

            hand.step("Add a model, with an offer and its price")
            hand.type(slug="lab/first", name="First")
            hand.click("#offers-group .add-row a, #offers-group .add-row")
            hand.choose("offers-0-provider", "vendor")
            hand.type(offers__0__upstream_model="sim?text=Welcome")
            hand.choose("offers-0-tariff", "fair")
            hand.go("[name=_save]")

            hand.step("Add an organization")
            hand.type(slug="acme", name="Acme")
            hand.go("[name=_save]")

            hand.step("Add a project")
            hand.choose("organization", "acme")
            hand.type(slug="main", name="Main")
            hand.go("[name=_save]")

            hand.step("Make a key")
            hand.choose("project", "main")
            hand.type(name="first")
            hand.go("[name=_save]")

            hand.go("#try_form button")
            hand.go("#first_request_form button")
            assert window.words("#answer") == "Welcome"
            made = Usage.objects.get()
            assert made.charge is not None and made.charge > 0
            hand.go(f"a[href*='{made.pk}']")
            assert made.pk.hex in window.words("body").replace("-", "")

            window.open("/console/")
            assert window.driver.find_elements("css selector", ".first-steps") == []
    assert hand.clicks == CLICKS
