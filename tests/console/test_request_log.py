"""The request log: where a request's time went, why it went where it went, and how it is found again."""

import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import Membership, User
from accounts.roles import Role
from billing.console.timing import WIDTH, timing
from billing.ids import first_id
from billing.models import Attempt, Usage
from gateway.console.story import story
from tests.console.browser import console, context_of, make_attempt, make_usage
from tests.matrix.people import client_of
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff

LIST = reverse("admin:billing_usage_changelist")


def found(**asked: str) -> list[Usage]:
    """The generations that an operator finds."""
    return list(context_of(console().get(LIST, asked))["cl"].result_list)


@pytest.mark.row("B382")
def test_each_part_of_a_request_is_recorded(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    """The parts follow one another, and are no longer than the whole."""
    one, two = (make_provider(simulated.base_url, secret=f"secret-of-{n}-0123456789") for n in range(2))
    model = make_model(one, "sim-small?status=503", make_tariff())
    add_offer(model, two, "sim-small?tokens=2", make_tariff(), priority=1)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=True)
    request_id = answer.headers["x-request-id"]
    until(lambda: Usage.objects.filter(pk=answer.headers["x-generation-id"]).exists())
    usage = Usage.objects.get(pk=answer.headers["x-generation-id"])
    assert usage.request_id == uuid.UUID(request_id)
    assert usage.queue_ms is not None and 0 <= usage.queue_ms < 10_000
    first, second = Attempt.objects.filter(generation=usage.pk).order_by("number")
    assert first.offset_ms is not None and second.offset_ms is not None
    assert 0 <= first.offset_ms <= first.offset_ms + (first.duration_ms or 0) <= second.offset_ms + 1
    assert first.connect_ms is not None and 0 <= first.connect_ms <= (first.duration_ms or 0) + 1
    assert second.offset_ms + (second.duration_ms or 0) <= (usage.duration_ms or 0) + 1
    assert found(q=request_id) == [usage]


def test_the_bars_say_what_took_how_long(alice: Tenant) -> None:
    usage = make_usage(alice, queue_ms=100, duration_ms=900)
    dials = [
        make_attempt(usage, number=1, status="failed", fault="timeout", offset_ms=50, connect_ms=20, duration_ms=300),
        make_attempt(usage, number=2, offset_ms=400, connect_ms=10, ttft_ms=110, duration_ms=500),
    ]
    drawn = timing(usage, dials)
    assert drawn["whole"] == "1.00 s"
    assert [(part["kind"], part["x"], part["width"]) for part in drawn["bar"]] == [
        ("queue", 0, 100),
        ("hold", 100, 50),
        ("tried", 150, 350),
        ("connect", 500, 10),
        ("wait", 510, 100),
        ("stream", 610, 390),
    ]
    assert [row["offset"] for row in drawn["rows"]] == ["150 ms", "500 ms"]
    assert [[(part["kind"], part["x"], part["width"]) for part in row["bar"]] for row in drawn["rows"]] == [
        [("connect", 150, 20), ("wait", 170, 280)],
        [("connect", 500, 10), ("wait", 510, 100), ("stream", 610, 390)],
    ]


TIMES = st.none() | st.integers(0, 2**31 - 1)


@given(st.data())
def test_whatever_is_recorded_is_drawn_within_the_bar(data: st.DataObject) -> None:
    """Rows of before, of clocks that jumped, and of processes that died."""
    usage = Usage(queue_ms=data.draw(TIMES), duration_ms=data.draw(TIMES))
    dials = [
        Attempt(number=n, **{name: data.draw(TIMES) for name in ("offset_ms", "connect_ms", "ttft_ms", "duration_ms")})
        for n in range(data.draw(st.integers(0, 3)))
    ]
    drawn = timing(usage, dials)
    for bar in (drawn["bar"], *(row["bar"] for row in drawn["rows"])):
        for part in bar:
            assert 0 <= part["x"] < WIDTH and part["width"] > 0 and part["x"] + part["width"] <= WIDTH + 2


