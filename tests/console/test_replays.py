"""A policy is replayed before it is saved: asked for in the console, done by a worker, watched and stopped."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core import signing
from django.db import connection
from django.test import Client
from django.urls import reverse

from routing.models import Model, Policy, Provider, Replay
from routing.replay.replay import CHUNK
from routing.replay.replaying import run
from tests.console.browser import console, context_of, filled, submit
from tests.console.browser import url as page
from tests.routing.test_replay import copies, shelf, usage
from tests.stage.cast import Tenant

ADD = reverse("admin:routing_policy_add")
ASK = reverse("admin:routing_policy_replay")


@contextmanager
def worker() -> Iterator[None]:
    """Within, this process's connection has the rights of a worker alone."""
    with connection.cursor() as cursor:
        cursor.execute("set role meterline_app")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("reset role")


def asked(client: Client, tenant: Tenant, two: Provider, **choice: str) -> Replay:
    """A replay of what would be if all went to `two`, as an operator asks for it."""
    typed = submit(
        client,
        ADD,
        "policy_form",
        level="project",
        project=str(tenant.project.pk),
        strategy="order",
        providers=two.slug,
        _replay="1",
    )
    assert typed.status_code == 302 and typed["Location"].startswith(ASK)
    fields = filled(client.get(typed["Location"]).content.decode(), "replay_form")
    made = client.post(ASK, {**fields, **choice})
    assert made.status_code == 302
    return Replay.objects.get(pk=int(made["Location"].rstrip("/").rpartition("/")[2]))


@pytest.fixture
def traffic(alice: Tenant, charlie: Tenant) -> tuple[Model, list[Provider]]:
    """Three generations of Alice's and one of Charlie's."""
    model, providers = shelf()
    for _ in range(3):
        usage(alice, model)
    usage(charlie, model)
    return model, providers


def test_it_works(alice: Tenant, traffic: tuple[Model, list[Provider]]) -> None:
    _, (one, two) = traffic
    client, policies = console(), list(Policy.objects.values())
    replay = asked(client, alice, two, window="1")
    assert list(Policy.objects.values()) == policies
    assert (replay.state, replay.project, replay.organization) == ("waiting", alice.project.pk, None)
    assert (replay.end - replay.start).total_seconds() == 3600
    address = reverse("admin:routing_policy_replayed", args=[replay.pk])
    waiting = client.get(address)
    assert waiting["Refresh"] == "2" and "Waiting for a worker" in waiting.content.decode()

    with worker():
        run(replay.pk)
        run(replay.pk)  # delivered twice, done once
    replay.refresh_from_db()
    assert (replay.state, replay.done, replay.total) == ("done", 3, 3)
    done = client.get(address)
    assert "Refresh" not in done
    assert ("Charged", "$0.006", "$0.012", "+$0.006 (+100.0%)") in context_of(done)["table"]["rows"]
    assert (f"Answered by {two.slug}", "0.0%", "100.0%", "+100.0 points") in context_of(done)["table"]["rows"]
    html = done.content.decode()
    assert "3 generations, of which 3 would have gone elsewhere." in html and one.slug in html
    assert "<style" not in html and " style=" not in html and html.count("<script") == html.count("<script src=")


def test_a_saved_policy_is_replayed_as_it_is_typed(alice: Tenant, traffic: tuple[Model, list[Provider]]) -> None:
    _, (one, two) = traffic
    client = console()
    policy = Policy.objects.create(level="project", project=alice.project, strategy="order", providers=[one.slug])
    typed = submit(client, page(Policy, "change", policy.pk), "policy_form", providers=two.slug, _replay="1")
    fields = filled(client.get(typed["Location"]).content.decode(), "replay_form")
    made = client.post(ASK, {**fields, "window": "24"})
    policy.refresh_from_db()
    assert policy.providers == [one.slug]
    number = int(made["Location"].rstrip("/").rpartition("/")[2])
    with worker():
        run(number)
    result = Replay.objects.get(pk=number).result
    assert result is not None
    assert (result["recorded"]["providers"], result["predicted"]["providers"]) == ({one.slug: 3}, {two.slug: 3})


def test_what_was_typed_wrong_is_told_and_not_replayed(alice: Tenant) -> None:
    client, before = console(), Replay.objects.count()
    told = submit(
        client, ADD, "policy_form", level="project", project=str(alice.project.pk), strategy="order", _replay="1"
    )
    assert told.status_code == 200
    assert "List the providers in their order, or choose another strategy." in told.content.decode()
    assert Replay.objects.count() == before and not Policy.objects.filter(project=alice.project).exists()


