"""The playground in a browser, over a real gateway: what it shows is what is on the books."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from accounts.models import ApiKey
from billing.models import Usage
from tests.console.browser import url
from tests.console.catalog.readers import member
from tests.console.window import Window, needs_a_browser, open_window
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff

pytestmark = needs_a_browser
DONE = "return [...document.querySelectorAll('[data-state]')].every((one) => !one.classList.contains('busy'))"
SHOWN = """
return [...document.querySelectorAll(".play-answer")].map((one) => Object.fromEntries(
  ["model", "state", "text", "first", "total", "tokens", "cost", "generation"]
    .map((name) => [name, one.querySelector(`[data-${name}]`).textContent])
    .concat([["plan", [...one.querySelectorAll("[data-plan] tbody tr")]
               .map((row) => [...row.cells].map((cell) => cell.textContent))],
             ["code", [...one.querySelectorAll("[data-code] pre")].map((text) => text.textContent)]])));
"""


@pytest.fixture(scope="module")
def served(
    database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Gateway, Window]]:
    """API and console of one process, and a window on it."""
    folder = tmp_path_factory.mktemp("playground")
    with running(folder, SERVE="all", EGRESS_ALLOW=simulated.url) as (server,), open_window(server.url) as window:
        window.open("/console/login/")
        yield server, window


def logged_in(window: Window, tenant: Tenant) -> None:
    """The window is a developer's."""
    name = settings.SESSION_COOKIE_NAME
    window.driver.add_cookie({"name": name, "value": member(tenant).cookies[name].value, "path": "/"})


def send(window: Window, prompt: str, *models: str, **fields: str) -> list[dict[str, Any]]:
    """What is shown once every model has answered."""
    window.open(reverse("playground") + "?" + "&".join(f"m={slug}" for slug in models))
    for name, value in {"user": prompt, **fields}.items():
        box = window.driver.find_element("name", name)
        box.clear()
        box.send_keys(value)
    window.driver.find_element("name", "send").click()
    count = f"return document.querySelectorAll('.play-answer').length == {len(models)}"
    until(lambda: window.driver.execute_script(count) and window.driver.execute_script(DONE), 30)
    found: list[dict[str, Any]] = window.driver.execute_script(SHOWN)
    return found


def test_two_models_answer_side_by_side_as_the_books_say(
    served: tuple[Gateway, Window], simulated: SimulatedProvider
) -> None:
    server, window = served
    alice = make_tenant("alice")
    provider, other = make_provider(simulated.base_url), make_provider(simulated.base_url)
    # Amounts that a number of the browser's could not hold.
    odd = make_tariff(input=("1", "0.123457"), output=("2", "3.000001"))
    one, two = make_model(provider, "sim-small", odd), make_model(provider, "sim-small")
    add_offer(one, other, "sim-small", odd, priority=1)
    synchronize(server)
    logged_in(window, alice)
    window.said()  # of another test
    shown = send(window, "Say <b>hi</b> and it's done", one.slug, two.slug, system="Be brief.", max_tokens="50")
    assert [answer["model"] for answer in shown] == [one.slug, two.slug]
    rows = {usage.model: usage for usage in Usage.objects.filter(organization=alice.organization.pk)}
    assert set(rows) == {one.slug, two.slug}
    for answer in shown:
        usage = rows[answer["model"]]
        assert (answer["state"], usage.status) == ("✓", "completed")
        assert answer["text"] and answer["first"].endswith(" ms") and answer["total"].endswith(" ms")
        assert answer["tokens"] == f"{usage.prompt_tokens}, {usage.completion_tokens}"
        assert usage.charge and Decimal(answer["cost"].removeprefix("$")) == usage.charge
        assert answer["generation"].replace("-", "") == usage.pk.hex
        assert all(
            text.count(answer["model"]) == 1 and "it's done" in text.replace("'\\''", "'") for text in answer["code"]
        )
    plan = [row[:2] + row[3:] for row in shown[0]["plan"]]
    assert plan == [["1", provider.slug, "completed"], ["2", other.slug, "-"]]
    link = window.driver.find_element("css selector", "[data-generation]").get_attribute("href")
    assert link == server.url + url(Usage, "change", rows[one.slug].pk.hex)
    key = ApiKey.objects.get(project=alice.project, name="playground")
    assert {usage.key for usage in rows.values()} == {key.pk}
    # The secret is nowhere that outlives the page, and nowhere on it.
    kept = "return JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
    assert "sk-ml-" not in window.driver.execute_script(kept) + window.driver.page_source
    assert "sk-ml-" not in server.log.read_text()
    assert {night: window.wrong(1280, night) for night in (False, True)} == {False: [], True: []}
    assert window.wrong(390, night=False) == [] and window.said() == []


def test_what_fails_is_told_and_costs_nothing(served: tuple[Gateway, Window], simulated: SimulatedProvider) -> None:
    server, window = served
    alice = make_tenant("alice")
    model = make_model(make_provider(simulated.base_url), "sim-small", make_tariff(input="100000", output="100000"))
    synchronize(server)
    logged_in(window, alice)
    (answer,) = send(window, "hi", model.slug, max_tokens="400")  # dearer than the key's dollar
    assert answer["state"] not in ("", "✓") and answer["text"] == "" and answer["cost"] == "-"
    assert not Usage.objects.filter(organization=alice.organization.pk).exists()
