"""What keeps people from using a page, as axe-core finds it, by day and night; and pages walked through by keyboard."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from accounts.models import ApiKey, Membership, Project
from billing.models import Hold, LedgerEntry, Statement, Usage
from routing.models import Model
from tests.clients.packages import npm
from tests.console.browser import Rows, console, make_rows, url
from tests.console.window import Window, needs_a_browser, open_window
from tests.stage.cast import make_tenant
from tests.stage.product import running

pytestmark = needs_a_browser

# Serious and critical alone: what is moderate is a matter of taste.
AXE = """
const done = arguments[0], wanted = ["serious", "critical"];
const told = (one) => one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 160)} ${node.any[0]?.message ?? ""}`);
// A colour that still changes is none yet.
Promise.allSettled(document.getAnimations().map((one) => one.finished))
  .then(() => axe.run(document, {resultTypes: ["violations"]}))
  .then((found) => done(found.violations.filter((one) => wanted.includes(one.impact)).flatMap(told)));
"""
# Where the focus is: its name, whether that can be seen, whether it is nowhere, and where it leads.
FOCUS = """
const one = document.activeElement, style = getComputedStyle(one);
const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== "none";
return [one.tagName + " " + (one.id || one.name || one.textContent.trim().slice(0, 40)), ring,
        one === document.body, one.getAttribute("href") || ""];
"""


@pytest.fixture(scope="module")
def rows(database: None) -> Iterator[Rows]:
    """A row of every page."""
    made = make_rows(make_tenant("alice"))
    yield made
    made[Hold].delete()


@pytest.fixture(scope="module")
def axe() -> str:
    """The program, as its package has it."""
    installed = npm(Path(__file__).parent / "axe")
    return (installed / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def window(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    """An operator's window."""
    with (
        running(tmp_path_factory.mktemp("console"), SERVE="all") as (server,),
        open_window(server.url) as made,
    ):
        made.open("/console/login/")
        yield made


def enter(window: Window) -> None:
    """Logs an operator in."""
    name = settings.SESSION_COOKIE_NAME
    window.driver.add_cookie({"name": name, "value": console().cookies[name].value, "path": "/"})


def wrong(window: Window, axe: str, address: str) -> list[str]:
    """What is wrong with the page, by day and by night."""
    window.open(address)
    window.driver.execute_script(axe)
    found: list[str] = []
    for night in (False, True):
        window.driver.execute_script("document.documentElement.classList.toggle('dark', arguments[0])", night)
        said: list[Any] = window.driver.execute_async_script(AXE)
        found += [f"{'night' if night else 'day'}: {one}" for one in said]
    return found


@pytest.mark.slow
def test_nothing_serious_is_wrong_with_a_login_a_list_and_a_form(window: Window, rows: Rows, axe: str) -> None:
    window.driver.delete_all_cookies()
    assert wrong(window, axe, "/console/login/") == []
    enter(window)
    for address in (reverse("admin:index"), url(Usage, "changelist"), url(ApiKey, "add")):
        assert wrong(window, axe, address) == [], address
    window.driver.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=/x.png><input>')")
    assert len(window.driver.execute_async_script(AXE)) == 2, "axe would not have found it"


@pytest.mark.slow
def test_nothing_serious_is_wrong_with_the_main_pages(window: Window, rows: Rows, axe: str) -> None:
    enter(window)
    pages = [
        url(Usage, "change", rows[Usage].pk),
        url(ApiKey, "changelist"),
        url(Project, "change", rows[Project].pk),
        url(Membership, "changelist"),
        reverse("spend"),
        reverse("health_board"),
        reverse("catalog_model", args=[str(rows[Model])]),
        url(LedgerEntry, "changelist"),
        url(Statement, "change", rows[Statement].pk),
        "/console/me/",
        "/console/nowhere/",
    ]
    found = {address: wrong(window, axe, address) for address in pages}
    assert {address: said for address, said in found.items() if said} == {}


@pytest.mark.slow
def test_a_page_is_walked_through_by_keyboard(window: Window, rows: Rows) -> None:
    """The first stop leads past the menu; each stop can be seen; every link and field of the content is one."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    enter(window)
    for address in (url(ApiKey, "changelist"), url(Project, "change", rows[Project].pk), reverse("spend")):
        window.open(address)

        def step() -> list[Any]:
            ActionChains(window.driver).send_keys(Keys.TAB).perform()
            told: list[Any] = window.driver.execute_script(FOCUS)
            return told

        first = step()
        assert first[3] == "#content", first
        ActionChains(window.driver).send_keys(Keys.ENTER).perform()
        assert window.driver.execute_script("return document.activeElement.id") == "content"
        seen: set[str] = set()
        unseen = []
        wanted: set[str] = set(
            window.driver.execute_script("""
const shown = (one) => one.checkVisibility({checkVisibilityCSS: true, checkOpacity: true});
return [...document.querySelectorAll("#content :is(a[href], button, input, select, textarea)")]
  .filter((one) => shown(one) && !one.disabled && one.type !== "hidden" && one.tabIndex >= 0)
  .map((one, at) => one.dataset.stop = String(at));
""")
        )
        for _ in range(200):
            name, ring, gone, _link = step()
            if gone:
                break
            stop = window.driver.execute_script("return document.activeElement.dataset.stop")
            if stop is None or stop in seen:
                if seen >= wanted:
                    break
                continue
            seen.add(stop)
            if not ring:
                unseen.append(name)
        assert unseen == [], address
        assert wanted - seen == set(), address
