"""The console's health board: what it shows of every offer, and the operator's word on a breaker."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from billing.ids import EPOCH
from billing.models import Attempt, Mark
from gateway.console.health_board import _lasted
from routing.models import Credential, Ejection, Offer
from routing.statistics.rollups import roll_up
from tests.console.browser import console, context_of
from tests.routing.test_statistics import new_id
from tests.stage.cast import Tenant
from tests.stage.shelf import add_offer, make_model, make_provider

BOARD = "/console/health/"


@pytest.fixture
def offer() -> Iterator[Offer]:
    """An offer that fails now and then."""
    provider = make_provider("https://vendor.example/v1")
    made: Offer = make_model(provider, "upstream-1").offers.get()
    yield made
    Attempt.objects.filter(provider=provider.slug).delete()
    made.model.delete()
    provider.delete()


def attempt(offer: Offer, **fields: Any) -> None:
    """A dial of a moment ago: 200 ms to the first of 101 tokens, ten ms each."""
    now = datetime.now(UTC)
    row = {
        "generation": uuid4(), "number": 1, "started_at": now, "status": "completed", "ttft_ms": 200,
        "duration_ms": 1200, "prompt_tokens": 10, "completion_tokens": 101, "model": offer.model.slug,
        "provider": offer.provider.slug, "upstream_model": offer.upstream_model,
    }  # fmt: skip
    Attempt.objects.create(id=new_id(now), **{**row, **fields})


def shown(client: Client, offer: Offer, **query: str) -> Any:
    """The offer's line on the board."""
    response = client.get(BOARD, {"q": offer.model.slug, **query})
    assert response.status_code == 200
    (line,) = (line for one in context_of(response)["providers"] for line in one["lines"] if line.offer == offer)
    return line


def published() -> None:
    """A worker's run, with every window."""
    Mark.objects.filter(name__startswith="offers").update(until=EPOCH)
    roll_up()


def test_it_shows_how_an_offer_does(offer: Offer) -> None:
    client = console()
    for _ in range(18):
        attempt(offer)
    attempt(offer, status="failed", fault="timeout", ttft_ms=None, completion_tokens=0)
    attempt(offer, status="failed", fault="server_error", ttft_ms=None, completion_tokens=0)
    attempt(offer, status="failed", fault="rejected", upstream_status=400, ttft_ms=None, completion_tokens=0)
    published()
    for window in ("5m", "1h", "1d", "30d"):
        line = shown(client, offer, window=window)
        found = line.figures
        assert (found.attempts, found.uptime, found.throughput) == (21, 0.9, 100.0), window
        assert found.ttft_p50 == pytest.approx(200, rel=0.05) and found.ttft_p90 == found.ttft_p50
        assert sorted(found.errors) == [("rejected", 1, "none"), ("server error", 1, "bad"), ("timeout", 1, "bad")]
        assert (found.uptime_text, found.level) == ("90.0 %", "busy")
        assert (line.state, line.note) == ("In use", "")
        assert (line.hours[-1]["level"], line.hours[0]["level"]) == ("busy", "none")
    html = client.get(BOARD, {"q": offer.model.slug}).content.decode()
    assert offer.model.slug in html and "1 timeout" in html and "90.0 %" in html
    assert reverse("health_board") in client.get("/console/").content.decode()
    assert context_of(client.get(BOARD, {"q": "no-such-model"}))["providers"] == []


def test_no_page_of_it_needs_what_the_policy_forbids(offer: Offer) -> None:
    response = console().get(BOARD, {"q": offer.model.slug})  # other tests have names with such words in them
    html = response.content.decode()
    assert "unsafe-inline" not in response["Content-Security-Policy"]
    assert "<style" not in html and not re.search(r"<[^<>]*\s(style|on[a-z]+)=", html)
    assert html.count("<script") == html.count("<script src=") + html.count('<script id="django-admin')


def test_it_says_how_old_the_statistics_are(offer: Offer) -> None:
    client = console()
    published()
    assert context_of(client.get(BOARD))["age"]["late"] is False
    Mark.objects.filter(name="offers:1h").update(until=datetime.now(UTC) - timedelta(minutes=12, seconds=3))
    age = context_of(client.get(BOARD))["age"]
    assert age["late"] is True and age["text"].startswith("Statistics as of 12 min ")
    assert "No worker seems to run; routing goes on with what is known." in client.get(BOARD).content.decode()
    Mark.objects.filter(name="offers:1h").delete()
    assert context_of(client.get(BOARD))["age"] == {"text": "No statistics have been published yet.", "late": True}
    published()


