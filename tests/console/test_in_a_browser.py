"""What only a browser sees of the console: nothing overlaps or is cut, and all can be read, by day and by night."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.db import models
from django.urls import reverse

from accounts.models import ApiKey
from billing.models import Budget, Hold, Limit, Usage
from gateway.models import StoredFile
from routing.models import Policy, Provider
from tests.console.browser import Rows, console, make_rows, url
from tests.stage.cast import make_tenant
from tests.stage.product import running

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

BROWSER, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason="There is no Chromium here with its chromedriver.")

# What is wrong with the page as it is shown now, in words.
LOOK = """
const wrong = [], seen = (one) => one.checkVisibility({checkVisibilityCSS: true, checkOpacity: true});
const box = (one) => one.getBoundingClientRect(), main = document.querySelector("[role=main]");
const name = (one) => `${one.tagName.toLowerCase()} ${one.id || one.name || one.textContent.trim().slice(0, 30)}`;
if (document.documentElement.scrollWidth > innerWidth + 1) wrong.push("the page is wider than the window");

// Fields have room for what is typed, and labels for what they say.
const fields = [...main.querySelectorAll("form[id$=_form] :is(input, select, textarea)")]
  .map((one) => one.classList.contains("select2-hidden-accessible") ? one.nextElementSibling : one)
  .filter((one) => one && seen(one) && !["checkbox", "radio", "hidden", "submit"].includes(one.type));
for (const one of fields) if (box(one).width < 80) wrong.push(`${name(one)} is ${box(one).width} px wide`);
for (const one of main.querySelectorAll("form[id$=_form] label"))
  if (seen(one) && box(one).width < 8) wrong.push(`label ${name(one)} is hidden`);
for (const [at, one] of fields.entries()) for (const other of fields.slice(at + 1)) {
  const a = box(one), b = box(other);
  if (!one.contains(other) && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2) wrong.push(`${name(one)} overlaps ${name(other)}`);
}

// Words: none over another, and each told from what is behind it (WCAG 2.2, 1.4.3).
const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
const painted = (...colours) => {
  canvas.clearRect(0, 0, 1, 1);
  for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = (rgb) => {
  const [r, g, b] = rgb.slice(0, 3).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const grounds = (one) => {
  const found = [];
  for (; one; one = one.parentElement) {
    found.unshift(getComputedStyle(one).backgroundColor);
    if (painted(found[0])[3] === 255) return found;
  }
  return ["white", ...found];
};
const words = [...document.body.querySelectorAll("*")].filter((one) => seen(one)
  && !one.closest("option, script, .material-symbols-outlined, .sr-only, [aria-hidden=true], :disabled")
  && [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()));
for (const one of words) {
  const style = getComputedStyle(one), behind = grounds(one);
  const [a, b] = [light(painted(...behind)), light(painted(...behind, style.color))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
  if (ratio < (large ? 3 : 4.5)) wrong.push(`${name(one)} has a contrast of ${ratio.toFixed(2)}`);
}
const lines = words.filter((one) => main.contains(one)).flatMap((one) => {
  const range = document.createRange();
  return [...one.childNodes].filter((node) => node.nodeType === 3 && node.textContent.trim()).flatMap((node) => {
    range.selectNodeContents(node);
    return [...range.getClientRects()].map((rect) => [one, rect]);
  });
});
for (const [at, [one, a]] of lines.entries()) for (const [other, b] of lines.slice(at + 1))
  if (one !== other && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5) wrong.push(`${name(one)} lies over ${name(other)}`);

// Numbers are read by their last digit, and a box to choose from says what is chosen.
for (const one of document.querySelectorAll("#result_list td:has(> .number)"))
  if (getComputedStyle(one).textAlign !== "right") wrong.push(`${name(one)} is not at the right`);
for (const one of document.querySelectorAll(".select2-container [role=combobox], .select2-container [role=searchbox]"))
  if (seen(one) && !one.getAttribute("aria-label")) wrong.push(`${name(one)} has no name`);
return [...new Set(wrong)];
"""


@dataclass
class Window:
    """A browser's window in which somebody is logged in to the console at `base`."""

    driver: "Chrome"
    base: str

    def open(self, address: str) -> None:
        """Goes to a page."""
        self.driver.get(self.base + address)

    def wrong(self, width: int, night: bool) -> list[str]:
        """What is wrong with the page when the window is so wide."""
        metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_script("document.documentElement.classList.toggle('dark', arguments[0])", night)
        found: list[str] = self.driver.execute_script(LOOK)
        return found

    def said(self) -> list[Any]:
        """What the browser complained of since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def rows(database: None) -> Iterator[Rows]:
    """A row of every page."""
    made = make_rows(make_tenant("alice"))
    yield made
    made[Hold].delete()


@pytest.fixture(scope="module")
def window(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    """A window without a screen."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = str(BROWSER)
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with running(tmp_path_factory.mktemp("console"), SERVE="all") as (server,):
        driver = Chrome(options, Service(str(DRIVER)))
        try:
            driver.get(f"{server.url}/console/login/")
            name = settings.SESSION_COOKIE_NAME
            driver.add_cookie({"name": name, "value": console().cookies[name].value, "path": "/"})
            yield Window(driver, server.url)
        finally:
            driver.quit()


@pytest.mark.parametrize(
    ("page", "model"),
    [("add", ApiKey), ("add", Budget), ("add", Limit), *(("change", one) for one in (ApiKey, Policy, Provider, Usage))],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_form_is_whole_and_can_be_read_at_any_width(
    window: Window, rows: Rows, page: str, model: type[models.Model]
) -> None:
    window.open(url(model, page, *([rows[model].pk] if page == "change" else [])))
    assert {width: window.wrong(width, night=False) for width in (1440, 1280, 390)} == {1440: [], 1280: [], 390: []}
    assert window.wrong(1280, night=True) == []
    assert window.said() == []


@pytest.mark.parametrize("model", [ApiKey, StoredFile, Usage], ids=lambda one: one.__name__)
def test_a_list_can_be_read_and_the_browser_complains_of_nothing(
    window: Window, rows: Rows, model: type[models.Model]
) -> None:
    window.open(url(model, "changelist"))
    assert {night: window.wrong(1280, night) for night in (False, True)} == {False: [], True: []}
    assert window.said() == []


def test_what_was_spent_can_be_read_at_any_width(window: Window, rows: Rows) -> None:
    window.open(reverse("spend") + "?by=key&by=model&by=day")
    assert {width: window.wrong(width, night=False) for width in (1440, 1280, 390)} == {1440: [], 1280: [], 390: []}
    assert window.wrong(1280, night=True) == []
    assert window.said() == []


def test_what_is_wrong_is_found(window: Window, rows: Rows) -> None:
    """A field without room, words that are hardly there, and a field over another."""
    window.open(url(ApiKey, "add"))
    assert window.wrong(1280, night=False) == []  # and it is so wide from here on
    window.driver.execute_script("""
const [first, second] = document.querySelectorAll("[role=main] form[id$=_form] input[type=text]");
const a = first.getBoundingClientRect(), b = second.getBoundingClientRect();
first.style.width = first.style.minWidth = "46px";
second.style.transform = `translate(${a.x - b.x}px, ${a.y - b.y}px)`;
first.labels[0].style.color = "#aaa";
""")
    found = " ".join(window.wrong(1280, night=False))
    for words in ("is 46 px wide", " overlaps ", "has a contrast of 2."):
        assert words in found, found
