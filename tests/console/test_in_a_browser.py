"""What only a browser sees of the console: nothing overlaps or is cut, and all can be read, by day and by night."""

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import models
from django.urls import reverse

from accounts.models import ApiKey, Organization, Project
from billing.ids import new_id
from billing.models import Budget, Hold, Limit, Usage
from gateway.models import StoredFile
from routing.models import Policy, Provider
from tests.console.browser import Rows, console, make_payload, make_rows, make_usage, sealed_sides, url
from tests.console.window import Window, needs_a_browser, open_window
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import make_tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff

pytestmark = needs_a_browser


@pytest.fixture(scope="module")
def rows(database: None) -> Iterator[Rows]:
    """A row of every page."""
    made = make_rows(make_tenant("alice"))
    yield made
    made[Hold].delete()


@pytest.fixture(scope="module")
def server(database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """API and console in one process."""
    with running(tmp_path_factory.mktemp("console"), SERVE="all", EGRESS_ALLOW=simulated.url) as (process,):
        yield process


@pytest.fixture(scope="module")
def window(server: Gateway) -> Iterator[Window]:
    """An operator's window."""
    with open_window(server.url) as made:
        made.open("/console/login/")
        name = settings.SESSION_COOKIE_NAME
        made.driver.add_cookie({"name": name, "value": console().cookies[name].value, "path": "/"})
        yield made


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


def test_from_a_request_id_to_why_it_went_where_it_went(
    window: Window, server: Gateway, simulated: SimulatedProvider
) -> None:
    tenant = make_tenant("alice")
    one, two = (make_provider(simulated.base_url, secret=f"secret-of-{n}-0123456789") for n in range(2))
    model = make_model(one, "sim-small?status=503", make_tariff(input=("1", "2"), output=("2", "4")))
    add_offer(model, two, "sim-small?tokens=2", make_tariff(input=("1", "8"), output=("2", "16")), priority=1)
    synchronize(server)
    answer = server.chat(tenant.secret, model.slug, stream=True)
    assert answer.status_code == 200, answer.text
    window.open(url(Usage, "changelist"))
    window.type(q=answer.headers["x-request-id"])
    window.driver.find_element("css selector", "#result_list tbody th a").click()
    assert window.words(".log-story").splitlines() == [
        f"The request asked for {model.slug}.",
        f"{one.slug} was asked first, in the order of its priority: it said that it is overloaded (HTTP 503).",
        f"So {two.slug} was asked next, in the order of its priority: it answered.",
    ]
    assert answer.headers["x-request-id"] in window.words(".log-ids")
    assert window.said() == []


def test_a_payload_is_read_for_a_reason(window: Window) -> None:
    tenant = make_tenant("alice")
    kept = make_payload(tenant, **sealed_sides(usage := make_usage(tenant), "Is <it> a canary?", "A bird."))
    window.open(url(type(kept), "change", usage.pk))
    assert window.wrong(390, night=True) == window.wrong(1280, night=False) == []
    window.type(reason="ticket 7")
    assert window.words(".board").splitlines()[1:] == [
        "What was asked",
        "Is <it> a canary?",
        "What was answered",
        "A bird.",
    ]
    assert window.wrong(390, night=False) == window.wrong(1280, night=True) == []


@pytest.mark.parametrize("address", ["admin:index", "search"])
def test_the_first_page_and_the_search_can_be_read_at_any_width(window: Window, rows: Rows, address: str) -> None:
    window.open(f"{reverse(address)}?q=alice&days=30&stay=1")
    assert {width: window.wrong(width, night=False) for width in (1440, 1280, 390)} == {1440: [], 1280: [], 390: []}
    assert window.wrong(1280, night=True) == []
    assert window.said() == []


@pytest.mark.parametrize("model", [Organization, Project, Provider], ids=lambda one: one.__name__)
def test_what_a_page_begins_with_can_be_read(window: Window, rows: Rows, model: type[models.Model]) -> None:
    window.open(url(model, "change", rows[model].pk))
    assert {width: window.wrong(width, night=False) for width in (1280, 390)} == {1280: [], 390: []}
    assert window.wrong(1280, night=True) == []
    assert window.said() == []


def test_open_requests_are_kept_fresh_until_somebody_stops_that(window: Window, rows: Rows) -> None:
    """Each time somebody comes back to the page it is looked at anew, not only every five seconds."""
    look = "document.dispatchEvent(new Event('visibilitychange'))"
    window.open(url(Hold, "changelist"))
    before = rows[Hold]
    rows[Hold].delete()
    made = Hold.objects.create(**{field.attname: getattr(before, field.attname) for field in Hold._meta.fields}
                               | {"id": new_id()})  # fmt: skip
    rows[Hold] = made
    window.driver.execute_script(look)
    until(lambda: str(made.pk) in window.words("#changelist-form"))
    assert window.words(".live-state").startswith("Live, as of")
    assert window.wrong(1280, night=True) == [] == window.wrong(1280, night=False)
    window.driver.find_element("css selector", ".live button").click()
    assert window.words(".live-state").startswith("Stopped at") and window.words(".live button") == "Go on"
    asked = "return performance.getEntriesByType('resource').filter(one => one.initiatorType === 'fetch').length"
    count = window.driver.execute_script(asked)
    window.driver.execute_script(look)
    assert window.driver.execute_script(asked) == count
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