def test_it_shows_what_rests_and_what_has_rested(offer: Offer) -> None:
    client = console()
    credential = Credential.objects.create(provider=offer.provider, name="second")
    now = datetime.now(UTC)
    # The history is of the newest: what other tests have left goes behind what this one makes.
    Ejection.objects.update(opened_at=now - timedelta(days=1))
    old = Ejection.objects.create(
        offer=offer, cause="timeout", opened_at=now - timedelta(hours=2), until=now - timedelta(hours=1), count=3,
        closed_at=now - timedelta(minutes=50), closed_by="process",
    )  # fmt: skip
    row = {"opened_at": now, "until": now + timedelta(seconds=90), "count": 1}
    Ejection.objects.create(offer=offer, credential=credential, cause="rate_limited", **row)
    line = shown(client, offer)
    assert (line.state, line.level) == ("In use", "busy")
    assert re.fullmatch(r"rate limited with second, 1 min (29|30|2\d) s left", line.note)
    Ejection.objects.create(offer=offer, cause="server_error", **row)
    line = shown(client, offer)
    assert (line.state, line.level, line.rests) == ("Rests", "bad", True)
    Ejection.objects.filter(offer=offer, cause="server_error").update(until=now)
    assert shown(client, offer).state == "To be probed"
    Ejection.objects.create(credential=credential, cause="auth", **row)
    response = client.get(BOARD, {"q": offer.provider.slug})
    assert "Credential second rests: the provider refuses it (auth)." in response.content.decode()
    told = {(rest["cause"], rest["end"], rest["count"]): rest for rest in context_of(response)["history"]
            if str(offer) in rest["subject"] or "second" in rest["subject"]}  # fmt: skip
    assert set(told) == {
        ("timeout", "A call that succeeded", 3), ("rate limited", "still open", 1), ("server error", "still open", 1),
        ("auth", "still open", 1),
    }  # fmt: skip
    assert told["timeout", "A call that succeeded", 3]["lasted"] == "1 h 10 min"
    assert old.closed_by == "process"


def test_an_operators_word_is_kept_and_written_down(offer: Offer) -> None:
    client = console(enforce_csrf_checks=True)
    path = reverse("health_force", args=[offer.pk])
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', client.get(BOARD).content.decode())
    assert token is not None
    fields = {"csrfmiddlewaretoken": token[1], "window": "1d"}
    for word, state in (("open", "Forced open"), ("closed", "Forced closed"), ("", "In use")):
        response = client.post(path, {**fields, "forced": word})
        assert (response.status_code, response["Location"]) == (302, f"{BOARD}?window=1d")
        offer.refresh_from_db()
        assert offer.forced == word
        assert shown(client, offer).state == state
    entries = LogEntry.objects.filter(object_id=str(offer.pk), user_id=client.session["_auth_user_id"])
    assert [entry.get_change_message() for entry in entries.order_by("pk")] == [
        "Breaker forced open.", "Breaker forced closed.", "Breaker decides again.",
    ]  # fmt: skip
    client.post(path, {**fields, "forced": ""})  # said before
    assert entries.count() == 3


def test_an_operator_ends_a_rest(offer: Offer) -> None:
    client = console()
    other = add_offer(offer.model, offer.provider, "upstream-2")
    now = datetime.now(UTC)
    row = {"cause": "timeout", "opened_at": now, "until": now + timedelta(minutes=5), "count": 1}
    mine, others = Ejection.objects.create(offer=offer, **row), Ejection.objects.create(offer=other, **row)
    assert client.post(reverse("health_end_rests", args=[offer.pk])).status_code == 302
    mine.refresh_from_db()
    others.refresh_from_db()
    assert (mine.closed_by, others.closed_at) == ("operator", None)
    assert mine.closed_at is not None and mine.closed_at >= now
    assert shown(client, offer).state == "In use" and shown(client, other).state == "Rests"
    (entry,) = LogEntry.objects.filter(object_id=str(offer.pk), user_id=client.session["_auth_user_id"])
    assert entry.get_change_message() == "Rest ended."


@pytest.mark.parametrize("name", ["health_force", "health_end_rests"])
def test_nothing_changes_without_a_token_by_get_or_by_another_word(offer: Offer, name: str) -> None:
    path = reverse(name, args=[offer.pk])
    assert console(enforce_csrf_checks=True).post(path, {"forced": "open"}).status_code == 403
    assert console().get(path, {"forced": "open"}).status_code == 405
    assert console().post(reverse("health_force", args=[offer.pk]), {"forced": "ajar"}).status_code == 400
    assert console().post(reverse(name, args=[10**9]), {"forced": "open"}).status_code == 404
    offer.refresh_from_db()
    assert offer.forced == ""


def test_it_is_for_operators(offer: Offer, alice: Tenant) -> None:
    paths = [BOARD, reverse("health_force", args=[offer.pk]), reverse("health_end_rests", args=[offer.pk])]
    staff, stranger = console(superuser=False), Client()
    for path in paths:
        assert staff.get(path).status_code in (403, 405) and staff.post(path, {"forced": "open"}).status_code == 403
        assert (stranger.get(path).status_code, stranger.post(path, {"forced": "open"}).status_code) == (302, 302)
    offer.refresh_from_db()
    assert offer.forced == ""


def test_times_are_told_in_two_units() -> None:
    seconds = {
        0: "0 s",
        59: "59 s",
        60: "1 min",
        200: "3 min 20 s",
        3600: "1 h",
        5000: "1 h 23 min",
        200_000: "2 d 7 h",
    }
    assert {count: _lasted(timedelta(seconds=count)) for count in seconds} == seconds
