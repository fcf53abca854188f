"""A browser's window without a screen, and what is wrong with a page as it is shown there."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

BROWSER, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
needs_a_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="There is no Chromium here with its chromedriver."
)

# What is wrong with the page as it is shown now, in words.
LOOK = """
const wrong = [], seen = (one) => one.checkVisibility({checkVisibilityCSS: true, checkOpacity: true});
const box = (one) => one.getBoundingClientRect(), main = document.querySelector("[role=main], main");
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
    """A browser's window that shows pages of the console at `base`."""

    driver: "Chrome"
    base: str

    def open(self, address: str) -> None:
        """Goes to a page."""
        self.driver.get(self.base + address)

    def type(self, **words: str) -> None:
        """Fills the fields of these names and sends their form; returns once another page has come."""
        page = self.driver.find_element("tag name", "html")
        for name, value in words.items():
            found = self.driver.find_elements("css selector", f"[role=main] [name='{name}']")
            field = found[0] if found else self.driver.find_element("name", name)
            field.clear()
            field.send_keys(value)
        field.submit()
        self._until_gone(page)

    def follow(self, text: str) -> None:
        """Clicks the link of the page's content that says `text`; returns once another page has come."""
        page = self.driver.find_element("tag name", "html")
        self._link(text).click()
        self._until_gone(page)

    def download(self, text: str) -> str:
        """The file behind the link that says `text`, as this session gets it."""
        fetched = "fetch(arguments[0]).then(async (a) => arguments[1](a.ok ? await a.text() : null))"
        found = self.driver.execute_async_script(fetched, self._link(text).get_attribute("href"))
        assert isinstance(found, str), text
        return found

    def words(self, selector: str) -> str:
        """What can be read there; in one look, as a part that is kept fresh may be another one by the next."""
        found = self.driver.execute_script("return document.querySelector(arguments[0])?.innerText.trim()", selector)
        if found is None:
            raise LookupError(f"{selector} is not on the page.")
        return "\n".join(line.strip() for line in str(found).splitlines() if line.strip())

    def _link(self, text: str) -> Any:
        return self.driver.find_element(
            "xpath", f"//a[contains(normalize-space(.), '{text}')][not(ancestor::*[@id='nav-sidebar-inner'])]"
        )

    def _until_gone(self, page: Any) -> None:
        from selenium.webdriver.support.expected_conditions import staleness_of
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, 30).until(staleness_of(page))

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


@contextmanager
def open_window(base: str) -> Iterator[Window]:
    """A window in which nobody is logged in yet."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = str(BROWSER)
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options, Service(str(DRIVER)))
    try:
        yield Window(driver, base)
    finally:
        driver.quit()