def test_it_stops_when_told_to(alice: Tenant, traffic: tuple[Model, list[Provider]]) -> None:
    model, (_, two) = traffic
    copies(usage(alice, model), CHUNK - 1)
    client = console()
    replay = asked(client, alice, two)
    address = reverse("admin:routing_policy_replayed", args=[replay.pk])
    assert client.post(address)["Location"] == address
    with worker():
        run(replay.pk)
    replay.refresh_from_db()
    assert (replay.state, replay.done, replay.total) == ("stopped", CHUNK, CHUNK + 3)
    html = client.get(address).content.decode()
    assert f"Stopped: {CHUNK} of {CHUNK + 3} generations (99 %)" in html and "Charged" in html


def test_it_takes_nothing_that_it_did_not_sign(alice: Tenant, traffic: tuple[Model, list[Provider]]) -> None:
    client, before = console(), Replay.objects.count()
    forged = signing.dumps({"subject": "x", "row": [], "project": None, "model": ""}, salt="another")
    for policy in ("", "nonsense", forged):
        told = client.post(ASK, {"policy": policy, "window": "1"})
        assert told.status_code == 200
    refused: dict[str, Any] = {"window": "9999999"}
    assert client.post(ASK, {"policy": forged, **refused}).status_code == 200
    assert Replay.objects.count() == before


def test_only_operators_see_it(alice: Tenant, traffic: tuple[Model, list[Provider]]) -> None:
    _, (_, two) = traffic
    replay = asked(console(), alice, two)
    staff = console(superuser=False)
    address = reverse("admin:routing_policy_replayed", args=[replay.pk])
    for path in (ASK, address):
        assert staff.get(path).status_code == 403 and staff.post(path, {"window": "1"}).status_code == 403
    replay.refresh_from_db()
    assert not replay.stop
    assert console().get(reverse("admin:routing_policy_replayed", args=[10**9])).status_code == 404


def test_a_replay_ends_in_the_policy_it_tried(alice: Tenant, traffic: Any) -> None:
    client = console()
    _, (_, two) = traffic
    made = asked(client, alice, two)
    with worker():
        run(made.pk)
    shown = reverse("admin:routing_policy_replayed", args=[made.pk])
    keep = reverse("admin:routing_policy_keep", args=[made.pk])
    html = client.get(shown).content.decode()
    assert keep in html and f"{ASK}?policy=" in html
    assert client.get(keep).status_code == 405 and not Policy.objects.filter(project=alice.project).exists()
    saved = client.post(keep)
    policy = Policy.objects.get(project=alice.project)
    assert (saved.status_code, saved["Location"]) == (302, page(Policy, "change", policy.pk))
    assert (policy.level, policy.strategy, policy.factor, policy.providers) == ("project", "order", "", [two.slug])
    # What it says has the place of what the project's policy says meanwhile.
    Policy.objects.filter(pk=policy.pk).update(strategy="round_robin", max_attempts=7, providers=None)
    assert client.post(keep).status_code == 302
    policy.refresh_from_db()
    assert (policy.strategy, policy.max_attempts, policy.providers) == ("order", None, [two.slug])
    assert f"As it was replayed in {made.pk}." in client.get(page(Policy, "history", policy.pk)).content.decode()
    # The same policy on other traffic.
    (again,) = re.findall(rf'href="({re.escape(ASK)}\?policy=[^"]+)"', html)
    fields = filled(client.get(again).content.decode(), "replay_form")
    assert client.post(ASK, {**fields, "window": "1"}).status_code == 302
    other = Replay.objects.latest("pk")
    assert (other.policy, other.subject, other.project) == (made.policy, made.subject, made.project)


def test_a_replayed_policy_that_is_wrong_by_now_is_not_saved(alice: Tenant, traffic: Any) -> None:
    client = console()
    made = asked(client, alice, traffic[1][1])
    Replay.objects.filter(pk=made.pk).update(
        policy=["project", None, str(alice.project.pk), None, "order", *[None] * 10]
    )
    assert client.post(reverse("admin:routing_policy_keep", args=[made.pk])).status_code == 302
    assert not Policy.objects.filter(project=alice.project).exists()
    assert console(superuser=False).post(reverse("admin:routing_policy_keep", args=[made.pk])).status_code == 403
    assert client.post(reverse("admin:routing_policy_keep", args=[2**60])).status_code == 404