def test_the_story_names_why_and_what_came_of_it(alice: Tenant) -> None:
    plan: dict[str, Any] = {
        "model": "lab/auto",
        "seed": 1,
        "by": "project",
        "taken": 2,
        "wanted": {},
        "offers": [[1, "near", "m-1", "price", 0.1], [2, "far", "m-2", "latency", 0.3, "lab/model"]],
        "out": [[n, f"v{n}", "m", "resting", None] for n in range(5)],
    }
    usage = make_usage(alice, plan=plan, model="lab/model")
    dials = [
        make_attempt(usage, number=1, provider="near", upstream_model="m-1", status="failed", fault="unreachable"),
        make_attempt(usage, number=2, provider="near", upstream_model="m-1", status="failed", fault="rate_limited"),
        make_attempt(usage, number=3, provider="far", upstream_model="m-2"),
    ]
    rests = "it failed lately and rests"
    assert story(usage, dials) == [
        "The request asked for lab/auto.",
        "near was asked first, by its price: it could not be reached.",
        "So near was asked again: it limited the gateway's rate.",
        "So far was asked next, by its time to first token: it answered.",
        "So the answer is of another model: lab/model.",
        f"Left out were v0: {rests}; v1: {rests}; v2: {rests}; and 2 more.",
    ]
    assert story(make_usage(alice), []) == ["The request asked for lab/model.", "Nobody was asked."]


@pytest.mark.row("B380")
def test_the_list_says_when_what_how_much_how_fast_and_how_it_ended(alice: Tenant) -> None:
    usage = make_usage(alice, ttft_ms=400, duration_ms=1400, finish_reason="length")
    page = console().get(LIST, {"organization": str(alice.organization.pk)}).content.decode()
    row = page[page.index("<tbody") : page.index("</tbody>")]
    labels = ("Created At", "Model", "Input", "Output", "Charge", "First Token", "Duration", "Tokens/S", "Status")
    assert {label.lower() for label in labels} <= {one.lower() for one in re.findall('data-label="([^"]*)"', row)}
    cells = [
        re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", cell)).strip()
        for cell in re.findall("<t[dh][^>]*>.*?</t[dh]>", row, re.S)
    ]
    assert cells[-7:] == ["length", "1,000", "500", "$0.00132", "400 ms", "1.40 s", "500"]
    assert reverse("admin:billing_usage_change", args=[usage.pk]) in row


@pytest.mark.row("B379")
def test_a_request_is_found_by_its_id_near_its_time_alone(alice: Tenant, charlie: Tenant) -> None:
    """No index has request ids: the id says when the request came, so little is looked at."""
    now = timezone.now()
    request_id = uuid.UUID(int=first_id(now).int | 7)
    mine = make_usage(alice, at=now + timedelta(seconds=40), request_id=request_id)
    make_usage(charlie, at=now + timedelta(seconds=41))
    far = uuid.UUID(int=request_id.int + 1)
    make_usage(alice, at=now + timedelta(minutes=6), request_id=far)
    assert found(q=request_id.hex) == found(q=f" {request_id} ") == [mine]
    assert found(q=far.hex) == []
    with CaptureQueriesContext(connection) as captured:
        assert found(q=str(uuid.uuid4())) == []
    assert not any('"request_id" =' in query["sql"] for query in captured.captured_queries)
    page = console().get(LIST, {"q": uuid.uuid4().hex}).content.decode()
    assert reverse("admin:gateway_refused_changelist") + "?q=" in page


def test_a_session_is_found_under_each_of_its_usual_names(alice: Tenant, charlie: Tenant) -> None:
    names = ("session_id", "session", "conversation_id", "thread_id")
    made = [make_usage(alice, metadata={name: "s-1"}) for name in names]
    make_usage(alice, metadata={"team": "s-1"})
    make_usage(alice, metadata={"session_id": "s-10"})
    old = make_usage(alice, at=timezone.now() - timedelta(days=2), metadata={"session_id": "s-1"})
    mine = {"organization": str(alice.organization.pk), "session": "s-1"}
    assert {usage.pk for usage in found(**mine)} == {usage.pk for usage in made}
    assert old in found(**mine, created_at_from_0=f"{old.created_at:%Y-%m-%d}")


def test_a_member_sees_the_times_but_nobody_of_the_providers(alice: Tenant) -> None:
    usage = make_usage(alice, provider="secret-vendor", upstream_id="up-1", queue_ms=5, duration_ms=900)
    make_attempt(usage, provider="secret-vendor", offset_ms=3, duration_ms=890)
    for role in (Role.OWNER, Role.AUDITOR):
        member = User.objects.create_user(f"member-{uuid.uuid4().hex}", is_staff=True)
        Membership.objects.create(user=member, organization=alice.organization, role=role)
        page = client_of(member).get(reverse("admin:billing_usage_change", args=[usage.pk])).content.decode()
        assert "First token" in page and usage.pk.hex in page and "/generation?id=" in page
        for hidden in ("secret-vendor", "up-1", "log-story", "log-dials"):
            assert hidden not in page
